"""How a waiting poll learns that there may be work.

Guarantees: a notice given after `generation()` was read is never missed by a `wait` on that
generation. Notices reach this process's waiters only; others are found by looking again every
`LOOK_EVERY_S`, so a waiter never sleeps longer than that over a job.
"""

from __future__ import annotations

import threading

LOOK_EVERY_S = 0.25


class Wakeup:
    """A counter of notices that threads can wait on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._generation = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        """True once waiting has ended for good."""
        return self._closed

    def generation(self) -> int:
        """Return the counter; read it before looking for work."""
        with self._changed:
            return self._generation

    def notify(self) -> None:
        """Say that there may be work."""
        with self._changed:
            self._generation += 1
            self._changed.notify_all()

    def wait(self, generation: int, timeout_s: float) -> None:
        """Return at the next notice after `generation`, at the latest when it is time to look."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._generation != generation,
                timeout=min(timeout_s, LOOK_EVERY_S),
            )

    def close(self) -> None:
        """End all waiting: the process is about to stop. Safe from a signal handler's thread."""
        self._closed = True
        if self._changed.acquire(blocking=False):
            try:
                self._changed.notify_all()
            finally:
                self._changed.release()
