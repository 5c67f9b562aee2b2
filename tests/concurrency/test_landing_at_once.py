"""I6: a whole class lands at once from several processes, beside rejudges and an admin who edits.

Some landings fail half way and are resent, some leases are let run out. At the end nothing is
pending, and every counter and standing equals a recompute. `LANDING_S=60` keeps the rejudges and
edits coming for a minute.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from pymongo import MongoClient

from dispatch import job as verbs
from dispatch.clock import ServerClock
from dispatch.job import Ended
from dispatch.lease import LeaseRules
from mongo import check, engine, landing
from mongo.embedded import EmbeddedMongo
from tests.faults.landing_world import World, quiet
from tests.faults.ledger import wrong_totals

PROCESSES = 4
STUDENTS = [f"student{number}" for number in range(200)]
PROBLEMS = (1, 2, 3, 4, 5)
LANDING_S = float(os.environ.get("LANDING_S", "5"))
SETTLED_S_MAX = 150
FAILING, LAPSING = 0.03, 0.005
RULES = LeaseRules(lease_ttl_s=4, landing_ttl_s=2, max_attempts=4, retry_pauses_s=(), give_up_s=0)
VERDICTS = ("AC", "AC", "WA", "CE", "TLE", "RE", "OLE")

_spawn = multiprocessing.get_context("spawn")


class Interrupted(Exception):
    """Stands for whatever may go wrong in the middle of a landing."""


@contextmanager
def world_of_its_own(uri: str) -> Iterator[World]:
    """This process's connection, on the server's clock."""
    quiet()
    with MongoClient[dict[str, Any]](uri, tz_aware=True) as raw:
        yield World(uri, raw, clock=ServerClock(raw), rules=RULES)
        engine.disconnect()


def judge_until(uri: str, seed: int, stop: Any) -> None:
    """One process: claim, land, resend what failed, sweep now and then."""
    chance = random.Random(seed)
    real = landing.finish_judging

    def failing(username: str, problem_id: int) -> None:
        if chance.random() < FAILING:
            raise Interrupted
        real(username, problem_id)
        if chance.random() < FAILING:
            raise Interrupted

    landing.finish_judging = failing
    with world_of_its_own(uri) as world:
        while not stop.is_set():
            job = world.claim()
            if job is None:
                world.sweep()
                time.sleep(0.05)
            elif chance.random() >= LAPSING:
                land(world, job, chance.choice(VERDICTS))


def land(world: World, job: Any, verdict: str) -> None:
    """Report until the answer is final, as a runner does."""
    for _ in range(10):
        try:
            ended = world.complete(job, verdict)
        except (Interrupted, verbs.Contended):
            continue
        if ended is not Ended.IN_FLIGHT:
            return


def edit_until(world: World, chance: random.Random, until: float) -> int:
    """An admin changes dates, students and problems; return how often."""
    now = world.clock()
    edits = 0
    while time.monotonic() < until:
        edits += 1
        world.homework(
            chance.choice(("all", "half")),
            chance.sample(PROBLEMS, chance.randint(1, 5)),
            chance.sample(STUDENTS, chance.randint(100, 200)),
            start=now - timedelta(days=chance.randint(0, 4)),
            end=now - timedelta(days=chance.randint(-1, 0)),
            penalty="score=score*(0.7**overtime)",
        )
    return edits


def rejudge_until(world: World, ids: list[str], chance: random.Random, until: float) -> int:
    rejudges = 0
    while time.monotonic() < until:
        world.rejudge(chance.choice(ids))
        rejudges += 1
        time.sleep(0.02)
    return rejudges


def hand_in(world: World) -> list[str]:
    """Everybody has handed in to every problem, within the last three days."""
    now, ids = world.clock(), []
    counters = {"submission": 0, "AC_submission": 0, "AC_problem_ids": [], "version": 0}
    world.raw["users"].insert_many([{"_id": name, **counters} for name in STUDENTS])
    for problem_id in PROBLEMS:
        world.problem(problem_id)
    for homework_id in ("all", "half"):
        world.homework(homework_id, PROBLEMS, STUDENTS, start=now - timedelta(days=2), end=now)
    documents = []
    for number, username in enumerate(STUDENTS):
        for problem_id in PROBLEMS:
            ids.append(f"s{number}-{problem_id}")
            documents.append(
                {
                    "_id": ids[-1],
                    "username": username,
                    "problem_id": problem_id,
                    "language": 2,
                    "code_blob": "bl_none",
                    "submitted_at": now - timedelta(minutes=7 * len(documents) % 4320),
                    "status": -1,
                    "job_id": f"jb_{ids[-1]}",
                    "fence": 0,
                    "result": None,
                    "counted": None,
                }
            )
    world.raw["submissions"].insert_many(documents)
    for one in documents:
        world.domain_queue.enqueue(
            submission_id=one["_id"],
            job_id=one["job_id"],
            problem_id=one["problem_id"],
            language=2,
            submission_fence=0,
        )
    return ids


def settle(world: World) -> None:
    """Wait until no job is open."""
    until = time.monotonic() + SETTLED_S_MAX
    while world.raw["jobs"].find_one({"state": {"$ne": "done"}}, {"_id": 1}) is not None:
        if time.monotonic() > until:
            raise AssertionError(
                f"open: {list(world.raw['jobs'].find({'state': {'$ne': 'done'}}))}"
            )
        time.sleep(0.1)


@pytest.mark.timeout(600)
def test_i6_a_whole_class_lands_at_once(mongod: EmbeddedMongo, mongo_uri: str) -> None:
    with world_of_its_own(mongo_uri) as world:
        ids = hand_in(world)
        stop = _spawn.Event()
        judges = [
            _spawn.Process(target=judge_until, args=(mongo_uri, seed, stop))
            for seed in range(PROCESSES)
        ]
        for judge in judges:
            judge.start()
        counts: dict[str, int] = {}
        until = time.monotonic() + LANDING_S
        beside = threading.Thread(
            target=lambda: counts.update(
                rejudges=rejudge_until(world, ids, random.Random(1), until)
            )
        )
        beside.start()
        counts["edits"] = edit_until(world, random.Random(2), until)
        beside.join()
        try:
            settle(world)
        finally:
            stop.set()
            for judge in judges:
                judge.join(30)
                judge.kill()
        world.maintain()
        assert [judge.exitcode for judge in judges] == [0] * PROCESSES
        assert counts["edits"] >= 1
        assert counts["rejudges"] >= 10
        assert world.raw["submissions"].find_one({"status": -1}) is None
        assert world.wrong() == []
        assert wrong_totals(world.raw) == []
        looked_at = check.scope()
        print(f"{len(ids)} submissions, {counts}, {len(looked_at)} totals")
        assert {item.homework_id for item in looked_at} == {None, "all", "half"}
