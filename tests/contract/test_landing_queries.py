"""What a landing asks the database: by indexes alone, whatever the class and the archive.

The queries are those that were really sent, explained by the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from mongo import landing, recompute
from mongo.embedded import EmbeddedMongo
from tests.factories import EPOCH
from tests.faults.landing_world import World, connected

OTHERS, EACH = 60, 50
ADAS, ADAS_TO_ONE = 400, 12
QUERIES = ("find", "aggregate", "findAndModify", "update", "distinct")

Command = dict[str, Any]


class Recorder(CommandListener):
    """Keeps the queries that were sent."""

    def __init__(self) -> None:
        self.queries: list[Command] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in QUERIES:
            self.queries.append(dict(event.command))

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def world(
    mongod: EmbeddedMongo, mongo_client: MongoClient[dict[str, Any]], recorder: Recorder
) -> Iterator[World]:
    with connected(mongod.uri_for("explained"), mongo_client, recorder) as made:
        names = ["ada", *(f"other{number}" for number in range(OTHERS))]
        made.user(*names)
        for problem_id in (1, 2, 3):
            made.problem(problem_id)
        made.raw["submissions"].insert_many(archive(names))
        made.homework("hw", [1, 2], names)
        made.homework("hers", [1], ["ada"])
        for number in range(20):
            made.homework(f"theirs{number}", [1], names[1:])
        yield made
        mongo_client.drop_database("explained")


def archive(names: list[str]) -> Iterator[dict[str, Any]]:
    """Judged submissions: of ada's a dozen to problem 1, of everybody else's a third."""
    for username in names:
        for number in range(ADAS if username == "ada" else EACH):
            to_one = number < ADAS_TO_ONE if username == "ada" else number % 3 == 0
            yield {
                "_id": f"{username}-{number}",
                "username": username,
                "problem_id": 1 if to_one else 2 + number % 2,
                "language": 2,
                "code_blob": "bl_none",
                "submitted_at": EPOCH + timedelta(minutes=number),
                "status": number % 3,
                "job_id": f"jb_{username}-{number}",
                "fence": 2,
                "result": {"status": number % 3, "score": 0, "tasks": []},
                "counted": {"status": number % 3, "score": 0},
            }


def explained(
    world: World, recorder: Recorder, act: Callable[[], object]
) -> list[tuple[Command, dict[str, Any]]]:
    """Return each query of `act` with what the server says of it."""
    recorder.queries.clear()
    act()
    sent = recorder.queries[:]
    return [
        (query, world.raw.command("explain", explainable(query), verbosity="executionStats"))
        for query in sent
    ]


def explainable(query: Command) -> Command:
    kept = {
        name: value
        for name, value in query.items()
        if name not in ("lsid", "txnNumber", "$clusterTime", "$db", "writeConcern", "ordered")
    }
    if "aggregate" in query:
        return {**kept, "cursor": {}}
    if "updates" in query:
        return {**kept, "updates": query["updates"][:1]}  # the others are alike
    return kept


def statistics(answer: Any) -> dict[str, Any]:
    """The execution statistics, wherever this kind of query has them."""
    if "executionStats" in answer:
        return answer["executionStats"]
    return answer["stages"][0]["$cursor"]["executionStats"]


def stages(plan: Any) -> set[str]:
    """The names of all stages below."""
    if isinstance(plan, list):
        return set().union(*map(stages, plan))
    if not isinstance(plan, dict):
        return set()
    found = {plan["stage"]} if isinstance(plan.get("stage"), str) else set()
    return found.union(*(stages(value) for value in plan.values()))


def lookups(answer: Any) -> dict[str, dict[str, Any]]:
    """What each lookup of an explained aggregation cost, by its collection."""
    return {stage["$lookup"]["from"]: stage for stage in answer["stages"] if "$lookup" in stage}


def test_no_query_of_a_landing_scans_a_collection(world: World, recorder: Recorder) -> None:
    found = explained(world, recorder, lambda: landing.finish_judging("ada", 1))
    assert [next(iter(query.items())) for query, _ in found] == [
        ("aggregate", "users"),
        ("update", "users"),
        ("update", "student_status"),
    ]
    for query, answer in found:
        assert "COLLSCAN" not in stages(answer), query
    for name, cost in lookups(found[0][1]).items():
        assert int(cost["collectionScans"]) == 0, name


def test_versions_are_read_before_what_is_computed_from_them(
    world: World, recorder: Recorder
) -> None:
    """The order of the lookups is the order of the reads: else an edit in between is missed."""
    recorder.queries.clear()
    landing.finish_judging("ada", 1)
    query = recorder.queries[0]
    assert query["aggregate"] == "users"
    looked_up = [stage["$lookup"]["from"] for stage in query["pipeline"] if "$lookup" in stage]
    assert looked_up == ["student_status", "homeworks", "submissions"]


def test_all_counters_come_from_the_index_alone(world: World, recorder: Recorder) -> None:
    found = explained(world, recorder, lambda: recompute.recompute_user("ada"))
    ((_, answer),) = [one for one in found if "aggregate" in one[0]]
    assert statistics(answer)["totalDocsExamined"] == 0
    assert statistics(answer)["totalKeysExamined"] <= ADAS + 1
    assert recompute.user_counters("ada")["submission"] == ADAS


def test_a_landing_costs_the_student_s_submissions_to_that_problem(
    world: World, recorder: Recorder
) -> None:
    """Not one of them is fetched, and not one key of the rest of her history is looked at."""
    recompute.recompute_user("ada")
    found = explained(world, recorder, lambda: landing.finish_judging("ada", 1))
    assert [query for query, _ in found if query.get("aggregate") == "submissions"] == []
    cost = lookups(found[0][1])
    assert int(cost["submissions"]["totalDocsExamined"]) == 0
    assert int(cost["submissions"]["totalKeysExamined"]) <= ADAS_TO_ONE + 1
    assert int(cost["homeworks"]["totalDocsExamined"]) == 2
    assert int(cost["student_status"]["totalDocsExamined"]) == 2
    counters = world.raw["users"].find_one({"_id": "ada"})
    assert counters is not None
    assert counters["submission"] == ADAS


def test_a_batch_costs_its_students_submissions_to_the_homework_s_problems(
    world: World, recorder: Recorder
) -> None:
    students = [f"other{number}" for number in range(10)]
    found = explained(world, recorder, lambda: recompute.recompute_standings("theirs1", students))
    for query, answer in found:
        assert "COLLSCAN" not in stages(answer), query
    ((_, answer),) = [one for one in found if one[0].get("find") == "submissions"]
    assert statistics(answer)["totalDocsExamined"] == 0
    assert statistics(answer)["nReturned"] == 10 * (EACH // 3 + 1)
    assert statistics(answer)["totalKeysExamined"] <= 10 * (EACH // 3 + 3)
