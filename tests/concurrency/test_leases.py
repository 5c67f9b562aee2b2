"""I1 to I5 at the queue itself, without HTTP between: four processes, 32 runners, real races.

The number of jobs is JUDGE_CONCURRENCY_JOBS (5,000 for the long run).
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from pymongo import MongoClient

from dispatch.invariants import check_database
from dispatch.queue import open_queue
from tests.concurrency.lease_crowd import RULES, crowd

JOBS = int(os.environ.get("JUDGE_CONCURRENCY_JOBS", "1000"))
PROCESSES = 4
LIMIT_S = 120 + JOBS / 10


def _enter(database: Any) -> None:
    queue = open_queue(database, rules=RULES)
    queue.create_indexes()
    now = database.client.admin.command("hello")["localTime"]
    names = [f"s{number}" for number in range(JOBS)]
    database["submissions"].insert_many(
        {"_id": name, "fence": 0, "status": -1, "job_id": f"jb_{name}"} for name in names
    )
    for name in names:
        queue.jobs.enqueue(
            submission_id=name,
            job_id=f"jb_{name}",
            problem_id=1,
            language=0,
            priority=0,
            fence=1,
            now=now,
        )


@pytest.mark.timeout(LIMIT_S)
def test_four_processes_and_32_runners_land_every_job_once(
    mongo_uri: str, mongo_client: MongoClient[dict[str, Any]]
) -> None:
    database = mongo_client.get_database(mongo_uri.rpartition("/")[2].partition("?")[0])
    _enter(database)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=spawn) as pool:
        met = sum(pool.map(crowd, [mongo_uri] * PROCESSES, range(PROCESSES)), Counter())
    print(sorted(met.items()))

    jobs = list(database["jobs"].find())
    assert [job["_id"] for job in jobs if job["state"] != "done"] == []
    assert {job["outcome"] for job in jobs} == {"verdict"}
    assert len(jobs) == JOBS
    assert [str(violation) for violation in check_database(database, RULES)] == []
    for job in jobs:
        _check_leases(job)
    for submission in database["submissions"].find():
        assert submission["status"] == 0
        assert submission["counted"] == submission["result"]["value"]
    assert met["two leases under one wish"] == 0
    assert met["complete LANDED"] + met["late LANDED"] + met["resent LANDED"] == JOBS
    # What makes this a test: leases were lost, and their holders came back.
    assert met["late LEASE_LOST"] > 0
    assert met["leases"] > JOBS


def _check_leases(job: dict[str, Any]) -> None:
    """No lease was held twice at any moment: each ended before the next began."""
    holder: str | None = None
    taken_at = None
    landed = 0
    assert job["history"][0]["event"] == "enqueue", "the history is too short to tell"
    for entry in job["history"][1:]:
        match entry["event"]:
            case "claim":
                assert holder is None, job["history"]
                holder, taken_at = entry["runner_id"], entry["at"]
            case "reclaim":
                # Renewals only push the deadline out: it cannot have passed any earlier.
                assert taken_at is not None
                held_s = (entry["at"] - taken_at).total_seconds()
                assert held_s >= RULES.lease_ttl_s, job["history"]
                holder, taken_at = entry["runner_id"], entry["at"]
            case "abort":
                assert entry["runner_id"] == holder, job["history"]
                holder = None
            case "complete_begins" | "complete_restore" | "complete_ends":
                assert entry["runner_id"] == holder, job["history"]
                landed += entry["event"] == "complete_ends"
            case other:
                raise AssertionError(f"{other}: {job['history']}")
    assert landed == 1, job["history"]
