"""Row 2: claim and complete of jobs queued beforehand, four workers, beside other queues.

Ours claims and lands over HTTP: outputs, result, counters and one homework each time. The others
finish no-ops.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from typing import Any

from ulid import ULID

from benchmarks import client
from benchmarks.bench import Bench
from benchmarks.client import Connection, Refused, RunnerKey
from benchmarks.load import sleep_until
from benchmarks.peers.found import PEERS
from benchmarks.report import Line
from benchmarks.servers import Missing, Service, service
from benchmarks.stats import interleaved, rate_per_s, ratio
from benchmarks.world import PROBLEM, STUDENTS, World, furnish

ROW = "2 drain a full queue"
OURS = "judge-dispatch, landed over HTTP"
WORKERS = 4
INSERTED_AT_ONCE = 5_000
LOOKS = 5
LOOK_EVERY_S = 0.02

Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainShare:
    """One runner's part: all that it gets."""

    port: int
    runner: RunnerKey


def drain(share: DrainShare, start_at: float) -> list[float]:
    """Claim and complete until the queue is empty; return when each was done.

    Raises:
        Refused: a result was not taken.
    """
    chance = random.Random(share.runner.runner_id)
    ends: list[float] = []
    with Connection(share.port) as connection:
        connection.request("GET", "/healthz", "none")
        sleep_until(start_at)
        while (job := _look(connection, share.runner)) is not None:
            status = client.complete(connection, share.runner, job, chance.random() < 0.5)
            if status != 204:
                raise Refused(f"complete: {status}")
            ends.append(time.monotonic())
    return ends


def _look(connection: Connection, runner: RunnerKey) -> dict[str, Any] | None:
    """Ask a few times: one "nothing" may only mean that others were faster at the head."""
    for _ in range(LOOKS):
        if (job := client.next_job(connection, runner)) is not None:
            return job
        time.sleep(LOOK_EVERY_S)
    return None


def seed(bench: Bench, database: str, jobs: int) -> None:
    """Put submissions and their jobs into the database, as if they had been handed in."""
    fast = bench.mongo[database]
    blob = fast["blobs.files"].find_one({}, {"_id": 1}) or {"_id": "bl_none"}
    began = datetime.now(UTC) - timedelta(milliseconds=jobs)
    for first in range(0, jobs, INSERTED_AT_ONCE):
        numbers = range(first, min(jobs, first + INSERTED_AT_ONCE))
        ids = [(f"sn_{ULID()}", f"jb_{ULID()}") for _ in numbers]
        at = [began + timedelta(milliseconds=number) for number in numbers]
        fast["submissions"].insert_many(
            [
                submission(pair[0], pair[1], f"student{number % STUDENTS}", blob["_id"], moment)
                for number, pair, moment in zip(numbers, ids, at, strict=True)
            ]
        )
        fast["jobs"].insert_many(
            [pending_job(pair[0], pair[1], moment) for pair, moment in zip(ids, at, strict=True)]
        )


def submission(
    submission_id: str, job_id: str, username: str, blob_id: str, at: datetime
) -> Document:
    """Return a submission that waits."""
    return {
        "_id": submission_id,
        "username": username,
        "problem_id": PROBLEM,
        "language": 2,
        "code_blob": blob_id,
        "submitted_at": at,
        "status": -1,
        "job_id": job_id,
        "fence": 0,
    }


def pending_job(submission_id: str, job_id: str, at: datetime) -> Document:
    """Return its job."""
    entry = {"event": "enqueue", "at": at, "job_id": job_id, "fence": 1, "attempts": 0}
    return {
        "_id": submission_id,
        "job_id": job_id,
        "state": "pending",
        "problem_id": PROBLEM,
        "language": 2,
        "priority": 0,
        "queued_at": at,
        "fence": 1,
        "attempts": 0,
        "drain_refunds": 0,
        "replaced_ids": [],
        "history": [entry],
    }


def run(bench: Bench) -> Iterator[Line]:
    """Measure in rounds, the contenders taking turns; who is not there is left out, loudly."""
    database = "bench_queued"
    jobs = bench.sizes.queued_jobs
    with service(bench.mongod.uri_for(database), bench.folder) as api:
        world = furnish(api, WORKERS)
        notes: dict[str, str] = {}
        contenders: dict[str, Callable[[], list[float]]] = {
            OURS: lambda: _ours(bench, api, world, database, notes),
            **dict(_peers(bench, jobs)),
        }
        rates: dict[str, list[float]] = {who: [] for who in contenders}
        for who in interleaved(list(contenders), bench.sizes.queued_rounds):
            bench.say(f"{jobs} jobs, {who}")
            if who in notes and who != OURS:
                continue
            try:
                ends = contenders[who]()
            except Missing as missing:
                notes[who] = f"LEFT OUT: {missing}"
                bench.say(f"*** {who} {notes[who]}")
                continue
            if len(ends) != jobs:
                raise RuntimeError(f"{who} did {len(ends)} of {jobs} jobs")
            rates[who].append(rate_per_s(ends))
    ours = median(rates[OURS])
    for who, measured in rates.items():
        yield Line(
            row=ROW,
            case=f"{WORKERS} workers, {jobs:,} jobs",
            who=who,
            rate_per_s=median(measured) if measured else None,
            ratio=ratio(ours, median(measured)) if who != OURS and measured else None,
            against="ours to this" if who != OURS and measured else "",
            note=notes.get(who, ""),
        )


def _ours(
    bench: Bench, api: Service, world: World, database: str, notes: dict[str, str]
) -> list[float]:
    seed(bench, database, bench.sizes.queued_jobs)
    shares = [DrainShare(port=world.port, runner=runner) for runner in world.runners[:WORKERS]]
    measured = bench.crowd.run(drain, shares)
    notes[OURS] = f"clients {measured.cores:.2f} cores; {api.processes} API processes"
    return measured.results


def _peers(bench: Bench, jobs: int) -> Iterator[tuple[str, Callable[[], list[float]]]]:
    arguments = ("drain", "--jobs", str(jobs), "--workers", str(WORKERS))
    for peer in PEERS:
        yield f"{peer.name}, no-ops", partial(peer.measure, bench, *arguments)
