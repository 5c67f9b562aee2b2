"""Cases to a verdict, submissions to a standing: the pure rules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.contract import CaseResult, HandedOut, InvalidResult, TaskSpec, Verdict
from mongo.penalty import DEFAULT_PENALTY, compile_penalty
from mongo.scoring import (
    NUMBER_MAX,
    CountedSubmission,
    HomeworkRules,
    ProblemStanding,
    days_late,
    fold,
    stand,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)
DAY, SECOND, MS = timedelta(days=1), timedelta(seconds=1), timedelta(milliseconds=1)
JUDGED = [verdict for verdict in Verdict if verdict is not Verdict.PENDING]
AC, WA, CE, TLE, MLE, RE, JE, OLE = JUDGED


# -- cases to a verdict --------------------------------------------------------------------


def case(status: Verdict = AC, *, ms: int = 1, kib: int = 1, exit_code: int = 0) -> CaseResult:
    return CaseResult(
        status=status,
        exit_code=exit_code,
        stdout="",
        stderr="",
        exec_time_ms=ms,
        memory_usage_kib=kib,
    )


def handed_out(*tasks: tuple[int, int]) -> HandedOut:
    """`tasks`: (score, case count) of each."""
    return HandedOut(
        tasks=tuple(
            TaskSpec(task_score=score, memory_limit_kib=1, time_limit_ms=1, case_count=count)
            for score, count in tasks
        ),
        testdata_sha256="0" * 64,
        checker="default",
    )


@pytest.mark.parametrize("status", JUDGED)
def test_one_case_decides_by_its_code(status: Verdict) -> None:
    result = fold([[case(status)]], handed_out((100, 1)))
    assert (result.status, result.score) == (status, 100 if status is AC else 0)


@pytest.mark.parametrize(("one", "other"), [*itertools.product(JUDGED, repeat=2)])
def test_the_worse_of_two_is_the_task_s_and_the_submission_s(one: Verdict, other: Verdict) -> None:
    """The larger code, except that a judge error outweighs whatever has a larger one."""
    worst = JE if JE in (one, other) else max(one, other)
    result = fold([[case(one), case(other)]], handed_out((100, 2)))
    assert (result.status, result.tasks[0].status) == (worst, worst)
    assert result.score == result.tasks[0].score == (100 if one is other is AC else 0)
    apart = fold([[case(one)], [case(other)]], handed_out((30, 1), (70, 1)))
    assert apart.status is worst
    assert [task.status for task in apart.tasks] == [one, other]
    assert apart.score == 30 * (one is AC) + 70 * (other is AC)


def test_a_judge_error_in_one_case_of_many_makes_the_submission_one() -> None:
    tasks = [[case(AC), case(OLE), case(JE), case(OLE)], [case(OLE)], [case(AC)]]
    result = fold(tasks, handed_out((40, 4), (30, 1), (30, 1)))
    assert (result.status, [task.status for task in result.tasks]) == (JE, [JE, OLE, AC])


def test_scores_add_up_and_times_are_the_largest() -> None:
    tasks = [[case(AC, ms=5, kib=90), case(AC, ms=9, kib=10)], [case(WA, ms=7, kib=200)]]
    result = fold(tasks, handed_out((40, 2), (60, 1)))
    assert (result.score, result.exec_time_ms, result.memory_usage_kib) == (40, 9, 200)
    assert [task.score for task in result.tasks] == [40, 0]
    assert [task.exec_time_ms for task in result.tasks] == [9, 7]
    assert [task.memory_usage_kib for task in result.tasks] == [90, 200]
    assert [len(task.cases) for task in result.tasks] == [2, 1]


@pytest.mark.parametrize(
    ("reported", "why"),
    [
        ([], "tasks: 0 given, the problem has 2"),
        ([1], "tasks: 1 given"),
        ([1, 2, 1], "tasks: 3 given"),
        ([1, 1], r"tasks\[1\]: 1 cases given, the task has 2"),
        ([0, 2], r"tasks\[0\]: 0 cases given"),
        ([2, 1], r"tasks\[0\]: 2 cases given"),
        ([1, 3], r"tasks\[1\]: 3 cases given"),
    ],
)
def test_counts_that_do_not_fit_are_refused(reported: Sequence[int], why: str) -> None:
    with pytest.raises(InvalidResult, match=why):
        fold([[case()] * count for count in reported], handed_out((50, 1), (50, 2)))


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (case(ms=-2), "execTime"),
        (case(ms=NUMBER_MAX + 1), "execTime"),
        (case(kib=-2), "memoryUsage"),
        (case(kib=2**63), "memoryUsage"),
        (case(exit_code=NUMBER_MAX + 1), "exitCode"),
        (case(exit_code=-NUMBER_MAX - 1), "exitCode"),
        (case(Verdict.PENDING), "status"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(bad: CaseResult, field: str) -> None:
    with pytest.raises(InvalidResult, match=rf"tasks\[0\]\[1\]\.{field}"):
        fold([[case(), bad]], handed_out((100, 2)))


@pytest.mark.parametrize("good", [case(ms=-1, kib=-1), case(ms=NUMBER_MAX, kib=NUMBER_MAX)])
def test_the_ends_of_the_ranges_are_taken(good: CaseResult) -> None:
    result = fold([[good]], handed_out((100, 1)))
    assert (result.exec_time_ms, result.memory_usage_kib) == (
        good.exec_time_ms,
        good.memory_usage_kib,
    )


# -- submissions to a standing -------------------------------------------------------------


def rules(penalty: str = DEFAULT_PENALTY) -> HomeworkRules:
    return HomeworkRules(start=START, end=END, penalty=compile_penalty(penalty))


def entry(
    name: str, at: timedelta, score: int, status: Verdict | None = None, *, since: datetime = END
) -> CountedSubmission:
    """A submission at `since + at`."""
    if status is None:
        status = AC if score == 100 else WA
    return CountedSubmission(
        submission_id=name, submitted_at=since + at, status=status.value, score=score
    )


@pytest.mark.parametrize(
    ("penalty", "submissions", "score", "raw_score"),
    [
        ("score=score*(0.8**overtime)", [(DAY + 10 * SECOND, 100)], 80, 100),
        ("score=score*(0.7**overtime)", [(0 * DAY, 50), (DAY + 10 * SECOND, 100)], 85, 100),
        ("score=score*(0.7**overtime)", [(2 * DAY + 10 * SECOND, 100)], 49, 100),
        (DEFAULT_PENALTY, [(10 * SECOND, 100)], 0, 100),
        ("score=score*(0.7**overtime)", [(-10 * SECOND, 100)], 100, 100),
    ],
)
def test_the_worked_examples(
    penalty: str, submissions: list[tuple[timedelta, int]], score: int, raw_score: int
) -> None:
    entries = [entry(f"s{n}", at, points) for n, (at, points) in enumerate(submissions)]
    result = stand(rules(penalty), entries)
    assert (result.score, result.raw_score, result.problem_status) == (score, raw_score, AC)
    assert result.submission_ids == tuple(f"s{n}" for n in range(len(submissions)))


def test_without_submissions_there_is_nothing() -> None:
    assert stand(rules(), []).to_document() == {
        "score": 0,
        "rawScore": 0,
        "problemStatus": None,
        "submissionIds": [],
    }


def test_the_borders_of_the_homework() -> None:
    early = entry("early", -MS, 100, since=START)
    first = entry("first", 0 * MS, 40, since=START)
    last = entry("last", 0 * MS, 60)
    late = entry("late", MS, 100)
    result = stand(rules("score / 2"), [early, first, last, late])
    assert result.submission_ids == ("first", "last", "late")
    assert (result.score, result.raw_score) == (60 + 20, 100)


@pytest.mark.parametrize(
    ("after_end", "days"),
    [(-MS, 0), (0 * MS, 0), (MS, 0), (DAY - MS, 0), (DAY, 1), (2 * DAY - MS, 1), (400 * DAY, 400)],
)
def test_whole_days_late(after_end: timedelta, days: int) -> None:
    assert days_late(END, END + after_end) == days


def test_on_time_the_last_best_submission_gives_the_status() -> None:
    tasks = [entry("a", -3 * DAY, 50, WA), entry("b", -2 * DAY, 50, TLE), entry("c", -DAY, 10, RE)]
    result = stand(rules(), tasks)
    assert (result.score, result.raw_score, result.problem_status) == (50, 50, TLE)
    assert result.submission_ids == ("a", "b", "c")


def test_a_first_submission_of_score_0_gives_its_status() -> None:
    assert stand(rules(), [entry("a", -DAY, 0, CE)]).problem_status == CE


def test_a_late_submission_without_gain_changes_only_the_ids() -> None:
    on_time = [entry("a", -DAY, 60, WA)]
    before = stand(rules("score"), on_time)
    for points in (0, 59, 60):
        after = stand(rules("score"), [*on_time, entry("late", DAY, points, RE)])
        assert (after.score, after.raw_score, after.problem_status) == (60, 60, WA)
        assert after.submission_ids == (*before.submission_ids, "late")


def test_a_late_submission_alone_and_without_gain_has_no_status() -> None:
    result = stand(rules("score"), [entry("late", DAY, 0, RE)])
    assert result == ProblemStanding(
        score=0, raw_score=0, problem_status=None, submission_ids=("late",)
    )


def test_late_gains_add_up_each_under_its_own_penalty() -> None:
    entries = [
        entry("a", -DAY, 20, WA),
        entry("b", DAY, 60, TLE),  # gains 40, half of it counts
        entry("c", 2 * DAY, 40, RE),  # no gain over 60
        entry("d", 2 * DAY, 100, AC),  # gains 40, a quarter of it counts
    ]
    result = stand(rules("score * 0.5 ** overtime"), entries)
    assert (result.score, result.raw_score, result.problem_status) == (20 + 20 + 10, 100, AC)


def test_a_penalty_cannot_add_to_a_gain_or_take_from_the_score() -> None:
    entries = [entry("a", -DAY, 50), entry("b", DAY, 80)]
    assert stand(rules("score * 100"), entries).score == 80
    assert stand(rules("0 - 1000"), entries).score == 50


def test_equal_times_count_in_the_order_of_their_ids() -> None:
    entries = [entry("b", -DAY, 50, WA), entry("a", -DAY, 50, TLE)]
    result = stand(rules(), entries)
    assert (result.submission_ids, result.problem_status) == (("a", "b"), WA)


@pytest.mark.parametrize("at", [-DAY, DAY])
def test_a_judge_error_alone_is_shown_and_costs_nothing(at: timedelta) -> None:
    result = stand(rules("score"), [entry("je", at, 0, JE)])
    assert result == ProblemStanding(
        score=0, raw_score=0, problem_status=JE, submission_ids=("je",)
    )


@pytest.mark.parametrize("at", [-2 * DAY, 2 * DAY])
@pytest.mark.parametrize("points", [0, 100])
def test_a_judge_error_never_gets_in_the_way(at: timedelta, points: int) -> None:
    real = [entry("a", -DAY, 0, WA), entry("b", DAY, 60, TLE)]
    without = stand(rules("score / 2"), real)
    with_it = stand(rules("score / 2"), [*real, entry("je", at, points, JE)])
    assert (with_it.score, with_it.raw_score) == (without.score, without.raw_score)
    assert with_it.problem_status == without.problem_status
    assert set(with_it.submission_ids) == {"a", "b", "je"}


def test_a_real_result_takes_the_status_from_a_judge_error() -> None:
    result = stand(rules(), [entry("je", -2 * DAY, 0, JE), entry("a", -DAY, 0, CE)])
    assert result.problem_status == CE


ENTRIES = st.lists(
    st.builds(
        entry,
        st.text("abcdef", min_size=1, max_size=6),
        st.integers(-40 * 24, 10 * 24).map(lambda hours: timedelta(hours=hours)),
        st.sampled_from([0, 10, 50, 99, 100]),
        st.sampled_from(JUDGED),
    ),
    max_size=8,
    unique_by=lambda made: made.submission_id,
)
PENALTIES = st.sampled_from(
    [DEFAULT_PENALTY, "score", "score*(0.7**overtime)", "if overtime>1: score=0", "score - 20"]
)


@given(ENTRIES, PENALTIES, st.randoms(use_true_random=False))
def test_i6_the_order_in_which_results_landed_plays_no_part(
    entries: list[CountedSubmission], penalty: str, random: object
) -> None:
    shuffled = list(entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert stand(rules(penalty), shuffled) == stand(rules(penalty), entries)


@given(ENTRIES, PENALTIES)
def test_a_standing_keeps_its_bounds(entries: list[CountedSubmission], penalty: str) -> None:
    result = stand(rules(penalty), entries)
    counting = [made for made in entries if made.submitted_at >= START]
    real = [made.score for made in counting if made.status != JE]
    assert 0 <= result.score <= result.raw_score <= 100
    assert result.raw_score == max(real, default=0)
    assert sorted(result.submission_ids) == sorted(made.submission_id for made in counting)
    on_time = any(made.submitted_at <= END for made in counting)
    assert (result.problem_status is None) <= (not on_time)


@given(ENTRIES, PENALTIES)
def test_more_submissions_never_lower_the_score(
    entries: list[CountedSubmission], penalty: str
) -> None:
    in_order = sorted(entries, key=lambda made: (made.submitted_at, made.submission_id))
    scores = [stand(rules(penalty), in_order[:n]).score for n in range(len(in_order) + 1)]
    assert scores == sorted(scores)
