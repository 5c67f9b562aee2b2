"""The queue's depth over the last hour as a drawing: samples to points.

Guarantees: pure; a minute without a sample is a gap, not a line through the unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dispatch.books import Sample

SPAN = timedelta(hours=1)
GAP = timedelta(minutes=3)
WIDTH, HEIGHT = 720, 160
TOP_MIN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """What to draw in a box of `WIDTH` by `HEIGHT`: SVG points, one text per unbroken stretch."""

    top: int
    """The number that the upper edge stands for."""
    areas: tuple[str, ...]
    waiting: tuple[str, ...]
    held: tuple[str, ...]
    highest: int
    highest_at: datetime | None


def draw(samples: Sequence[Sample], now: datetime) -> Chart:
    """Return the chart of `samples`, which are in order of time."""
    shown = [sample for sample in samples if now - SPAN <= sample.at <= now]
    stretches = _stretches(shown)
    highest = max(shown, key=lambda sample: sample.pending, default=None)
    top = _round_up(max((max(one.pending, one.held) for one in shown), default=0))

    def points(stretch: Sequence[Sample], value: Callable[[Sample], int]) -> str:
        return " ".join(f"{_x(one.at, now)},{_y(value(one), top)}" for one in stretch)

    waiting = tuple(points(stretch, lambda one: one.pending) for stretch in stretches)
    return Chart(
        top=top,
        areas=tuple(
            f"{_x(stretch[0].at, now)},{HEIGHT} {line} {_x(stretch[-1].at, now)},{HEIGHT}"
            for stretch, line in zip(stretches, waiting, strict=True)
        ),
        waiting=waiting,
        held=tuple(points(stretch, lambda one: one.held) for stretch in stretches),
        highest=0 if highest is None else highest.pending,
        highest_at=None if highest is None else highest.at,
    )


def _stretches(samples: Sequence[Sample]) -> list[list[Sample]]:
    stretches: list[list[Sample]] = []
    for sample in samples:
        if stretches and sample.at - stretches[-1][-1].at <= GAP:
            stretches[-1].append(sample)
        else:
            stretches.append([sample])
    return stretches


def _x(at: datetime, now: datetime) -> float:
    return round(WIDTH * (1 - (now - at) / SPAN), 1)


def _y(value: int, top: int) -> float:
    return round(HEIGHT * (1 - value / top), 1)


def _round_up(value: int) -> int:
    """Return the least 1, 2 or 5 times a power of ten that is at least `value`."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if factor * step >= max(value, TOP_MIN):
                return factor * step
        step *= 10
