"""The benchmarks' arithmetic. Nothing here measures a time."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from benchmarks.report import Line, as_json, show
from benchmarks.stats import (
    best_makespan_s,
    interleaved,
    longest_gap_s,
    percentile,
    rate_per_s,
    ratio,
    summarise,
)


def test_a_percentile_is_a_value_of_the_sample() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 99) == 99
    assert percentile(values, 50) == 50
    assert percentile(values, 100) == 100
    assert percentile(values, 0) == 1
    assert percentile([7.0], 99) == 7


def test_one_slow_of_fifty_is_seen_in_the_p99() -> None:
    assert summarise([1.0] * 49 + [500.0]).p99 == 500


@pytest.mark.parametrize("percent", [-1, 101])
def test_a_percentile_outside_0_to_100_is_refused(percent: float) -> None:
    with pytest.raises(ValueError):
        percentile([1.0], percent)


def test_nothing_measured_is_an_error_and_no_zero() -> None:
    with pytest.raises(ValueError):
        percentile([], 50)
    with pytest.raises(ValueError):
        summarise([])


def test_a_summary_counts_and_takes_the_median() -> None:
    summary = summarise([3.0, 1.0, 2.0, 10.0])
    assert (summary.count, summary.median, summary.p99) == (4, 2.5, 10)


def test_a_rate_leaves_out_the_ramp() -> None:
    slow_start = [0.0, 100.0]
    steady = [200 + number / 10 for number in range(18)]
    assert rate_per_s([*steady, *slow_start]) == pytest.approx(10)


@pytest.mark.parametrize("ends_s", [[], [1.0], [2.0, 2.0]])
def test_a_rate_needs_two_moments(ends_s: list[float]) -> None:
    with pytest.raises(ValueError):
        rate_per_s(ends_s)


def test_a_ratio_to_nothing_is_none() -> None:
    assert ratio(3, 2) == 1.5
    assert ratio(3, 0) is None


def test_contenders_take_turns() -> None:
    assert list(interleaved(["a", "b"], 3)) == ["a", "b", "a", "b", "a", "b"]


def test_the_longest_gap_is_between_successive_moments() -> None:
    assert longest_gap_s([30.0, 0.0, 10.0, 15.0]) == 15
    assert longest_gap_s([4.0]) == 0


def test_the_best_possible_is_bound_by_the_work_or_by_the_last_arrival() -> None:
    assert best_makespan_s(2_000, 0.2, 20, 10) == pytest.approx(20)
    assert best_makespan_s(10, 0.2, 20, 10) == pytest.approx(10.2)


def test_the_report_shows_every_line_and_keeps_all_numbers_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    floor = Line(row="1 cycle", case="4 runners", who="floor", median=4.0, p99=9.5, ratio=0.61)
    began = {"began": datetime(2020, 1, 1, tzinfo=UTC).isoformat()}
    show([floor], began)
    shown = capsys.readouterr().out
    assert "4.00 ms" in shown
    assert "0.61" in shown
    kept = json.loads(as_json([floor], began))
    assert kept["lines"][0]["p99"] == 9.5
    assert kept["about"] == began
