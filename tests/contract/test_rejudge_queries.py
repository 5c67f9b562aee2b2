"""What a bulk rejudge asks of the archive: by indexes, each submission once, in bounded steps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pymongo import MongoClient

from mongo import rejudging
from mongo.embedded import EmbeddedMongo
from tests.factories import EPOCH
from tests.faults.landing_world import World, connected

DATABASE = "collected"
USERS = [f"user{number}" for number in range(20)]
EACH = 30
PLANNING = 60
"""Documents that the planner's trials of other indexes may look at."""


@pytest.fixture(scope="module")
def world(mongod: EmbeddedMongo, mongo_client: MongoClient[dict[str, Any]]) -> Iterator[World]:
    with connected(mongod.uri_for(DATABASE), mongo_client) as made:
        made.user(*USERS)
        for problem_id in (1, 2):
            made.problem(problem_id)
        made.raw["submissions"].insert_many(
            {
                "_id": f"{username}-{number}",
                "username": username,
                "problem_id": 1 if number < 2 else 2,
                "language": 2,
                # Everybody's at the same moments: ids decide between them.
                "submitted_at": EPOCH + timedelta(minutes=number // 2),
                "status": 0,
                "job_id": f"jb_{username}-{number}",
                "fence": 2,
                "result": {"status": 0, "score": 100, "judged_by": f"rn_{number % 3}"},
            }
            for username in USERS
            for number in range(EACH)
        )
        yield made
        mongo_client.drop_database(DATABASE)


def rejudge(**filter_: Any) -> dict[str, Any]:
    return {"filter": filter_, "created_at": EPOCH + timedelta(days=1), "collected": None}


@pytest.mark.parametrize(
    ("filter_", "fitting"),
    [({"problem_id": 1}, 40), ({"username": "user3"}, 30), ({"runner_id": "rn_0"}, 200)],
)
@pytest.mark.parametrize("batch", [7, 1_000])
def test_each_submission_is_collected_once(
    world: World, monkeypatch: pytest.MonkeyPatch, filter_: dict[str, Any], fitting: int, batch: int
) -> None:
    monkeypatch.setattr(rejudging, "COLLECT_BATCH", batch)
    at, collected = rejudge(**filter_), []
    while found := list(rejudging._uncollected(at)):
        collected += [submission["_id"] for submission in found]
        at["collected"] = [found[-1]["submitted_at"], found[-1]["_id"]]
    assert len(collected) == len(set(collected)) == fitting


@pytest.mark.parametrize(
    ("filter_", "fitting"), [({"problem_id": 1}, 40), ({"username": "user3"}, 30)]
)
def test_collecting_looks_at_what_fits_alone(
    world: World, filter_: dict[str, Any], fitting: int
) -> None:
    explained = rejudging._uncollected(rejudge(**filter_)).explain()
    assert "'stage': 'SORT'" not in str(explained["queryPlanner"]["winningPlan"])
    assert explained["executionStats"]["totalDocsExamined"] <= fitting + PLANNING


def test_what_an_older_version_left_is_collected_anew(world: World) -> None:
    at = {**rejudge(problem_id=1), "collected": "user3-1"}
    assert len(list(rejudging._uncollected(at))) == 40
