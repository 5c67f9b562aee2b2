"""How many database operations each endpoint costs, authentication included.

Counts, not times: they mean the same on every machine. What a request costs on the side of its
own work (the sweeps of whoever polls, `last_seen` every few seconds) is not in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import MongoClient

from mongo import user
from mongo.embedded import EmbeddedMongo
from tests.counting import Counter
from tests.factories import ADMIN_KEY, EPOCH, Service, result_body

TASKS = ((40, 5), (60, 5))
RESULT = result_body("AC AC AC AC AC", "AC AC AC WA AC")


@pytest.fixture(scope="module")
def counted(
    mongod: EmbeddedMongo, mongo_client: MongoClient[dict[str, Any]]
) -> Iterator[tuple[Service, Counter]]:
    with Counter.service(mongod, mongo_client, "operations") as made:
        yield made


@pytest.fixture
def counter(counted: tuple[Service, Counter]) -> Counter:
    return counted[1]


@pytest.fixture
def course(counted: tuple[Service, Counter]) -> Service:
    """Ada in one homework with problem 1, which has ten cases."""
    made, _ = counted
    for collection in made.database.list_collection_names():
        made.database[collection].delete_many({})
    made.clock.at = EPOCH
    user.ensure_admin_key(ADMIN_KEY, now=EPOCH)
    made.user("ada")
    made.problem(1, *TASKS)
    made.homework("hw", [1], ["ada"])
    # Of what polls do on the side, nothing is due.
    maintenance: Any = made.services.maintain
    maintenance._next = maintenance._next_tidy = datetime.max.replace(tzinfo=UTC)
    return made


def test_next_job_empty(course: Service, counter: Counter) -> None:
    runner = course.runner()
    with counter.counted() as sent:
        assert course.claim(runner) is None
    within(sent, 2)


def test_next_job_with_a_job(course: Service, counter: Counter) -> None:
    runner = course.runner()
    course.submit("ada", 1, "sn_1")
    with counter.counted() as sent:
        assert course.claim(runner) is not None
    within(sent, 5)


def test_heartbeat_with_eight_jobs(course: Service, counter: Counter) -> None:
    runner = course.runner()
    for number in range(8):
        course.submit("ada", 1, f"sn_{number}")
    held = [course.claim(runner)["job_id"] for _ in range(8)]
    with counter.counted() as sent:
        body = {"active_job_ids": held}
        course.ok("POST", runner.path("heartbeat"), key=runner.token, json=body)
    within(sent, 2)


def test_complete(course: Service, counter: Counter) -> None:
    runner = course.runner()
    course.submit("ada", 1, "sn_1")
    job_id = course.claim(runner)["job_id"]
    path = runner.path(f"jobs/{job_id}/complete")
    with counter.counted() as sent:
        course.ok("PUT", path, key=runner.token, json=RESULT)
    within(sent, 8)


def test_submit(course: Service, counter: Counter) -> None:
    key = course.keys["ada"]
    with counter.counted() as sent:
        assert course.submit_over_http(key, problem_id=1, language=2).status_code == 201
    within(sent, 4)


def within(sent: list[str], most: int) -> None:
    assert len(sent) <= most, "\n".join(sent)
