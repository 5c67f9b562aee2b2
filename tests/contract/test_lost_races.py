"""What a caller is told when something came between its look and its write: it looks again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from pymongo import MongoClient

from dispatch import job as verbs
from dispatch.job import Contended, Ended
from dispatch.records import Job
from dispatch.runner import Runner
from dispatch.states import Outcome, State
from tests.contract.race import A, B, Race
from tests.stateful.bench import HANDED_OUT, Bench, result


@pytest.fixture(scope="module")
def bench(mongo_client: MongoClient[dict[str, Any]]) -> Iterator[Bench]:
    database = mongo_client["lost_races"]
    made = Bench(database)
    made.queue.create_indexes()
    yield made
    mongo_client.drop_database("lost_races")


@pytest.fixture
def race(bench: Bench) -> Race:
    bench.empty("jobs", "submissions")
    bench.submissions.insert_one({"_id": "s1", "fence": 0, "status": -1, "job_id": "jb_1"})
    return Race(bench)


Between = Callable[[], None]


def come_between(
    monkeypatch: pytest.MonkeyPatch, race: Race, edge: str, between: Between, times: int = 1
) -> None:
    """Have `between` happen just before the store's `edge` writes, the first `times` times."""
    real = getattr(race.store, edge)
    left = iter(range(times))

    def late(*args: Any, **options: Any) -> Any:
        if next(left, None) is not None:
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(race.store, edge, real)
                between()
        return real(*args, **options)

    monkeypatch.setattr(race.store, edge, late)


def steps(race: Race, *names: str) -> Between:
    def take() -> None:
        for name in names:
            race.do(name)

    return take


def complete(race: Race) -> Ended:
    return verbs.complete_job(
        race.bench.queue,
        A,
        "jb_1",
        result(1),
        process_result=race.bench.landing(lambda gate: None),
        now=race.now,
    )


def abort(race: Race, reason: str = "rejected") -> Ended:
    return verbs.abort_job(
        race.bench.queue,
        A,
        "jb_1",
        reason,
        process_result=race.bench.landing(lambda gate: None),
        now=race.now,
    )


@pytest.mark.parametrize(
    ("between", "told"),
    [
        (("rejudge",), Ended.REPLACED),
        (("lease over", "reclaim by B"), Ended.LEASE_LOST),
        (("lease over", "reclaim by A"), Ended.LANDED),
        (("drain",), Ended.LEASE_LOST),
        (("complete_begins",), Ended.IN_FLIGHT),
        (("complete_begins", "complete_restore"), Ended.LANDED),
        (("complete_begins", "landing over"), Ended.LANDED),
        (("complete_begins", "complete_ends"), Ended.ALREADY_LANDED),
        (("is swept up",), Ended.LEASE_LOST),
        (("is swept up", "exhaust_ends"), Ended.LEASE_LOST),
    ],
    ids=str,
)
def test_complete_looks_again(
    race: Race, monkeypatch: pytest.MonkeyPatch, between: tuple[str, ...], told: Ended
) -> None:
    race.do("claim")
    come_between(monkeypatch, race, "begin_complete", steps(race, *between))
    assert complete(race) is told
    submission = race.bench.submissions.find_one({"_id": "s1"})
    assert submission is not None
    assert (submission["status"] == 0) == (told is Ended.LANDED)


@pytest.mark.parametrize(
    ("between", "told"),
    [
        (("rejudge",), Ended.REPLACED),
        (("lease over", "reclaim by B"), Ended.LEASE_LOST),
        (("lease over", "reclaim by A"), Ended.EXHAUSTED),
        (("complete_begins",), Ended.IN_FLIGHT),
        (("complete_begins", "complete_restore"), Ended.GIVEN_BACK),
        (("complete_begins", "complete_ends"), Ended.LEASE_LOST),
        (("abort",), Ended.ALREADY_GIVEN_BACK),
        (("drain",), Ended.LEASE_LOST),
        (("at the limit",), Ended.EXHAUSTED),
    ],
    ids=str,
)
def test_abort_looks_again(
    race: Race, monkeypatch: pytest.MonkeyPatch, between: tuple[str, ...], told: Ended
) -> None:
    race.do("claim")
    come_between(monkeypatch, race, "give_back", steps(race, *between))
    assert abort(race) is told


