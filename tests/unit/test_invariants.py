"""The checkers find what is broken, one by one, and nothing in what is whole."""

from __future__ import annotations

import itertools
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatch.invariants import check_document, check_pair, check_step
from dispatch.lease import LeaseRules

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)
RULES = LeaseRules()


def entry(event: str, fence: int, attempts: int, **more: Any) -> dict[str, Any]:
    return {
        "at": NOW,
        "event": event,
        "job_id": "jb_1",
        "fence": fence,
        "attempts": attempts,
        **more,
    }


ENQUEUE = entry("enqueue", 1, 0)
CLAIM = entry("claim", 2, 1, runner_id="A")
BEGINS = entry("complete_begins", 3, 1, runner_id="A")
ENDS = entry("complete_ends", 3, 1, runner_id="A", note="verdict")


def job(*history: dict[str, Any], **fields: Any) -> dict[str, Any]:
    last = history[-1]
    return {
        "_id": "s1",
        "job_id": last["job_id"],
        "fence": last["fence"],
        "attempts": last["attempts"],
        "drain_refunds": 0,
        "replaced_ids": [],
        "history": list(history),
        **fields,
    }


LEASE = {
    "leased_by": "A",
    "lease_token": "t",
    "lease_deadline": LATER,
    "handed_out": {"tasks": []},
}
PENDING = job(ENQUEUE, state="pending")
LEASED = job(ENQUEUE, CLAIM, state="leased", **LEASE)
LANDING = job(ENQUEUE, CLAIM, BEGINS, state="landing", landing_deadline=LATER, **LEASE)
DONE = job(ENQUEUE, CLAIM, BEGINS, ENDS, state="done", outcome="verdict", done_at=NOW, **LEASE)
WHOLE = {"pending": PENDING, "leased": LEASED, "landing": LANDING, "done": DONE}


def found(violations: list[Any]) -> set[str]:
    return {violation.invariant for violation in violations}


@pytest.mark.parametrize("document", WHOLE.values(), ids=WHOLE)
def test_nothing_is_wrong_with_what_is_whole(document: dict[str, Any]) -> None:
    assert check_document(document, RULES) == []
    assert check_step(document, document) == []


def test_nothing_is_wrong_with_the_way_through() -> None:
    way = [PENDING, LEASED, LANDING, DONE]
    for before, after in itertools.pairwise(way):
        assert check_step(before, after) == []
    assert check_step(PENDING, DONE) == []


@pytest.mark.parametrize(
    ("document", "change", "invariant"),
    [
        (PENDING, {"state": "queued"}, "I3"),
        (PENDING, {"leased_by": "A", "lease_token": "t"}, "I3"),
        (PENDING, {"lease_deadline": LATER}, "I3"),
        (PENDING, {"outcome": "verdict"}, "I3"),
        (PENDING, {"state": "done", "outcome": "verdict"}, "I1"),
        (LEASED, {"leased_by": None, "lease_token": None}, "I3"),
        (LEASED, {"lease_token": None}, "I3"),
        (LEASED, {"handed_out": None}, "I3"),
        (LEASED, {"landing_deadline": LATER}, "I3"),
        (LEASED, {"fence": 1}, "I4"),
        (LEASED, {"fence": 3}, "I4"),
        (LEASED, {"attempts": 0}, "I5"),
        (LEASED, {"attempts": -1}, "I5"),
        (LEASED, {"attempts": 4}, "I5"),
        (LEASED, {"drain_refunds": 21}, "I5"),
        (LEASED, {"job_id": "jb_2"}, "I4"),
        (LEASED, {"replaced_ids": ["jb_1"]}, "I4"),
        (LEASED, {"replaced_ids": ["jb_0", "jb_0"]}, "I4"),
        (LEASED, {"mark_due": 3}, "I4"),
        (LANDING, {"leased_by": None, "lease_token": None, "claim_id": "c"}, "I3"),
        (DONE, {"outcome": None}, "I1"),
        (DONE, {"outcome": "lost"}, "I1"),
        (DONE, {"outcome": "judge_error"}, "I3"),
        (DONE, {"landing_deadline": LATER}, "I3"),
        (DONE, {"history": [ENQUEUE, CLAIM, ENDS]}, "I1"),
        (DONE, {"history": [ENQUEUE, CLAIM, {**BEGINS, "runner_id": "B"}, ENDS]}, "I3"),
        (DONE, {"history": [ENQUEUE, CLAIM, {**BEGINS, "fence": 2}, ENDS]}, "I4"),
        (DONE, {"history": [ENQUEUE, {**CLAIM, "attempts": 0}, BEGINS, ENDS]}, "I5"),
        (DONE, {"history": [ENQUEUE, CLAIM, {**BEGINS, "event": "moved"}, ENDS]}, "I1"),
    ],
)
def test_a_broken_document_is_found(
    document: dict[str, Any], change: dict[str, Any], invariant: str
) -> None:
    assert invariant in found(check_document({**deepcopy(document), **change}, RULES))


