"""What one landing costs, by the size of the archive, of the user's history and of the class.

`python -m benchmarks.landing_scale [--archive N ...] [--landings N]` prints one table. A landing is
the whole of `complete_job`: the job's begin, the outputs, the result, the counters, the standing,
the replaced outputs' removal, the job's end. It is measured beside its floor, one durable write on
the same server in the same run. The server is one of its own, in a temporary folder.
"""

from __future__ import annotations

import argparse
import io
import itertools
import random
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from pymongo import WriteConcern
from rich.console import Console
from rich.progress import track
from rich.table import Table

import logs
from dispatch import job as verbs
from dispatch.clock import system_clock
from dispatch.concerns import DURABLE
from dispatch.contract import CaseResult, TaskSpec, Verdict
from dispatch.lease import LeaseRules
from dispatch.queue import Queue, open_queue
from dispatch.runner import Runner
from domain_queue import DomainQueue
from mongo import engine, homework, problem, storage, submission
from mongo.embedded import EmbeddedMongo
from mongo.homework import HomeworkSettings
from mongo.landing import process_result

ARCHIVES = (10_000, 1_000_000)
HISTORIES = (10, 1_000, 20_000)
CLASSES = (30, 5_000)
PROBLEMS = 100
"""Histories are spread over so many problems; the landing is to one of them."""
LANDINGS = 25
WARM_UPS = 3
INSERTED_AT_ONCE = 10_000

Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One measurement; durations in ms."""

    archive: int
    history: int
    class_size: int
    median_ms: float
    p90_ms: float


class Bench:
    """The service's parts on a server, without HTTP."""

    def __init__(self, uri: str) -> None:
        self.database = engine.connect(uri)
        self.queue: Queue = open_queue(self.database, rules=LeaseRules())
        self.domain_queue = DomainQueue(self.queue, system_clock)
        self.queue.create_indexes()
        engine.create_indexes()
        storage.create_indexes()
        self._verdicts = itertools.cycle((Verdict.AC, Verdict.WA))
        self.runner: Runner
        self.runner, _ = self.queue.runners.register(
            name="bench", languages=None, now=system_clock()
        )
        self._fast = self.database.client.get_database(
            self.database.name, write_concern=WriteConcern(1, j=False)
        )

    def insert(self, name: str, documents: Iterator[Document], total: int, what: str) -> None:
        """Insert in batches, without waiting for the disk."""
        batches = range(0, total, INSERTED_AT_ONCE)
        console = Console(stderr=True)
        for _ in track(batches, what, console=console, disable=not console.is_terminal):
            batch = list(itertools.islice(documents, INSERTED_AT_ONCE))
            self._fast[name].insert_many(batch, ordered=False)

    def land(self, submission_id: str) -> float:
        """Have the submission judged afresh; return how long its landing took, in ms."""
        submission.rejudge(submission_id, queue=self.domain_queue)
        lease = verbs.claim_next_job(
            self.queue, self.runner, hand_out=problem.hand_out, now=system_clock
        )
        if lease is None or lease.submission_id != submission_id:
            raise RuntimeError("the queue holds something else")
        case = CaseResult(
            status=next(self._verdicts),
            exit_code=0,
            stdout="42\n",
            stderr="",
            exec_time_ms=12,
            memory_usage_kib=3456,
        )
        began = time.perf_counter()
        verbs.complete_job(
            self.queue,
            self.runner.runner_id,
            lease.job_id,
            [[case]],
            process_result=partial(process_result, now=system_clock),
            now=system_clock,
            lease_token=lease.lease_token,
        )
        return (time.perf_counter() - began) * 1000

    def durable_write(self) -> float:
        """Return how long one small update on a majority's disks takes, in ms."""
        floor = self.database.get_collection("floor", write_concern=DURABLE)
        began = time.perf_counter()
        floor.update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
        return (time.perf_counter() - began) * 1000


# -- what there is -------------------------------------------------------------------------


def username(history: int, class_size: int) -> str:
    return f"user-{history}-{class_size}"


def submissions(
    prefix: str, users: Sequence[str], count: int, now: datetime, chance: random.Random
) -> Iterator[Document]:
    """Judged submissions, spread over users, problems and a year."""
    for number in range(count):
        status = chance.choice((0, 0, 1, 1, 2, 3, 5))
        job_id = f"jb_{prefix}{number}"
        yield {
            "_id": f"sn_{prefix}{number}",
            "username": users[number % len(users)],
            "problem_id": 1 + number // len(users) % PROBLEMS,
            "language": 2,
            "code_blob": "bl_none",
            "submitted_at": now - timedelta(minutes=chance.randrange(525_600)),
            "status": status,
            "job_id": job_id,
            "fence": 0,
            "result": {
                "status": status,
                "score": 0,
                "exec_time_ms": 12,
                "memory_usage_kib": 3456,
                "tasks": [],
                "outputs_blob": None,
                "job_id": job_id,
                "fence": 0,
                "exhausted": False,
            },
            "counted": {"status": status, "score": 100 if status == 0 else 0},
        }


