"""Every edge of the queue, with something else coming between its reader's look and its write.

The guard is in the write: whoever acts on what it read a moment ago changes nothing when the job
has moved on. One line of the table is one race.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pymongo import MongoClient

from dispatch.records import Job
from dispatch.retry import LeaseEnd
from dispatch.states import EDGES, State
from tests.contract.race import A, B, Race, give_back
from tests.stateful.bench import HANDED_OUT, RULES, Bench


@pytest.fixture(scope="module")
def bench(mongo_client: MongoClient[dict[str, Any]]) -> Iterator[Bench]:
    database = mongo_client["edges"]
    made = Bench(database)
    made.queue.create_indexes()
    yield made
    mongo_client.drop_database("edges")


@pytest.fixture
def race(bench: Bench) -> Race:
    bench.empty("jobs")
    return Race(bench)


# edge | the way to where it may be taken | what then comes between
RACES = """
claim by A       | -                                     | claim by B
claim by A       | -                                     | claim by B, drain by B
claim by A       | -                                     | rejudge_pending
reclaim by B     | claim, lease over                     | renew
reclaim by B     | claim, lease over                     | reclaim by A
reclaim by B     | claim, lease over                     | reclaim by A, lease over
reclaim by B     | claim, lease over                     | at the limit
reclaim by B     | claim, lease over                     | drain
reclaim by B     | claim, lease over                     | complete_begins
reclaim by B     | claim, lease over                     | rejudge
reclaim by B     | claim, complete_begins, lease over    | complete_restore, lease over, reclaim
reclaim by B     | claim, complete_begins, lease over    | complete_ends
complete_begins  | claim                                 | lease over, reclaim by B
complete_begins  | claim                                 | lease over, reclaim by A
complete_begins  | claim                                 | drain
complete_begins  | claim                                 | drain, claim by A
complete_begins  | claim                                 | complete_begins
complete_begins  | claim                                 | complete_begins, complete_restore
complete_begins  | claim                                 | complete_begins, complete_ends
complete_begins  | claim                                 | complete_begins, landing over
complete_begins  | claim                                 | rejudge
complete_begins  | claim                                 | at the limit, last abort
complete_begins  | claim, complete_begins, landing over  | complete_begins
complete_begins  | claim, complete_begins, landing over  | complete_ends
complete_ends    | claim, complete_begins                | complete_restore
complete_ends    | claim, complete_begins                | complete_restore, complete_begins
complete_ends    | claim, complete_begins                | landing over, complete_begins
complete_ends    | claim, complete_begins                | lease over, reclaim by B
complete_ends    | claim, complete_begins                | is swept up
complete_ends    | claim, complete_begins                | rejudge
complete_restore | claim, complete_begins                | complete_ends
complete_restore | claim, complete_begins                | landing over, complete_begins
complete_restore | claim, complete_begins                | is swept up
complete_restore | claim, complete_begins                | rejudge
drain            | claim                                 | complete_begins
drain            | claim                                 | complete_begins, complete_restore
drain            | claim                                 | lease over, reclaim by B
drain            | claim                                 | lease over, reclaim by A
drain            | claim                                 | drain
drain            | claim                                 | drain, claim by A
drain            | claim                                 | rejudge
abort            | claim                                 | complete_begins
abort            | claim                                 | complete_begins, complete_restore
abort            | claim                                 | lease over, reclaim by B
abort            | claim                                 | lease over, reclaim by A
abort            | claim                                 | at the limit
abort            | claim                                 | abort
abort            | claim                                 | rejudge
exhaust_begins   | used up                               | renew
exhaust_begins   | used up                               | exhaust_begins
exhaust_begins   | used up                               | swept twice
exhaust_begins   | used up                               | drain
exhaust_begins   | used up                               | complete_begins
exhaust_begins   | used up                               | complete_begins, lease over
exhaust_begins   | used up                               | rejudge
last abort       | claim, at the limit                   | drain
last abort       | claim, at the limit                   | complete_begins
last abort       | claim, at the limit                   | complete_begins, complete_restore
last abort       | claim, at the limit                   | last abort
last abort       | claim, at the limit                   | rejudge
exhaust_ends     | used up, exhaust_begins               | lease over, exhaust_begins
exhaust_ends     | used up, exhaust_begins               | rejudge
exhaust_ends     | used up, exhaust_begins               | exhaust_ends
rejudge_pending  | -                                     | claim
rejudge_pending  | -                                     | claim, drain
rejudge_pending  | -                                     | rejudge_pending
rejudge          | claim                                 | drain
rejudge          | claim                                 | complete_begins
rejudge          | claim                                 | complete_begins, complete_restore
rejudge          | claim                                 | lease over, reclaim by B
rejudge          | claim                                 | rejudge
rejudge          | claim, complete_begins                | complete_ends
rejudge          | claim, complete_begins, complete_ends | rejudge
cancel           | -                                     | claim
cancel           | -                                     | rejudge_pending
cancel           | claim                                 | complete_begins
cancel           | claim                                 | complete_begins, complete_restore
cancel           | claim                                 | rejudge
cancel           | claim, complete_begins                | complete_ends
cancel           | claim                                 | cancel
complete_begins  | claim                                 | cancel
complete_ends    | claim, complete_begins                | cancel
complete_restore | claim, complete_begins                | cancel
exhaust_ends     | used up, exhaust_begins               | cancel
claim by A       | -                                     | cancel
move_to_front    | -                                     | claim
move_to_front    | -                                     | claim, drain
move_to_front    | -                                     | rejudge_pending
move_to_front    | -                                     | cancel
repair           | -                                     | claim
repair           | -                                     | rejudge_pending
repair           | -                                     | repair
repair           | claim                                 | complete_begins
repair           | claim                                 | drain
repair           | claim                                 | lease over, reclaim by B
repair           | claim, complete_begins                | complete_ends
repair           | claim, complete_begins                | complete_restore
repair           | claim, complete_begins, complete_ends | rejudge
repair           | claim, complete_begins, complete_ends | repair
claim by A       | -                                     | repair
complete_begins  | claim                                 | repair
complete_ends    | claim, complete_begins                | repair
complete_restore | claim, complete_begins                | repair
drain            | claim                                 | repair
rejudge          | claim, complete_begins, complete_ends | repair
cancel           | claim                                 | repair
exhaust_ends     | used up, exhaust_begins               | repair
"""


def races() -> list[Any]:
    found = []
    for line in RACES.strip().splitlines():
        edge, way, between = (column.strip() for column in line.split("|"))
        steps = [] if way == "-" else way.split(", ")
        name = f"{edge} after {way}, meanwhile {between}"
        found.append(pytest.param(edge, steps, between.split(", "), id=name))
    return found


@pytest.mark.parametrize(("edge", "way", "between"), races())
def test_i3_an_edge_acts_on_the_job_as_it_was_read(
    race: Race, edge: str, way: list[str], between: list[str]
) -> None:
    for step in way:
        race.do(step)
    read = race.job
    for step in between:
        race.do(step)
    before = race.raw()
    assert race.take(edge, read) is None
    assert race.raw() == before


@pytest.mark.parametrize(
    ("edge", "way"), sorted({(e.values[0], tuple(e.values[1])) for e in races()})
)
def test_an_edge_is_taken_when_nothing_comes_between(
    race: Race, edge: str, way: tuple[str, ...]
) -> None:
    for step in way:
        race.do(step)
    assert race.take(edge, race.job) is not None


def test_every_edge_is_raced() -> None:
    raced = {race.values[0].partition(" by ")[0] for race in races()}
    raced = {"abort" if name == "drain" else name for name in raced} - {"last abort"}
    assert raced == {edge.event for edge in EDGES}


@pytest.mark.parametrize("edge", ["complete_begins", "drain", "abort", "last abort"])
@pytest.mark.parametrize(("runner_id", "token"), [(B, None), (B, "token1"), (A, "token0")])
def test_i3_only_the_owner_acts(race: Race, edge: str, runner_id: str, token: str) -> None:
    race.do("claim")
    if edge == "last abort":
        race.do("at the limit")
    before = race.raw()
    store, job = race.store, race.job
    asked: dict[str, Any] = {"runner_id": runner_id, "lease_token": token, "now": race.now()}
    acts: dict[str, Callable[[], Job | None]] = {
        "complete_begins": lambda: store.begin_complete(job, **asked),
        "drain": lambda: give_back(store, job, LeaseEnd.DRAIN, asked),
        "abort": lambda: give_back(store, job, LeaseEnd.REJECTED, asked),
        "last abort": lambda: store.begin_exhaust_by_abort(job, **asked, end=LeaseEnd.REJECTED),
    }
    assert acts[edge]() is None
    assert race.raw() == before


def test_i3_only_the_owner_renews_and_only_what_it_holds(race: Race) -> None:
    assert race.store.renew(A, ["jb_1"], race.now()) == 0
    race.do("claim")
    deadline = race.job.lease_deadline
    race.now.advance(1)
    assert race.store.renew(B, ["jb_1"], race.now()) == 0
    assert race.store.renew(A, ["jb_2"], race.now()) == 0
    assert race.job.lease_deadline == deadline
    assert race.store.renew(A, ["jb_1", "jb_2"], race.now()) == 1
    race.do("complete_begins")
    landing_deadline = race.job.landing_deadline
    race.now.advance(1)
    assert race.store.renew(A, ["jb_1"], race.now()) == 1
    assert race.job.landing_deadline == landing_deadline
    race.do("complete_ends")
    race.now.advance(1)
    before = race.raw()
    assert race.store.renew(A, ["jb_1"], race.now()) == 0
    assert race.raw() == before


def test_i2_a_deadline_that_is_absent_has_passed(race: Race) -> None:
    race.do("claim")
    race.bench.database["jobs"].update_one({"_id": "s1"}, {"$unset": {"lease_deadline": ""}})
    assert [job.submission_id for job in race.store.orphans(race.now(), [0], [], 5)] == ["s1"]
    race.do("reclaim by B")


def test_i2_a_lease_is_over_at_its_deadline_and_not_before(race: Race) -> None:
    race.do("claim")
    race.now.advance(RULES.lease_ttl_s - 0.001)
    assert race.store.orphans(race.now(), [0], [], 5) == []
    assert race.take("reclaim by B", race.job) is None
    race.now.advance(0.001)
    assert len(race.store.orphans(race.now(), [0], [], 5)) == 1
    race.do("reclaim by B")


def test_i3_a_landing_can_be_begun_again_at_its_deadline_and_not_before(race: Race) -> None:
    race.do("claim")
    race.do("complete_begins")
    race.now.advance(RULES.landing_ttl_s - 0.001)
    assert race.take("complete_begins", race.job) is None
    race.now.advance(0.001)
    race.do("complete_begins")


def test_i4_a_bulk_rejudge_takes_a_job_once(race: Race) -> None:
    def rejudge(edge: Callable[..., Job | None], **given: Any) -> Job | None:
        return edge(race.job, priority=-10, rejudge_id="bulk", now=race.now(), **given)

    assert rejudge(race.store.rejudge_pending) is not None
    assert rejudge(race.store.rejudge_pending) is None
    race.do("claim")
    assert rejudge(race.store.rejudge, job_id="jb_2") is None
    race.do("rejudge")
    race.do("claim")
    assert rejudge(race.store.rejudge, job_id="jb_2") is not None


@pytest.mark.parametrize(("asked", "kept"), [(5, 5), (-10, 0)])
def test_a_rejudged_job_that_waits_keeps_its_place_and_the_better_priority(
    race: Race, asked: int, kept: int
) -> None:
    queued_at = race.job.queued_at
    race.now.advance(1)
    left = race.store.rejudge_pending(race.job, priority=asked, rejudge_id=None, now=race.now())
    assert left is not None
    assert (left.job_id, left.priority, left.queued_at) == ("jb_1", kept, queued_at)


@pytest.mark.parametrize(
    ("way", "kept"),
    [
        (("claim",), 0),
        (("claim", "complete_begins"), 0),
        (("claim", "complete_begins", "complete_ends"), -10),
    ],
    ids=["leased", "landing", "done"],
)
def test_a_bulk_rejudge_does_not_put_what_is_being_judged_last(
    race: Race, way: tuple[str, ...], kept: int
) -> None:
    for step in way:
        race.do(step)
    race.now.advance(1)
    left = race.store.rejudge(
        race.job, job_id="jb_2", priority=-10, rejudge_id="bulk", now=race.now()
    )
    assert left is not None
    assert (left.priority, left.queued_at) == (kept, race.now())


@pytest.mark.parametrize("second", ["rejudge_pending", "rejudge"])
def test_i4_a_mark_does_not_stand_for_a_newer_rejudge(race: Race, second: str) -> None:
    race.do("rejudge_pending")
    first = race.job
    if second == "rejudge":
        race.do("claim")
    race.do(second)
    race.store.marked("s1", job_id=first.job_id, fence=first.fence)
    assert [job.mark_due for job in race.store.marks_due(5)] == [race.job.fence]
    race.store.marked("s1", job_id=race.job.job_id, fence=race.job.fence)
    assert race.store.marks_due(5) == []


def test_i4_replaced_ids_are_kept_for_a_while(race: Race) -> None:
    replaced = []
    for _ in range(9):
        race.do("claim")
        replaced.append(race.job.job_id)
        race.do("rejudge")
    known = [race.store.confirmed(job_id)[1] for job_id in replaced]
    assert known == [False] + [True] * 8
    assert race.store.confirmed(race.job.job_id) == (race.job, False)


@pytest.mark.parametrize("edge", ["claim", "reclaim"])
def test_i5_a_claim_that_saw_other_attempts_is_refused(race: Race, edge: str) -> None:
    """An abort moves them under the same fence; what was seen of it a failover may have undone."""
    if edge == "reclaim":
        race.do("claim")
        race.do("lease over")
    seen = replace(race.job, attempts=race.job.attempts + 1)
    taken = getattr(race.store, edge)(
        seen,
        runner_id=B,
        lease_token="another",
        claim_id=None,
        handed_out=HANDED_OUT,
        now=race.now(),
    )
    assert taken is None
    assert race.job.leased_by != B


def test_i7_a_second_job_is_not_entered(race: Race) -> None:
    race.do("claim")
    before = race.raw()
    again: dict[str, Any] = {
        "problem_id": 2,
        "language": 1,
        "priority": 3,
        "fence": 1,
        "now": race.now(),
    }
    assert not race.store.enqueue(submission_id="s1", job_id="jb_1", **again)
    assert not race.store.enqueue(submission_id="s1", job_id="jb_2", **again)
    assert race.raw() == before


def test_the_history_is_bounded(race: Race) -> None:
    for _ in range(12):
        race.do("claim")
        race.do("rejudge")
    assert len(race.raw()["history"]) == 20
    assert race.raw()["history"][-1]["event"] == "rejudge"


def test_a_document_that_lacks_newer_fields_is_read(race: Race) -> None:
    race.bench.database["jobs"].replace_one(
        {"_id": "s1"},
        {
            "_id": "s1",
            "job_id": "jb_1",
            "state": "leased",
            "fence": 1,
            "problem_id": 1,
            "language": 0,
            "queued_at": race.now(),
            "leased_by": A,
            "lease_token": "t",
        },
    )
    job = race.job
    assert (job.state, job.fence, job.attempts) == (State.LEASED, 1, 0)
    race.do("reclaim by B")
    assert (race.job.fence, race.job.attempts, race.job.leased_by) == (2, 1, B)


def test_an_edge_is_not_taken_from_where_it_does_not_start(race: Race) -> None:
    race.do("claim")
    race.do("complete_begins")
    with pytest.raises(ValueError, match="does not leave"):
        race.store.rejudge(
            replace(race.job, state=State.PENDING),
            job_id="jb_2",
            priority=0,
            rejudge_id=None,
            now=race.now(),
        )