RECLAIM = entry("reclaim", 3, 2, runner_id="B")
STOLEN = job(ENQUEUE, CLAIM, RECLAIM, state="leased", **{**LEASE, "leased_by": "B"})
SWEPT = job(
    ENQUEUE,
    CLAIM,
    entry("exhaust_begins", 3, 1),
    state="landing",
    landing_deadline=LATER,
    lease_deadline=LATER,
)
BACK = entry("abort", 2, 1, runner_id="A", note="rejected")
REJUDGED = job(
    ENQUEUE, CLAIM, entry("rejudge", 3, 0, job_id="jb_2"), state="pending", replaced_ids=["jb_1"]
)


def test_i2_a_lease_taken_away_early_is_found() -> None:
    assert found(check_step(LEASED, STOLEN)) == {"I2"}
    assert found(check_step(LEASED, SWEPT)) == {"I2"}
    over = {**LEASED, "lease_deadline": NOW}
    assert check_step(over, STOLEN) == []
    assert check_step(over, SWEPT) == []
    assert check_step({**LEASED, "lease_deadline": None}, STOLEN) == []


def test_i2_a_renewal_only_pushes_the_deadline_out() -> None:
    assert check_step(LEASED, {**LEASED, "lease_deadline": LATER + timedelta(seconds=1)}) == []
    assert found(check_step(LEASED, {**LEASED, "lease_deadline": NOW})) == {"I2"}
    renewed = {**DONE, "lease_deadline": LATER + timedelta(seconds=1)}
    assert found(check_step(DONE, renewed)) == {"I2"}


@pytest.mark.parametrize(
    ("change", "invariant"),
    [
        ({"fence": 1}, "I4"),
        ({"leased_by": "B"}, "I3"),
        ({"attempts": 2}, "I3"),
        ({"state": "pending"}, "I3"),
    ],
)
def test_a_change_without_a_transition_is_found(change: dict[str, Any], invariant: str) -> None:
    assert invariant in found(check_step(LEASED, {**LEASED, **change}))


def test_i5_only_a_drain_refunds() -> None:
    def back(attempts: int, **facts: Any) -> dict[str, Any]:
        return job(ENQUEUE, CLAIM, {**BACK, "attempts": attempts, **facts}, state="pending")

    assert check_step(LEASED, back(0, reason="drain", refunded=True)) == []
    assert check_step(LEASED, back(1, reason="rejected")) == []
    assert found(check_step(LEASED, back(0, reason="rejected"))) == {"I5"}
    assert found(check_step(LEASED, back(1, reason="drain", refunded=True))) == {"I5"}
    assert found(check_step(LEASED, back(-1, reason="drain", refunded=True))) == {"I5"}
    assert check_step(LEASED, back(0, note="drain")) == []


def test_i3_an_abort_by_another_runner_is_found() -> None:
    after = job(ENQUEUE, CLAIM, {**BACK, "runner_id": "B"}, state="pending")
    assert found(check_step(LEASED, after)) == {"I3"}


def test_i4_a_job_is_replaced_by_a_rejudge_alone() -> None:
    assert check_step(LEASED, REJUDGED) == []
    assert "I4" in found(check_step(LEASED, {**REJUDGED, "replaced_ids": []}))
    renamed = job(ENQUEUE, CLAIM, {**BACK, "job_id": "jb_2"}, state="pending")
    assert "I4" in found(check_step(LEASED, renamed))


def test_i4_a_fence_that_goes_back_is_found_when_the_history_is_too_short_to_tell() -> None:
    before = job(entry("claim", 50, 1, runner_id="A"), state="leased", **LEASE)
    assert found(check_step(before, PENDING)) == {"I4"}


def test_a_submission_beside_its_job() -> None:
    assert check_pair(DONE, {"_id": "s1", "fence": 3, "status": 0}) == []
    assert check_pair(LEASED, {"_id": "s1", "fence": 0, "status": -1}) == []
    assert check_pair(DONE, None) == []
    assert found(check_pair(DONE, {"_id": "s1", "fence": 4, "status": 0})) == {"I4"}
    assert found(check_pair(DONE, {"_id": "s1", "fence": 3, "status": -1})) == {"I1"}
    dropped = {**DONE, "outcome": "dropped"}
    assert found(check_pair(dropped, {"_id": "s1", "fence": 3, "status": -1})) == {"I8"}
    marked = {**dropped, "mark_due": 3}
    assert check_pair(marked, {"_id": "s1", "fence": 3, "status": -1}) == []


def test_a_violation_reads_as_one_line() -> None:
    (violation,) = check_pair(DONE, {"_id": "s1", "fence": 4, "status": 0})
    assert str(violation) == "I4 s1: submission.fence 4 > job.fence 3"
