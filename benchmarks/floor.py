"""The least that a job costs: six durable writes through raw pymongo, with none of the guarantees.

The submission with its code, its job, the claim, the result, the counters, the end of the job. No
HTTP, no keys, no checks, no fences, no outputs, no standing, nothing recomputed.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

from pymongo import MongoClient, WriteConcern
from pymongo.database import Database

from benchmarks.load import sleep_until
from benchmarks.world import CODE

DURABLE = WriteConcern("majority", j=True)
CASES = [{"status": 0, "exec_time_ms": 12, "memory_usage_kib": 3456}] * 10


@dataclass(frozen=True, kw_only=True, slots=True)
class FloorShare:
    """One client's part. `sorted_claim`: take the head of the line instead of one's own job."""

    uri: str
    seconds: float
    username: str
    sorted_claim: bool


@cache
def _database(uri: str) -> Database[dict[str, Any]]:
    """Return a database; one client per process, as in the service."""
    client: MongoClient[dict[str, Any]] = MongoClient(uri, tz_aware=True)
    database = client.get_default_database(write_concern=DURABLE)
    database["jobs"].create_index([("state", 1), ("queued_at", 1)])
    database["users"].update_one({"_id": "warm"}, {"$set": {"n": 0}}, upsert=True)
    return database


def six_writes(share: FloorShare, start_at: float) -> list[tuple[float, float]]:
    """Do job after job for as long as the share says; return (its end, its duration), in s."""
    database = _database(share.uri)
    users = database["users"]
    users.update_one({"_id": share.username}, {"$set": {"n": 0}}, upsert=True)
    sleep_until(start_at)
    done: list[tuple[float, float]] = []
    while (began := time.monotonic()) < start_at + share.seconds:
        _one_job(database, share)
        ended = time.monotonic()
        done.append((ended, ended - began))
    return done


def _one_job(database: Database[dict[str, Any]], share: FloorShare) -> None:
    submissions, jobs = database["submissions"], database["jobs"]
    submission_id = secrets.token_hex(12)
    submission = {"_id": submission_id, "username": share.username, "status": -1, "code": CODE}
    submissions.insert_one(submission)
    jobs.insert_one({"_id": submission_id, "state": "pending", "queued_at": time.time()})
    wanted: dict[str, Any] = {"state": "pending"}
    if not share.sorted_claim:
        wanted["_id"] = submission_id
    claimed = jobs.find_one_and_update(
        wanted,
        {"$set": {"state": "leased", "leased_by": share.username}},
        sort=[("queued_at", 1)] if share.sorted_claim else None,
    )
    if claimed is None:
        raise RuntimeError("the floor lost a job")
    result = {"status": 0, "score": 100, "cases": CASES}
    submissions.update_one({"_id": claimed["_id"]}, {"$set": {"status": 0, "result": result}})
    database["users"].update_one({"_id": share.username}, {"$set": {"submission": 1}})
    jobs.update_one({"_id": claimed["_id"]}, {"$set": {"state": "done"}})