def furnish(
    bench: Bench,
    now: datetime,
    *,
    histories: Sequence[int] = HISTORIES,
    classes: Sequence[int] = CLASSES,
) -> None:
    """Make problems, users with their histories, and a homework for each class."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as testdata:
        testdata.writestr("0000.in", "1\n")
        testdata.writestr("0000.out", "1\n")
    task = TaskSpec(task_score=100, memory_limit_kib=65536, time_limit_ms=1000, case_count=1)
    for problem_id in range(1, PROBLEMS + 1):
        problem.put_problem(problem_id, name="p", tasks=[task], allowed_languages=[0, 1, 2])
    problem.put_testdata(1, packed, now=now)
    classmates = [f"classmate{number}" for number in range(max(classes))]
    measured = [username(history, size) for history in histories for size in classes]
    counters = {"submission": 0, "AC_submission": 0, "AC_problem_ids": [], "version": 0}
    bench.insert(
        "users",
        ({"_id": name, **counters} for name in [*classmates, *measured]),
        len(classmates) + len(measured),
        "users",
    )
    chance = random.Random(1)
    for history in histories:
        for size in classes:
            name = username(history, size)
            documents = submissions(f"{name}-", [name], history, now, chance)
            bench.insert("submissions", documents, history, name)
    for size in classes:
        members = [username(history, size) for history in histories]
        settings = HomeworkSettings(
            name="hw",
            start=now - timedelta(days=400),
            end=now + timedelta(days=1),
            penalty="score=score*(0.7**overtime)",
            problem_ids=(1, 2, 3),
            students=(*members, *classmates[: size - len(members)]),
        )
        homework.put_homework(f"class-of-{size}", settings, now=now)


# -- measuring -----------------------------------------------------------------------------


def measure(bench: Bench, archive: int, landings: int) -> Iterator[Row]:
    """Land again and again the first submission of each user; AC and WA take turns.

    The users take turns, too, so that what else the machine does hits all rows alike.
    """
    rows = [(history, size) for history in HISTORIES for size in CLASSES]
    times: dict[tuple[int, int], list[float]] = {row: [] for row in rows}
    for turn in range(WARM_UPS + landings):
        for history, size in rows:
            took_ms = bench.land(f"sn_{username(history, size)}-0")
            if turn >= WARM_UPS:
                times[history, size].append(took_ms)
    for history, size in rows:
        yield Row(
            archive=archive,
            history=history,
            class_size=size,
            median_ms=median(times[history, size]),
            p90_ms=quantiles(times[history, size], n=10)[-1],
        )


def timed(once: Callable[[], float], times: int) -> list[float]:
    """Return durations, in ms, after a few that warm up."""
    for _ in range(WARM_UPS):
        once()
    return [once() for _ in range(times)]


def show(rows: Sequence[Row], floor_ms: float) -> None:
    table = Table(
        "archive",
        "user's submissions",
        "class",
        "median ms",
        "p90 ms",
        "durable writes' worth",
        "to the smallest",
        title=f"One landing; floor: one durable write, {floor_ms:.2f} ms",
    )
    for column in table.columns:
        column.justify = "right"
    smallest = rows[0].median_ms
    for row in rows:
        table.add_row(
            f"{row.archive:,}",
            f"{row.history:,}",
            f"{row.class_size:,}",
            f"{row.median_ms:.1f}",
            f"{row.p90_ms:.1f}",
            f"{row.median_ms / floor_ms:.1f}",
            f"{row.median_ms / smallest:.2f}",
        )
    Console().print(table)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="What one landing costs.")
    parser.add_argument("--archive", type=int, nargs="+", default=list(ARCHIVES))
    parser.add_argument("--landings", type=int, default=LANDINGS, help="per row")
    arguments = parser.parse_args()
    logs.configure("ERROR")
    now = system_clock()
    rows: list[Row] = []
    floors: list[float] = []
    with tempfile.TemporaryDirectory() as folder, EmbeddedMongo(Path(folder)) as server:
        bench = Bench(server.uri)
        furnish(bench, now)
        others = [f"other{number}" for number in range(5_000)]
        held = 0
        for archive in sorted(arguments.archive):
            documents = submissions(
                f"{archive}-", others, archive - held, now, random.Random(archive)
            )
            bench.insert("submissions", documents, archive - held, f"archive of {archive:,}")
            held = archive
            floors += timed(bench.durable_write, arguments.landings)
            rows += measure(bench, archive, arguments.landings)
            floors += timed(bench.durable_write, arguments.landings)
        engine.disconnect()
    show(rows, median(floors))


if __name__ == "__main__":
    main()
