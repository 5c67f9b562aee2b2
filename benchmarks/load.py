"""Clients in processes of their own: their interpreter is not the bottleneck, and their CPU known.

Guarantees: all shares of a load begin at one moment of the monotonic clock, which the processes
of a machine share.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

START_IN_S = 0.3
PROCESSES = 2

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured(Generic[T]):
    """What the shares returned, and what the clients cost. Seconds."""

    results: list[T]
    cpu_s: float
    wall_s: float

    @property
    def cores(self) -> float:
        """Return how many cores the clients kept busy."""
        return self.cpu_s / self.wall_s if self.wall_s else 0.0


class Crowd:
    """Client processes, kept for the whole run."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def run(self, work: Callable[[S, float], list[T]], shares: Sequence[S]) -> Measured[T]:
        """Run `work(share, start_at_s)` for each share at once, a thread each.

        The shares are dealt out over the processes.

        Raises:
            Exception: what a share raised.
        """
        start_at = time.monotonic() + START_IN_S
        hands = [list(shares[n::PROCESSES]) for n in range(PROCESSES)]
        running = [self._pool.submit(_play, work, hand, start_at) for hand in hands if hand]
        played = [each.result() for each in running]
        return Measured(
            results=[item for results, _, _ in played for item in results],
            cpu_s=sum(cpu_s for _, cpu_s, _ in played),
            wall_s=max(wall_s for _, _, wall_s in played),
        )


@contextmanager
def crowd() -> Iterator[Crowd]:
    """Hold client processes while the block runs."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        yield Crowd(pool)


def _play(
    work: Callable[[S, float], list[T]], hand: Sequence[S], start_at: float
) -> tuple[list[T], float, float]:
    before = _cpu_s()
    with ThreadPoolExecutor(len(hand)) as threads:
        playing = [threads.submit(work, share, start_at) for share in hand]
        results = [result for each in playing for result in each.result()]
    return results, _cpu_s() - before, time.monotonic() - start_at


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def sleep_until(moment_s: float) -> None:
    """Sleep until a moment of the monotonic clock."""
    left_s = moment_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)
