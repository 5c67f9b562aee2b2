"""How long a runner that fails keeps its hands off further jobs.

Guarantees: after failures of its own a runner waits 3, 6, ... 60 s before it claims again, and
then claims one job at a time, so that it does not burn the attempts of a whole queue; one job
judged makes it well again. Every failure is logged with its reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

PAUSE_S_MIN = 3.0
PAUSE_S_MAX = 60.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Health:
    """What a runner knows of its own condition. Safe to use from any thread.

    `clock()` gives monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._pause_s = 0.0
        self._failed_at_s = 0.0

    def now_s(self) -> float:
        """Return the time by which jobs and pauses are measured here."""
        return self._clock()

    @property
    def well(self) -> bool:
        """Whether the last job that says anything about the runner was judged."""
        return self._pause_s == 0

    def pause_left_s(self) -> float:
        """Return the seconds until the next claim; 0 where it may be made now."""
        with self._guard:
            return max(0.0, self._failed_at_s + self._pause_s - self._clock())

    def judged(self) -> None:
        """A job was judged: the runner works."""
        with self._guard:
            recovered = self._pause_s > 0
            self._pause_s = 0.0
        if recovered:
            _log.info("runner_well_again")

    def failed(self, reason: str, *, begun_at_s: float) -> None:
        """A job begun at that time came to nothing, by no fault of its program."""
        with self._guard:
            # Jobs that were under way together fail together: they count as one failure.
            if self._pause_s == 0:
                self._pause_s = PAUSE_S_MIN
            elif begun_at_s > self._failed_at_s:
                self._pause_s = min(PAUSE_S_MAX, 2 * self._pause_s)
            self._failed_at_s = self._clock()
            pause_s = self._pause_s
        _log.error("runner_unwell", reason=reason, pause_s=pause_s)
