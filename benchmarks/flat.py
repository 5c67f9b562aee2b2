"""Comparing one act at growing sizes: shared by the rows on flatness.

Guarantees: the sizes take turns at every single act, so whatever else the machine does meanwhile
weighs on all of them; beside them runs one durable write, the floor of any of these acts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import MongoClient, WriteConcern
from pymongo.database import Database
from ulid import ULID

from benchmarks.bench import Bench
from benchmarks.queued import pending_job
from benchmarks.report import Line, line
from benchmarks.stats import interleaved, ratio, summarise
from dispatch import job as verbs
from dispatch.clock import system_clock
from dispatch.concerns import DURABLE
from dispatch.contract import HandedOut, TaskSpec
from dispatch.lease import LeaseRules
from dispatch.queue import Queue, open_queue
from dispatch.runner import Runner

ROW = "4 flatness"
WARM = 5
FLOOR = "floor: one durable write"
INSERTED_AT_ONCE = 10_000

Document = dict[str, Any]
TASK = TaskSpec(task_score=100, memory_limit_kib=65536, time_limit_ms=1000, case_count=10)
HANDED_OUT = HandedOut(tasks=(TASK,), testdata_sha256="0" * 64, checker="default")


class BareQueue:
    """A queue in a database of its own, filled by the row; without HTTP and without a domain."""

    def __init__(self, client: MongoClient[Document], name: str) -> None:
        self.raw: Database[Document] = client.get_database(name, write_concern=WriteConcern(1))
        self.queue: Queue = open_queue(client[name], rules=LeaseRules())
        self.queue.create_indexes()
        self.runner: Runner
        self.runner, _ = self.queue.runners.register(
            name="bench", languages=None, now=system_clock()
        )

    def fill(self, count: int, make: Callable[[int], Document]) -> None:
        """Insert that many jobs."""
        for first in range(0, count, INSERTED_AT_ONCE):
            numbers = range(first, min(count, first + INSERTED_AT_ONCE))
            self.raw["jobs"].insert_many([make(number) for number in numbers], ordered=False)

    def claim(self) -> tuple[str, float]:
        """Claim; return the submission's id and how long it took, in ms.

        Raises:
            RuntimeError: there was nothing to claim.
        """
        began = time.perf_counter()
        job = verbs.claim_next_job(
            self.queue, self.runner, hand_out=lambda _: HANDED_OUT, now=system_clock
        )
        took_ms = (time.perf_counter() - began) * 1000
        if job is None:
            raise RuntimeError("there was nothing to claim")
        return job.submission_id, took_ms


def fresh_job(ago_s: float = 0.0) -> Document:
    """Return a job that waits, since `ago_s` seconds ago."""
    at = datetime.now(UTC) - timedelta(seconds=ago_s)
    return pending_job(f"sn_{ULID()}", f"jb_{ULID()}", at)


def leased_job(deadline: datetime, runner_id: str) -> Document:
    """Return a job that is out under a lease."""
    return {
        **fresh_job(),
        "state": "leased",
        "attempts": 1,
        "fence": 2,
        "leased_by": runner_id,
        "lease_token": "token",
        "lease_deadline": deadline,
        "handed_out": HANDED_OUT.to_document(),
    }


def done_job() -> Document:
    """Return a job that ended long ago."""
    ended = datetime.now(UTC) - timedelta(days=1)
    job = leased_job(ended, f"rn_{ULID()}")
    return {**job, "state": "done", "fence": 3, "outcome": "verdict", "done_at": ended}


def durable_write(client: MongoClient[Document]) -> Callable[[], float]:
    """Return the floor: one small update on a majority's disks, in ms."""
    floor = client["bench_flat"].get_collection("floor", write_concern=DURABLE)

    def once() -> float:
        began = time.perf_counter()
        floor.update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
        return (time.perf_counter() - began) * 1000

    return once


def compare(
    bench: Bench, what: str, unit: str, acts: Mapping[int, Callable[[], float]], times: int
) -> Iterator[Line]:
    """Measure each act `times` times, in turns; sizes ascend, the first is what counts as flat."""
    bench.say(f"{what}: {', '.join(f'{size:,}' for size in acts)} {unit}")
    by_name: dict[str, Callable[[], float]] = {
        f"{size:,} {unit}": act for size, act in acts.items()
    }
    by_name[FLOOR] = durable_write(bench.mongo)
    took: dict[str, list[float]] = {name: [] for name in by_name}
    for number, name in enumerate(interleaved(list(by_name), WARM + times)):
        ms = by_name[name]()
        if number >= WARM * len(by_name):
            took[name].append(ms)
    summaries = {name: summarise(values) for name, values in took.items()}
    smallest = next(iter(summaries))
    for name, summary in summaries.items():
        compared = name not in (smallest, FLOOR)
        yield line(
            ROW,
            what,
            name,
            summary,
            ratio=ratio(summary.median, summaries[smallest].median) if compared else None,
            against="to the smallest" if compared else "",
        )
