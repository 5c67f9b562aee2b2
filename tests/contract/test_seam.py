"""The seam between `complete_job` and the callable that lands: at least once, and in full.

What the queue promises the callable, pinned with callables that know nothing of the domain; and
what the domain makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import AutoReconnect

from dispatch import job as verbs
from dispatch.contract import InvalidResult, Landed
from dispatch.job import Ended
from dispatch.records import Job
from dispatch.states import State
from mongo import recompute
from tests.factories import results
from tests.faults.landing_world import World, connected

LANDING_S, LEASE_S = 10, 30


class Boom(Exception):
    """Stands for whatever a landing may raise."""


@pytest.fixture
def world(mongo_uri: str, mongo_client: MongoClient[dict[str, Any]]) -> Iterator[World]:
    with connected(mongo_uri, mongo_client) as made:
        made.user("ada")
        made.problem(1)
        made.homework("hw", [1], ["ada"])
        made.submit("s1", "ada", 1)
        yield made


@pytest.fixture
def lease(world: World) -> Job:
    job = world.claim()
    assert job is not None
    return job


def complete(world: World, lease: Job, land: Callable[..., Landed]) -> Ended:
    return verbs.complete_job(
        world.queue,
        lease.leased_by or "",
        lease.job_id,
        results("AC"),
        process_result=land,
        now=world.clock,
        lease_token=lease.lease_token,
    )


class Naive:
    """Counts by incrementing, as nobody should; fails between its two writes, the first time."""

    def __init__(self, world: World) -> None:
        self.books = world.raw["books"]
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **call: Any) -> Landed:
        self.calls.append(call)
        self.books.update_one({"_id": "ada"}, {"$inc": {"submission": 1}}, upsert=True)
        if len(self.calls) == 1:
            raise Boom
        self.books.update_one({"_id": "ada"}, {"$push": {"ids": "s1"}})
        return Landed.VERDICT


def test_complete_retry_after_partial_write_reinvokes_in_full(world: World, lease: Job) -> None:
    """Not from where it stopped: the side effects of the first part happen twice."""
    naive = Naive(world)
    with pytest.raises(Boom):
        complete(world, lease, naive)
    assert complete(world, lease, naive) is Ended.LANDED
    assert naive.books.find_one() == {"_id": "ada", "submission": 2, "ids": ["s1"]}


def test_i6_the_domain_s_landing_makes_them_happen_once(
    world: World, lease: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counterpart: the same failure between two writes, and nothing is counted twice."""
    real, failed = recompute.write_counters, []

    def fails_once(username: str, *rest: Any) -> bool:
        written = real(username, *rest)
        if not failed:
            failed.append(username)
            raise Boom
        return written

    monkeypatch.setattr(recompute, "write_counters", fails_once)
    with pytest.raises(Boom):
        complete(world, lease, world.land)
    assert complete(world, lease, world.land) is Ended.LANDED
    (user,) = world.raw["users"].find()
    assert (user["submission"], user["AC_submission"], user["AC_problem_ids"]) == (1, 1, [1])
    (kept,) = world.raw["student_status"].find()
    assert kept["problems"]["1"]["submissionIds"] == ["s1"]
    assert world.wrong() == []


def test_the_callable_is_told_the_same_under_a_newer_fence(world: World, lease: Job) -> None:
    naive = Naive(world)
    with pytest.raises(Boom):
        complete(world, lease, naive)
    complete(world, lease, naive)
    first, second = naive.calls
    assert first.pop("fence") < second.pop("fence") == world.job("s1").fence
    assert (
        first
        == second
        == {
            "preview": False,
            "rejudge_id": None,
            "runner_id": lease.leased_by,
            "submission_id": "s1",
            "job_id": lease.job_id,
            "tasks": results("AC"),
            "handed_out": lease.handed_out,
        }
    )


def test_a_resend_of_what_has_landed_calls_nothing(world: World, lease: Job) -> None:
    naive = Naive(world)
    with pytest.raises(Boom):
        complete(world, lease, naive)
    assert complete(world, lease, naive) is Ended.LANDED
    assert complete(world, lease, naive) is Ended.ALREADY_LANDED
    assert len(naive.calls) == 2


# -- complete_restore ----------------------------------------------------------------------


