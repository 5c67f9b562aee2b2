"""I6 and I8: a landing that fails at any write, and is finished, equals one that never failed.

For each of its writes the cable is cut just before it or just after the server applied it, for
that write alone or for good; then the runner resends, or its lease runs out and another finishes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from dispatch.records import Job
from mongo import after_landing, engine
from mongo.embedded import EmbeddedMongo
from tests.faults.cable import Cable, Cut, strung
from tests.faults.landing_scenarios import JUDGE_ERROR, LAST_ATTEMPT, S1, SCENARIOS, Scenario
from tests.faults.landing_world import Snapshot, World, connected

INLINE_WRITES_MIN = 5
"""Begin, result, counters, standing, end."""


@pytest.fixture(scope="module")
def cable() -> Cable:
    return Cable()


@pytest.fixture(scope="module")
def course(
    mongod: EmbeddedMongo, mongo_client: MongoClient[dict[str, Any]], cable: Cable
) -> Iterator[World]:
    uri = mongod.uri_for("cut")
    with connected(uri, mongo_client, cable) as made, strung(cable):
        yield made
        mongo_client.drop_database("cut")


@pytest.fixture
def world(course: World) -> World:
    course.empty()
    return course


def undisturbed(
    world: World, cable: Cable, scenario: Scenario
) -> tuple[Snapshot, Job, Any, list[Cut]]:
    """Land once without a fault; return (all before it, the lease, what is left, the cuts)."""
    scenario.prepare(world)
    before, lease = world.snapshot(), scenario.lease(world)
    with cable.watched():
        assert scenario.act(world, lease)
    writes = len(cable.writes)
    assert writes >= scenario.writes_min, cable.writes
    world.maintain()
    assert world.wrong() == []
    return before, lease, world.digest(), cuts(writes)


def cuts(writes: int) -> list[Cut]:
    return [
        Cut(write=write, after=after, for_good=for_good)
        for write in range(1, writes + 1)
        for after in (False, True)
        for for_good in (False, True)
    ]


def disturbed(world: World, cable: Cable, scenario: Scenario, lease: Job, cut: Cut) -> None:
    with cable.watched(cut), suppress(PyMongoError):
        scenario.act(world, lease)
    # The cut was reached: else the case would prove nothing.
    assert len(cable.writes) >= cut.write, cable.writes


@pytest.mark.parametrize("finish", ["resend", "hand_over"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.usefixtures("blobs_apart")
def test_i6_cut_at_every_write(world: World, cable: Cable, scenario: Scenario, finish: str) -> None:
    check_cut_at_every_write(world, cable, scenario, finish)


@pytest.mark.parametrize("finish", ["resend", "hand_over"])
@pytest.mark.parametrize(
    "scenario", [scenario for scenario in SCENARIOS if scenario.tasks], ids=lambda kept: kept.name
)
def test_i6_cut_at_every_write_with_outputs_kept_inline(
    world: World, cable: Cable, scenario: Scenario, finish: str
) -> None:
    inline = replace(scenario, writes_min=INLINE_WRITES_MIN)
    check_cut_at_every_write(world, cable, inline, finish)
    assert not any("blobs" in write for write in cable.writes)


def check_cut_at_every_write(world: World, cable: Cable, scenario: Scenario, finish: str) -> None:
    before, lease, expected, every = undisturbed(world, cable, scenario)
    at = world.clock()
    for cut in every:
        world.restore(before, at=at)
        disturbed(world, cable, scenario, lease, cut)
        getattr(scenario, finish)(world, lease)
        world.maintain()
        assert world.digest() == expected, cut
        assert world.wrong() == [], cut


@pytest.mark.usefixtures("blobs_apart")
def test_i6_the_last_attempt_cut_at_every_write(world: World, cable: Cable) -> None:
    """A result that was stored stands; without one the submission ends as a judge error."""
    JUDGE_ERROR.prepare(world)
    assert JUDGE_ERROR.act(world, JUDGE_ERROR.lease(world))
    judge_error = world.digest()
    world.empty()
    before, lease, verdict, every = undisturbed(world, cable, LAST_ATTEMPT)
    at = world.clock()
    stored = set()
    for cut in every:
        world.restore(before, at=at)
        disturbed(world, cable, LAST_ATTEMPT, lease, cut)
        kept = engine.submissions().find_one({"_id": S1})
        assert kept is not None
        stored.add(kept["counted"] is not None)
        LAST_ATTEMPT.hand_over(world, lease)
        world.maintain()
        assert world.digest() == (judge_error if kept["counted"] is None else verdict), cut
        assert world.wrong() == [], cut
    assert stored == {False, True}


@pytest.mark.usefixtures("blobs_apart")
def test_the_harness_sees_an_increment(
    world: World, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A landing that counted instead of recomputing would be caught: the harness can fail."""

    def increment(username: str, *_: object) -> bool:
        engine.users().update_one({"_id": username}, {"$inc": {"submission": 1}})
        return True

    monkeypatch.setattr(after_landing, "_write_counters", increment)
    scenario = SCENARIOS[0]
    scenario.prepare(world)
    before, lease, at = world.snapshot(), scenario.lease(world), world.clock()
    assert scenario.act(world, lease)
    expected = world.digest()
    differing = []
    for cut in cuts(scenario.writes_min):
        world.restore(before, at=at)
        disturbed(world, cable, scenario, lease, cut)
        scenario.resend(world, lease)
        world.maintain()
        if world.digest() != expected:
            differing.append(cut.write)
    assert 5 in differing
