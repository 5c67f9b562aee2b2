"""The retry rule as a table: every row, every bound, and the page that shows it to people."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dispatch.contract import TaskSpec
from dispatch.lease import CEILING_S_MIN, LeaseRules, lease_ceiling_s
from dispatch.records import Job
from dispatch.retry import GiveUp, LeaseEnd, Retry, decide, ended_by, may_give_up, table

RULES = LeaseRules()
NOW = datetime(2040, 1, 1, 12, tzinfo=UTC)
PAGE = Path(__file__).parents[2] / "docs" / "retries.md"
FAILURES = [LeaseEnd.PREP_FAILED, LeaseEnd.REJECTED, LeaseEnd.JUDGE_ERROR]


def job(**fields: Any) -> Job:
    document = {
        "_id": "s1",
        "job_id": "jb_1",
        "state": "leased",
        "problem_id": 1,
        "language": 0,
        "queued_at": NOW,
        "leased_by": "A",
        "lease_token": "t",
        "attempts": 1,
        "tried": 1,
    }
    return Job.from_document({**document, **fields})


def again(end: LeaseEnd, job: Job, **given: Any) -> Retry:
    decided = decide(end, job, RULES, NOW, **{"jitter": 0, **given})
    assert isinstance(decided, Retry)
    return decided


def pause_s(retry: Retry) -> float:
    return 0 if retry.not_before is None else (retry.not_before - NOW).total_seconds()


def test_every_end_of_a_lease_has_its_row() -> None:
    assert set(table(RULES)) == set(LeaseEnd)


@pytest.mark.parametrize("end", FAILURES)
def test_the_pause_grows_with_the_attempts(end: LeaseEnd) -> None:
    assert [pause_s(again(end, job(attempts=n))) for n in (1, 2)] == [5, 30]
    last = again(end, job(attempts=3, first_failed_at=NOW - timedelta(seconds=35)))
    assert pause_s(last) == 120


def test_the_jitter_only_makes_it_longer() -> None:
    assert pause_s(again(LeaseEnd.REJECTED, job(), jitter=1)) == 5 * 1.2
    assert pause_s(again(LeaseEnd.REJECTED, job(), jitter=0.5)) == 5 * 1.1


@pytest.mark.parametrize("end", FAILURES)
def test_a_failure_costs_an_attempt_and_is_a_try(end: LeaseEnd) -> None:
    retry = again(end, job())
    assert (retry.refunded, retry.tried, retry.counts_as_drain) == (False, True, False)
    assert retry.others_first_until == NOW + timedelta(seconds=600)


def test_a_drain_costs_nothing_and_is_no_try() -> None:
    retry = again(LeaseEnd.DRAIN, job())
    assert (retry.refunded, retry.tried, retry.counts_as_drain) == (True, False, True)
    assert retry.not_before is None


def test_i5_drains_are_refunded_a_bounded_number_of_times() -> None:
    assert again(LeaseEnd.DRAIN, job(drain_refunds=19)).refunded
    assert not again(LeaseEnd.DRAIN, job(drain_refunds=20)).refunded


def test_what_a_runner_set_aside_fails_at_costs_the_job_nothing() -> None:
    retry = again(LeaseEnd.PREP_FAILED, job(), runner_set_aside=True)
    assert (retry.refunded, retry.tried, retry.not_before) == (True, False, None)


def test_i9_what_fails_for_a_held_problem_costs_the_job_nothing_ever() -> None:
    for attempts in (1, 3):
        retry = again(LeaseEnd.PREP_FAILED, job(attempts=attempts, tried=2), problem_held=True)
        assert (retry.refunded, retry.tried, retry.counts_as_drain) == (True, False, False)


@pytest.mark.parametrize("end", FAILURES)
def test_i9_a_job_is_given_up_after_two_runners_or_five_minutes(end: LeaseEnd) -> None:
    spent = job(attempts=3, first_failed_at=NOW - timedelta(seconds=299))
    early = again(end, spent)
    assert early.refunded, "it is tried once more, and attempts stay within their bound"
    assert decide(end, replace(spent, tried=2), RULES, NOW, jitter=0) == GiveUp()
    old = replace(spent, first_failed_at=NOW - timedelta(seconds=300))
    assert decide(end, old, RULES, NOW, jitter=0) == GiveUp()


def test_a_first_failure_is_now_where_there_was_none() -> None:
    assert not may_give_up(job(attempts=3), RULES, NOW)
    assert may_give_up(job(attempts=3), replace(RULES, give_up_s=0), NOW)


def test_how_an_orphan_was_lost() -> None:
    deadline = NOW + timedelta(seconds=30)
    held = job(lease_deadline=deadline, renew_until=deadline + timedelta(seconds=1))
    assert ended_by(held) is LeaseEnd.LOST
    assert ended_by(replace(held, renew_until=None)) is LeaseEnd.LOST
    assert ended_by(replace(held, renew_until=deadline)) is LeaseEnd.OVERDUE
    assert ended_by(replace(held, invalid_result=True)) is LeaseEnd.INVALID_RESULT


def test_the_ceiling_is_twice_what_a_sound_runner_may_take() -> None:
    def tasks(cases: int) -> list[TaskSpec]:
        return [TaskSpec(task_score=100, memory_limit_kib=1, time_limit_ms=2000, case_count=cases)]

    assert lease_ceiling_s(tasks(1)) == CEILING_S_MIN == 300
    assert lease_ceiling_s(tasks(100)) == 2 * (30 + 3 * 100 * (2 * 2 + 1 + 1))


def test_the_page_shows_the_table() -> None:
    rows = {
        cells[0].strip("` "): cells[1:]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `")
        for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
    }
    assert set(rows) == set(LeaseEnd)
    for end, rule in table(RULES).items():
        _, cost, pause, others = rows[end]
        assert cost == ("yes" if rule.costs_attempt else "no")
        assert [float(number) for number in re.findall(r"[\d.]+", pause)] == list(rule.pauses_s)
        assert float(re.findall(r"[\d.]+", others)[0]) == rule.others_first_s
    text = PAGE.read_text()
    for number in (RULES.max_attempts, RULES.drain_refunds_max, RULES.give_up_s):
        assert f"**{number:g}**" in text