def raising(error: BaseException) -> Callable[..., Landed]:
    def land(**call: Any) -> Landed:
        raise error

    return land


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (Boom("why"), "Boom"),
        (AutoReconnect("gone"), "AutoReconnect"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (InvalidResult("tasks: 2 given"), "invalid result"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_complete_restore_leases_the_job_to_its_owner_again(
    world: World, lease: Job, error: BaseException, note: str
) -> None:
    world.clock.advance(7)
    with pytest.raises(type(error)) as raised:
        complete(world, lease, raising(error))
    assert raised.value is error
    job = world.job("s1")
    assert (job.state, job.leased_by, job.lease_token) == (
        State.LEASED,
        lease.leased_by,
        lease.lease_token,
    )
    assert job.lease_deadline is not None
    assert (job.lease_deadline - world.clock()).total_seconds() == LEASE_S
    assert (job.landing_deadline, job.attempts, job.handed_out) == (None, 1, lease.handed_out)
    assert job.fence == lease.fence + 1  # the landing's own, which nobody gets again
    assert (job.history[-1]["event"], job.history[-1]["note"]) == ("complete_restore", note)
    assert world.wrong() == []


def test_complete_restore_that_fails_too_leaves_the_landing_to_its_deadline(
    world: World, lease: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The landing's own error is told; a resend waits for the deadline, and then lands in full."""
    naive = Naive(world)
    with monkeypatch.context() as patch:
        patch.setattr(type(world.queue.jobs), "restore", raising_method(AutoReconnect("gone")))
        with pytest.raises(Boom):
            complete(world, lease, naive)
    assert world.job("s1").state is State.LANDING
    world.clock.advance(LANDING_S - 1)
    world.heartbeat(lease)
    assert complete(world, lease, naive) is Ended.IN_FLIGHT
    assert len(naive.calls) == 1
    world.clock.advance(1)
    assert complete(world, lease, naive) is Ended.LANDED
    assert len(naive.calls) == 2


def raising_method(error: Exception) -> Callable[..., None]:
    def method(self: object, *args: object, **kwargs: object) -> None:
        raise error

    return method


def test_complete_restore_leaves_a_job_alone_that_a_rejudge_replaced(
    world: World, lease: Job
) -> None:
    def land(**call: Any) -> Landed:
        world.rejudge("s1")
        raise Boom

    with pytest.raises(Boom):
        complete(world, lease, land)
    job = world.job("s1")
    assert (job.state, job.leased_by) == (State.PENDING, None)
    assert job.job_id != lease.job_id
    assert complete(world, lease, land) is Ended.REPLACED


def test_complete_restore_leaves_a_lease_alone_that_another_runner_took(
    world: World, lease: Job
) -> None:
    """The landing took longer than its lease; it may neither end nor give back what it lost."""

    def land(**call: Any) -> Landed:
        world.clock.advance(LEASE_S + 1)
        assert world.claim(world.other_runner) is not None
        raise Boom

    with pytest.raises(Boom):
        complete(world, lease, land)
    job = world.job("s1")
    assert (job.state, job.leased_by) == (State.LEASED, world.other_runner.runner_id)
    assert complete(world, lease, land) is Ended.LEASE_LOST


def test_a_judge_error_whose_landing_fails_is_landed_in_full_by_a_later_sweep(
    world: World, lease: Job
) -> None:
    """Nobody holds it: it stays in landing until its deadline, and no poll fails because of it."""
    for _ in range(2):
        world.clock.advance(LEASE_S + 1)
        assert world.claim() is not None
    calls: list[dict[str, Any]] = []

    def land(**call: Any) -> Landed:
        calls.append(call)
        if len(calls) == 1:
            raise Boom
        return world.land(**call)

    def sweep() -> int:
        return verbs.sweep(world.queue, process_result=land, now=world.clock)

    world.clock.advance(LEASE_S + 1)
    assert sweep() == 0
    assert world.job("s1").state is State.LANDING
    assert sweep() == 0
    assert len(calls) == 1
    world.clock.advance(LANDING_S)
    assert sweep() == 1
    assert world.job("s1").state is State.DONE
    assert [call["tasks"] for call in calls] == [None, None]
    assert calls[0]["fence"] < calls[1]["fence"]
    assert world.wrong() == []
