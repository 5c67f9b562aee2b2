"""What a server does beside its requests, in a thread of its own.

Guarantees: whatever fails is logged and tried again; nothing here holds up a request, and the
process never waits for it at its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger("housekeeping")

EVERY_S = 1.0


class Housekeeping:
    """Calls `maintain` and `advance` about every second, and at once where `advance` says so.

    `moved` is called after a step that may have given waiting polls something to do.
    """

    def __init__(
        self,
        maintain: Callable[[], None],
        advance: Callable[[], bool],
        moved: Callable[[], None],
        every_s: float = EVERY_S,
    ) -> None:
        self._maintain = maintain
        self._advance = advance
        self._moved = moved
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, in the process that is to do it (after a server's fork)."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End after the step under way; does not wait for it. Safe from a signal handler."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._step():
                self._stopping.wait(self._every_s)

    def _step(self) -> bool:
        try:
            self._maintain()
            more = self._advance()
        except Exception:
            log.exception("housekeeping_failed")
            return False
        if more:
            self._moved()
        return more
