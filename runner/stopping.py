"""What SIGTERM and SIGINT do to a runner: the first drains it, the next ends it at once.

Guarantees: a handler never runs in the way of a lock that it needs.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import structlog

NUMBERS = (signal.SIGTERM, signal.SIGINT)

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Signals:
    """Counts the signals of this process from its start on. Make it in the main thread."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        """Set by the first signal until there is something to drain, and by the second ever."""
        self._guard = threading.Lock()
        self._count = 0
        self._drain: Callable[[], None] = self.stopping.set
        self._end_at_once: Callable[[], None] = self.stopping.set
        for number in NUMBERS:
            # A handler interrupts the main thread, which may hold the very lock that is needed.
            signal.signal(
                number, lambda *_: threading.Thread(target=self._got_one, daemon=True).start()
            )

    def lead_to(self, drain: Callable[[], None], end_at_once: Callable[[], None]) -> None:
        """From now on have signals do this, and what came before too."""
        with self._guard:
            self._drain, self._end_at_once = drain, end_at_once
            count = self._count
        for number in range(1, count + 1):
            self._react(number)

    def _got_one(self) -> None:
        with self._guard:
            self._count += 1
            number = self._count
        if number == 1:
            _log.info("told_to_drain")
        else:
            _log.warning("told_to_end_at_once")
        self._react(number)

    def _react(self, number: int) -> None:
        if number == 1:
            self._drain()
        else:
            # The waits between resends are over too.
            self.stopping.set()
            self._end_at_once()
