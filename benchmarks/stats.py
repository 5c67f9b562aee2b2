"""The arithmetic of the measurements. Pure: no clock, no I/O.

Guarantees: an empty sample is an error, never a zero; nothing is dropped from a sample but where
the function says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from statistics import median

RAMP_SHARE = 0.1
"""How much of a run's beginning counts as its ramp, while its processes warm up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """A sample in three numbers, in the sample's own unit."""

    count: int
    median: float
    p99: float


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` of the sample do not exceed.

    Raises:
        ValueError: the sample is empty, or `percent` is not within 0..100.
    """
    if not values:
        raise ValueError("an empty sample has no percentiles")
    if not 0 <= percent <= 100:
        raise ValueError(f"{percent} is not a percentage")
    return sorted(values)[max(1, ceil(len(values) * percent / 100)) - 1]


def summarise(values: Sequence[float]) -> Summary:
    """Return the sample's size, median and 99th percentile.

    Raises:
        ValueError: the sample is empty.
    """
    if not values:
        raise ValueError("an empty sample has no summary")
    return Summary(count=len(values), median=median(values), p99=percentile(values, 99))


def rate_per_s(ends_s: Sequence[float]) -> float:
    """Return how many ends a second there were, without the ramp at the beginning.

    `ends_s`: when each was done, in any order, on one clock. The first tenth is left out.

    Raises:
        ValueError: fewer than two are left, or all at one moment.
    """
    ends_s = sorted(ends_s)[int(len(ends_s) * RAMP_SHARE) :]
    if len(ends_s) < 2 or ends_s[0] == ends_s[-1]:
        raise ValueError("a rate needs two moments")
    return (len(ends_s) - 1) / (ends_s[-1] - ends_s[0])


def ratio(value: float, base: float) -> float | None:
    """Return `value / base`, None where the base is nothing."""
    return value / base if base else None


def interleaved(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Yield A, B, A, B, ...: whatever drifts meanwhile, drifts for all of them."""
    for _ in range(rounds):
        yield from names


def longest_gap_s(moments_s: Sequence[float]) -> float:
    """Return the longest time between two successive moments; 0 where there are not two."""
    ordered = sorted(moments_s)
    return max((later - sooner for sooner, later in pairwise(ordered)), default=0.0)


def best_makespan_s(jobs: int, job_s: float, runners: int, arriving_s: float) -> float:
    """Return the least time in which `runners` can judge `jobs` that arrive over `arriving_s`.

    The last one arrives at the end and takes its time; and nobody does two at once.
    """
    return max(jobs * job_s / runners, arriving_s + job_s)
