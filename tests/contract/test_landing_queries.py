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


def test_no_query_of_a_landing_scans_a_collection(world: World, recorder: Recorder) -> None:
    found = explained(world, recorder, lambda: landing.finish_judging("ada", 1))
    assert len(found) >= 9
    for query, answer in found:
        assert "COLLSCAN" not in stages(answer), query


def test_the_counters_come_from_the_index_alone(world: World, recorder: Recorder) -> None:
    found = explained(world, recorder, lambda: recompute.recompute_user("ada"))
    ((_, answer),) = [one for one in found if "aggregate" in one[0]]
    assert statistics(answer)["totalDocsExamined"] == 0
    assert statistics(answer)["totalKeysExamined"] <= ADAS + 1
    assert recompute.user_counters("ada")["submission"] == ADAS


def test_a_standing_costs_the_student_s_submissions_to_that_problem(
    world: World, recorder: Recorder
) -> None:
    found = explained(world, recorder, lambda: landing.finish_judging("ada", 1))
    asked = [answer for query, answer in found if query.get("find") == "submissions"]
    assert len(asked) == 2  # her two homeworks
    for answer in asked:
        assert statistics(answer)["nReturned"] == ADAS_TO_ONE
        assert statistics(answer)["totalDocsExamined"] == ADAS_TO_ONE
        assert statistics(answer)["totalKeysExamined"] <= ADAS_TO_ONE + 1


def test_the_homeworks_found_are_the_student_s(world: World, recorder: Recorder) -> None:
    found = explained(world, recorder, lambda: recompute.homework_ids("ada", 1))
    ((_, answer),) = found
    assert statistics(answer)["totalDocsExamined"] == 2


def test_a_batch_costs_its_students_submissions_to_the_homework_s_problems(
    world: World, recorder: Recorder
) -> None:
    students = [f"other{number}" for number in range(10)]
    found = explained(world, recorder, lambda: recompute.recompute_standings("theirs1", students))
    for query, answer in found:
        assert "COLLSCAN" not in stages(answer), query
    ((_, answer),) = [one for one in found if one[0].get("find") == "submissions"]
    assert statistics(answer)["totalDocsExamined"] == 10 * (EACH // 3 + 1)
