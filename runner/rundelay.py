"""How long a running program waited for a core that others had.

Guarantees: never more than the time in which the program did not compute; threads that wait for
one another count once; one that computes for itself alone gains nothing by having many threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
NS_PER_MS = 1_000_000
# The kernel tells of a wait when it is over. No wait is longer than this without a turn, so a
# program that slept cannot have the time of its sleep counted as one.
WAIT_MS_MAX = 500.0

ReadDelay = Callable[[int], int]


def read_delay_ns(thread: int) -> int:
    """Return how long a thread has waited for a core so far. Raises OSError and ValueError."""
    return int((PROC / str(thread) / "schedstat").read_text().split()[1])


class RunDelay:
    """The books on the waiting of one run. `read(thread)` gives a thread's waiting so far in ns."""

    def __init__(self, read: ReadDelay = read_delay_ns) -> None:
        self._read = read
        self._seen: dict[int, int] = {}
        self._wall_ms = self._cpu_ms = 0.0
        self._unused_ms = self._waited_ms = 0.0

    @property
    def waited_ms(self) -> int:
        """The milliseconds waited up to the last look."""
        return int(self._waited_ms)

    def look(self, threads: Iterable[int], *, wall_ms: float, cpu_ms: float) -> None:
        """Look at the living threads, so long after the start, with so much CPU time used."""
        unused_ms = (wall_ms - self._wall_ms) - (cpu_ms - self._cpu_ms)
        self._wall_ms, self._cpu_ms = wall_ms, cpu_ms
        self._unused_ms = min(WAIT_MS_MAX, max(0.0, self._unused_ms + unused_ms))
        longest_ns = 0
        for thread in threads:
            # It may have ended since it was listed; some kernels do not keep these books.
            with suppress(OSError, ValueError, IndexError):
                delay_ns = self._read(thread)
                longest_ns = max(longest_ns, delay_ns - self._seen.get(thread, 0))
                self._seen[thread] = delay_ns
        waited_ms = min(self._unused_ms, longest_ns / NS_PER_MS)
        self._unused_ms -= waited_ms
        self._waited_ms += waited_ms