def test_an_abort_at_the_limit_looks_again(race: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    race.do("claim")
    race.do("at the limit")
    come_between(monkeypatch, race, "begin_exhaust_by_abort", steps(race, "drain"))
    assert abort(race) is Ended.LEASE_LOST
    assert race.job.outcome is None


@pytest.mark.parametrize(
    ("way", "edge", "between", "kept"),
    [
        ((), "rejudge_pending", ("claim",), False),
        ((), "rejudge_pending", ("rejudge_pending",), True),
        (("claim",), "rejudge", ("drain",), True),
        (("claim",), "rejudge", ("complete_begins", "complete_ends"), False),
        (("claim", "complete_begins"), "rejudge", ("complete_ends",), False),
    ],
    ids=str,
)
def test_rejudge_looks_again(
    race: Race,
    monkeypatch: pytest.MonkeyPatch,
    way: tuple[str, ...],
    edge: str,
    between: tuple[str, ...],
    kept: bool,
) -> None:
    steps(race, *way)()
    come_between(monkeypatch, race, edge, steps(race, *between))
    left = rejudge(race)
    assert left == race.job
    assert (left.job_id == "jb_1") == kept
    assert left.mark_due == left.fence


def rejudge(race: Race) -> Job:
    left = verbs.rejudge_job(
        race.bench.queue,
        submission_id="s1",
        problem_id=1,
        language=0,
        submission_fence=0,
        now=race.now,
    )
    assert left is not None
    return left


def claim(race: Race, runner_id: str, claim_id: str | None = None) -> Job | None:
    now = race.now()
    runner = Runner(runner_id=runner_id, name="r", languages=None, registered_at=now, last_seen=now)
    return verbs.claim_next_job(
        race.bench.queue,
        runner,
        hand_out=lambda _: HANDED_OUT,
        now=race.now,
        claim_id=claim_id,
    )


def test_a_claim_that_lost_takes_the_next_in_line(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    race.now.advance(1)
    race.store.enqueue(
        submission_id="s2",
        job_id="jb_2",
        problem_id=1,
        language=0,
        priority=0,
        fence=1,
        now=race.now(),
    )
    come_between(monkeypatch, race, "claim", steps(race, "claim by B"))
    taken = claim(race, A)
    assert taken is not None
    assert taken.submission_id == "s2"
    assert race.job.leased_by == B


def test_i3_one_wish_sent_twice_at_once_is_one_lease(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    race.now.advance(1)
    race.store.enqueue(
        submission_id="s2",
        job_id="jb_2",
        problem_id=1,
        language=0,
        priority=0,
        fence=1,
        now=race.now(),
    )
    first: list[Job | None] = []
    come_between(monkeypatch, race, "claim", lambda: first.append(claim(race, A, claim_id="wish")))
    second = claim(race, A, claim_id="wish")
    assert first == [second]
    assert second is not None
    held = race.bench.database["jobs"].count_documents({"state": "leased"})
    assert held == 1


def test_i1_a_result_whose_submission_is_gone_is_dropped(race: Race) -> None:
    race.do("claim")
    race.bench.submissions.delete_one({"_id": "s1"})
    assert complete(race) is Ended.LANDED
    assert race.job.outcome is Outcome.DROPPED
    # Said again, its answer having been lost, it is answered the same.
    before = race.raw()
    assert complete(race) is Ended.ALREADY_LANDED
    assert race.raw() == before


def test_i1_a_job_is_open_until_its_result_stands(race: Race) -> None:
    race.do("claim")
    seen = []

    def look(_gate: str) -> None:
        seen.append((race.job.state, race.job.outcome))

    verbs.complete_job(
        race.bench.queue,
        A,
        "jb_1",
        result(1),
        process_result=race.bench.landing(look),
        now=race.now,
    )
    assert seen == [(State.LANDING, None)] * 3
    assert (race.job.state, race.job.outcome) == (State.DONE, Outcome.VERDICT)


@pytest.mark.parametrize(
    ("call", "edge", "between"),
    [
        (complete, "begin_complete", ("complete_begins", "complete_restore")),
        (partial(abort, reason="drain"), "give_back", ("complete_begins", "complete_restore")),
        (rejudge, "rejudge", ("complete_begins", "complete_restore")),
    ],
    ids=["complete", "abort", "rejudge"],
)
def test_looking_again_is_bounded(
    race: Race,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[Race], Any],
    edge: str,
    between: tuple[str, ...],
) -> None:
    race.do("claim")
    meanwhile = steps(race, *between)
    come_between(monkeypatch, race, edge, meanwhile, times=1000)
    with pytest.raises(Contended):
        call(race)
    assert race.job.state is State.LEASED
