"""I6: operations beside a landing, in every interleaving of their database calls.

Each operation is stopped before each of its calls while the other runs some or all of its own; at
the end every counter and standing equals a recompute. Then each guard is taken away, and some
interleaving must show that it was needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from pymongo import MongoClient

from dispatch.invariants import check_database
from mongo import after_landing, homework, landing, recompute, submission
from mongo import together as reads
from tests.concurrency.interleaving import (
    Operation,
    Schedule,
    Turnstile,
    every_interleaving,
    mutated,
)
from tests.concurrency.landing_pairs import PAIRS, THREES, Together, course
from tests.faults.landing_world import World, connected
from tests.faults.ledger import wrong_totals

pytestmark = pytest.mark.usefixtures("blobs_apart")

CHANGING = ("users", "homeworks", "student_status", "submissions", "jobs")


@pytest.fixture(scope="module")
def turnstile() -> Turnstile:
    return Turnstile()


@pytest.fixture(scope="module")
def world(
    mongod: Any, mongo_client: MongoClient[dict[str, Any]], turnstile: Turnstile
) -> Iterator[World]:
    # What is proven is the order of writes, not their durability: the disk need not be awaited.
    uri = mongod.uri_for("interleavings")
    with connected(uri, mongo_client, turnstile, w=1, journal=False) as made:
        yield made
        mongo_client.drop_database("interleavings")


def interleave(
    world: World,
    turnstile: Turnstile,
    together: Together,
    stopping: Sequence[int],
    ending: Sequence[int],
) -> Iterator[tuple[Schedule, list[Any]]]:
    """Yield every schedule with what was wrong after it."""
    world.empty()
    course(world)
    together.prepare(world)
    before, at = world.snapshot(*CHANGING), world.clock()

    def prepare() -> Sequence[Operation]:
        world.restore(before, at=at)
        return [partial(operation, world) for operation in together.operations]

    for schedule in every_interleaving(turnstile, stopping, ending, prepare):
        yield schedule, wrong(world)


def wrong(world: World) -> list[Any]:
    return [*check_database(world.raw, world.queue.rules), *wrong_totals(world.raw)]


def orders(pairs: Sequence[Together]) -> list[Any]:
    return [
        pytest.param(pair, order, id=f"{pair.name}-{order[0]}")
        for pair in pairs
        for order in ([(0, 1)] if pair.alike else [(0, 1), (1, 0)])
    ]


@pytest.mark.parametrize(("together", "order"), orders(PAIRS))
def test_i6_every_interleaving_of_two(
    world: World, turnstile: Turnstile, together: Together, order: Sequence[int]
) -> None:
    """Each stops once, anywhere: one reads, the other reads, the one writes, the other writes."""
    count = 0
    for schedule, found in interleave(world, turnstile, together, order, order):
        assert found == [], schedule
        together.after(world)
        count += 1
    print(f"{together.name}: {count} interleavings")
    assert count >= 4


def test_i6_every_interleaving_of_two_that_read_one_by_one(
    world: World, turnstile: Turnstile
) -> None:
    """What is read at once is read in an order that would be right for reads apart, too."""
    with mutated(reads, APART):
        for together in PAIRS:
            if together.name in ("same_problem", "dates", "removal", "new_homework"):
                for schedule, found in interleave(world, turnstile, together, (0, 1), (0, 1)):
                    assert found == [], (together.name, schedule)


@pytest.mark.parametrize("together", THREES, ids=lambda together: together.name)
def test_i6_every_interleaving_of_three(
    world: World, turnstile: Turnstile, together: Together
) -> None:
    """Two stop once, anywhere; the third runs whole between their halves. They read one by one."""
    count = 0
    with mutated(reads, APART):
        for schedule, found in interleave(world, turnstile, together, (0, 1), (2, 0, 1)):
            assert found == [], schedule
            count += 1
    print(f"{together.name}: {count} interleavings")
    assert count >= 49


# -- every guard is needed -----------------------------------------------------------------

APART = ("if isinstance(first.collection, Collection):", "if False:")
"""Reads one by one what is read at once: so that something can come in between."""
IN_ORDER = (
    "return first.collection.find_one(first.filter, first.fields), [_find(look) for look in others]"
)
FIRST_LAST = (
    "found = [_find(look) for look in others]; "
    "return first.collection.find_one(first.filter, first.fields), found"
)
BACKWARDS = "[_find(look) for look in reversed(others)][::-1]"
VERSIONS = 'versions = {kept["_id"]: kept.get("version", 0) for kept in found}'
FRESH = "fresh = standings(settings_for(homework_id, usernames), usernames)"
MARK_GUARD = (
    '        {"_id": submission_id, "fence": engine.at_most(fence - 1)},\n'
    '        {"$set": {"status": Verdict.PENDING'
)
RESULT_GUARD = 'filter_ = {"_id": submission_id, "fence": engine.at_most(fence), **guard}'
BATCH_KEYS = "    keys = [status_id(homework_id, username) for username in usernames]\n"
CLEARED = '    engine.homeworks().update_one(\n        {"_id": homework_id, "version": engine'

MUTANTS: dict[str, tuple[ModuleType, list[tuple[str, str]], str]] = {
    "counters written whatever the version": (
        recompute,
        [('{"_id": username, "version": engine.stored(version)},', '{"_id": username},')],
        "other_problem",
    ),
    "counters added up before the version is read": (
        reads,
        [APART, (IN_ORDER, FIRST_LAST)],
        "same_problem",
    ),
    "counters' version never raised": (
        recompute,
        [('"version": version + 1', '"version": version')],
        "other_problem",
    ),
    "entry written whatever the version": (
        after_landing,
        [('{"_id": key, "version": engine.stored(read.versions[key])},', '{"_id": key},')],
        "same_problem",
    ),
    "entry computed before the version is read": (
        reads,
        [APART, ("[_find(look) for look in others]", BACKWARDS)],
        "same_problem",
    ),
    "settings read before the entry's version": (
        reads,
        [APART, ("[_find(look) for look in others]", BACKWARDS)],
        "dates",
    ),
    "an edit leaves the versions": (
        recompute,
        [('                "$inc": {"version": 1},\n            },', "            },")],
        "dates",
    ),
    "an edit writes whatever the version": (
        recompute,
        [('{"_id": key, "version": engine.stored(versions.get(key, 0))}', '{"_id": key}')],
        "new_homework",
    ),
    "an edit reads the settings before the versions": (
        recompute,
        [
            (BATCH_KEYS, f"    {FRESH}\n{BATCH_KEYS}"),
            (f"    {VERSIONS}\n    {FRESH}\n", f"    {VERSIONS}\n"),
        ],
        "two_edits",
    ),
    "those who leave are forgotten": (
        homework,
        [('"departed": sorted(departed)', '"departed": []')],
        "removal_without_documents",
    ),
    "those who leave are deleted": (
        recompute,
        [
            (
                CLEARED,
                "    engine.student_statuses().delete_many("
                '{"homework_id": homework_id, "username": {"$in": homework.get("departed", [])}})\n'
                f"{CLEARED}",
            )
        ],
        "removal_without_documents",
    ),
    "a result written whatever its fence": (
        landing,
        [(RESULT_GUARD, 'filter_ = {"_id": submission_id, **guard}')],
        "a_slow_landing_and_a_newer_one",
    ),
    "a judge error written whatever has landed": (
        landing,
        [('guard={"$nor": [real_result_of_job]}', "guard={}")],
        "a_judge_error_beside_its_job_s_result",
    ),
    "a mark written whatever its fence": (
        submission,
        [(MARK_GUARD, MARK_GUARD.replace(', "fence": engine.at_most(fence - 1)', ""))],
        "rejudge_judged_at_once",
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_i6_no_guard_is_there_for_nothing(world: World, turnstile: Turnstile, mutant: str) -> None:
    """Without it, some interleaving ends wrong."""
    module, changes, name = MUTANTS[mutant]
    (together,) = [pair for pair in PAIRS if pair.name == name]
    with mutated(module, *changes):
        for order in ((0, 1), (1, 0)):
            for _, found in interleave(world, turnstile, together, order, order):
                if found or not holds(world, together):
                    return
    raise AssertionError("not noticed")


def holds(world: World, together: Together) -> bool:
    try:
        together.after(world)
    except AssertionError:
        return False
    return True
