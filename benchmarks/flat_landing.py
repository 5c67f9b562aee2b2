"""Row 4, the domain: landings by a student's history and by the class, bulk rejudges by size."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks import landing_scale
from benchmarks.bench import Bench
from benchmarks.flat import ROW, compare, done_job
from benchmarks.landing_scale import furnish, submissions, username
from benchmarks.report import Line, line
from benchmarks.stats import ratio, summarise
from dispatch.clock import system_clock
from mongo import engine, rejudging
from mongo.rejudge_items import items

REJUDGED_PROBLEM = 1_000
STUDENTS = 500


def landings(bench: Bench) -> Iterator[Line]:
    """Measure landings, in one process and without HTTP."""
    sizes = bench.sizes
    domain = landing_scale.Bench(bench.mongod.uri_for("bench_landing"))
    try:
        bench.say(f"seeding histories {sizes.histories} and classes {sizes.classes}")
        furnish(domain, system_clock(), histories=sizes.histories, classes=sizes.classes)
        small_history, small_class = sizes.histories[0], sizes.classes[0]
        acts = {history: _landing(domain, history, small_class) for history in sizes.histories}
        what = "landing, by the student's submissions"
        yield from compare(bench, what, "submissions", acts, sizes.landings)
        acts = {size: _landing(domain, small_history, size) for size in sizes.classes}
        yield from compare(bench, "landing, by the class", "students", acts, sizes.landings)
    finally:
        engine.disconnect()
        bench.mongo.drop_database("bench_landing")


def _landing(domain: landing_scale.Bench, history: int, size: int) -> Callable[[], float]:
    return partial(domain.land, f"sn_{username(history, size)}-0")


def rejudges(bench: Bench) -> Iterator[Line]:
    """Measure what queueing a bulk rejudge costs, per submission.

    Its jobs are then taken as judged by raw writes that are not counted: at most so many of one
    rejudge wait at once, and the rest wait for those.
    """
    small, large = bench.sizes.rejudged
    domain = landing_scale.Bench(bench.mongod.uri_for("bench_rejudge"))
    try:
        rejudging.create_indexes()
        for number, size in enumerate((small, large, small)):
            bench.say(f"seeding {size:,} submissions to rejudge")
            _seed(domain, REJUDGED_PROBLEM + number, size)
        first = _rejudge(bench, domain, REJUDGED_PROBLEM, small)
        middle = _rejudge(bench, domain, REJUDGED_PROBLEM + 1, large)
        again = _rejudge(bench, domain, REJUDGED_PROBLEM + 2, small)
        base = summarise([first, again])
        what = "bulk rejudge, ms a submission"
        yield line(ROW, what, f"{small:,} (twice)", base)
        yield Line(
            row=ROW,
            case=what,
            who=f"{large:,}",
            median=middle,
            ratio=ratio(middle, base.median),
            against="to the smallest",
        )
    finally:
        engine.disconnect()
        bench.mongo.drop_database("bench_rejudge")


def _seed(domain: landing_scale.Bench, problem_id: int, size: int) -> None:
    now = system_clock()
    students = [f"student{number}" for number in range(STUDENTS)]
    chance = random.Random(problem_id)
    prefix = f"rj{problem_id}-"
    judged = submissions(prefix, students, size, now, chance)
    domain.insert(
        "submissions",
        ({**each, "problem_id": problem_id} for each in judged),
        size,
        "submissions",
    )
    domain.insert(
        "jobs",
        (
            {
                **done_job(),
                "_id": f"sn_{prefix}{number}",
                "job_id": f"jb_{prefix}{number}",
                "problem_id": problem_id,
            }
            for number in range(size)
        ),
        size,
        "jobs",
    )


def _rejudge(bench: Bench, domain: landing_scale.Bench, problem_id: int, size: int) -> float:
    """Rejudge a problem; return what it cost, in ms per submission.

    Raises:
        RuntimeError: it does not come to its end.
    """
    bench.say(f"rejudging {size:,}")
    now = system_clock
    began = time.perf_counter()
    started = rejudging.start({"problem_id": problem_id}, mode="replace", by="bench", now=now())
    spent_s = time.perf_counter() - began
    rejudge_id = started["rejudge_id"]
    for _ in range(100 + size):
        began = time.perf_counter()
        more = rejudging.advance(queue=domain.domain_queue, now=now)
        spent_s += time.perf_counter() - began
        if not more:
            if rejudging.view(rejudge_id)["state"] == "done":
                return 1000 * spent_s / size
            _take_as_judged(domain, rejudge_id)
    raise RuntimeError("the rejudge does not end")


def _take_as_judged(domain: landing_scale.Bench, rejudge_id: str) -> None:
    """Have all that waits or is out end with a verdict."""
    database: Any = domain.database
    items().update_many(
        {"rejudge": rejudge_id, "state": "queued"},
        {"$set": {"state": "done", "after": {"status": 0, "score": 100}}},
    )
    database["jobs"].update_many(
        {"rejudge_id": rejudge_id, "state": "pending"},
        {"$set": {"state": "done", "outcome": "verdict"}},
    )


def run(bench: Bench) -> Iterator[Line]:
    """Measure all of it."""
    yield from landings(bench)
    yield from rejudges(bench)
