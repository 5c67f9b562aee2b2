"""Row 8: what it costs to read what a majority has, beside reading the newest state.

Guarantees: the levels take turns at every act or round, so whatever else the machine does weighs on
all of them. Contended claims are made by queues that know nothing of one another, as those of
several processes, and are counted in writes: a claim that comes late costs one in vain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pymongo import MongoClient
from pymongo.monitoring import CommandListener, CommandStartedEvent
from pymongo.read_concern import ReadConcern

from benchmarks.bench import Bench
from benchmarks.flat import HANDED_OUT, WARM, BareQueue, fresh_job
from benchmarks.report import Line, line
from benchmarks.stats import interleaved, ratio, summarise
from dispatch import job as verbs
from dispatch.clock import system_clock
from dispatch.concerns import LOCAL, MAJORITY, proven

ROW = "8 read concerns"
LEVELS = {"newest": LOCAL, "of a majority": MAJORITY}
CLAIMERS = 8
WAITING = 1_000


def run(bench: Bench) -> Iterator[Line]:
    """Measure reads by id, claims one after the other, and claims that run beside one another."""
    yield from _by_id(bench)
    yield from _alone(bench)
    yield from _contended(bench)


def _queue(bench: Bench, name: str, level: ReadConcern) -> BareQueue:
    queue = BareQueue(bench.mongo, f"bench_reads_{name}")
    store = queue.queue.jobs
    store.jobs = store.jobs.with_options(read_concern=level)
    return queue


def _drop(bench: Bench, *names: str) -> None:
    for name in names:
        bench.mongo.drop_database(f"bench_reads_{name}")


def _in_turns(acts: Mapping[str, Callable[[], float]], times: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {who: [] for who in acts}
    for number, who in enumerate(interleaved(list(acts), WARM + times)):
        ms = acts[who]()
        if number >= WARM * len(acts):
            took[who].append(ms)
    return took


def _lines(case: str, took: Mapping[str, list[float]]) -> Iterator[Line]:
    first = summarise(took["newest"])
    for who, values in took.items():
        summary = summarise(values)
        told = {} if who == "newest" else {"ratio": ratio(summary.median, first.median)}
        yield line(ROW, case, who, summary, against="to newest", **told)


def _by_id(bench: Bench) -> Iterator[Line]:
    queue = _queue(bench, "by_id", LOCAL)
    queue.fill(WAITING, lambda number: {**fresh_job(), "_id": number})

    def reading(level: ReadConcern) -> Callable[[], float]:
        jobs = queue.queue.jobs.jobs.with_options(read_concern=level)

        def once() -> float:
            began = time.perf_counter()
            jobs.find_one({"_id": 7})
            return (time.perf_counter() - began) * 1000

        return once

    def with_proof() -> float:
        began = time.perf_counter()
        with proven(queue.queue.jobs.jobs.database) as session:
            queue.queue.jobs.jobs.find_one({"_id": 7}, session=session)
        return (time.perf_counter() - began) * 1000

    linearizable = reading(ReadConcern("linearizable"))
    acts = {who: reading(level) for who, level in LEVELS.items()}
    acts |= {"with proof": with_proof, "linearizable": linearizable}
    yield from _lines("read by id", _in_turns(acts, bench.sizes.claims))
    _drop(bench, "by_id")


def _alone(bench: Bench) -> Iterator[Line]:
    queues = {who: _queue(bench, f"alone_{level.level}", level) for who, level in LEVELS.items()}
    for queue in queues.values():
        queue.fill(WAITING + bench.sizes.claims, lambda number: fresh_job(WAITING - number))

    def claiming(queue: BareQueue) -> Callable[[], float]:
        return lambda: queue.claim()[1]

    acts = {who: claiming(queue) for who, queue in queues.items()}
    yield from _lines("claim, one after the other", _in_turns(acts, bench.sizes.claims))
    _drop(bench, *(f"alone_{level.level}" for level in LEVELS.values()))


class _Writes(CommandListener):
    """Counts the claims' writes."""

    def __init__(self) -> None:
        self.count = 0

    def started(self, event: CommandStartedEvent) -> None:
        self.count += event.command_name == "findAndModify"

    def succeeded(self, event: Any) -> None:
        """Nothing follows."""

    def failed(self, event: Any) -> None:
        """Nothing follows."""


def _contended(bench: Bench) -> Iterator[Line]:
    took: dict[str, list[float]] = {who: [] for who in LEVELS}
    writes = dict.fromkeys(LEVELS, 0)
    for _ in range(max(2, bench.sizes.cycle_rounds)):
        for who, level in LEVELS.items():
            found, written = _round(bench, level)
            took[who] += found
            writes[who] += written
    for told in _lines(f"claim, {CLAIMERS} beside one another", took):
        per_claim = writes[told.who] / len(took[told.who])
        yield line(
            told.row,
            told.case,
            told.who,
            summarise(took[told.who]),
            ratio=told.ratio,
            against=told.against,
            note=f"{per_claim:.2f} writes a claim",
        )


def _round(bench: Bench, level: ReadConcern) -> tuple[list[float], int]:
    name = f"contended_{level.level}"
    listener = _Writes()
    uri = bench.mongod.uri_for("admin")
    with MongoClient[dict[str, Any]](uri, tz_aware=True, event_listeners=[listener]) as client:
        queues = [BareQueue(client, f"bench_reads_{name}") for _ in range(CLAIMERS)]
        for queue in queues:
            store = queue.queue.jobs
            store.jobs = store.jobs.with_options(read_concern=level)
        each = max(10, bench.sizes.claims // 2)
        queues[0].fill(WAITING + each * CLAIMERS, lambda number: fresh_job(WAITING - number))

        def claim(queue: BareQueue) -> float:
            began = time.perf_counter()
            while not verbs.claim_next_job(
                queue.queue, queue.runner, hand_out=lambda _: HANDED_OUT, now=system_clock
            ):
                pass  # all that it saw went to others
            return (time.perf_counter() - began) * 1000

        def claims(queue: BareQueue) -> list[float]:
            return [claim(queue) for _ in range(each)]

        with ThreadPoolExecutor(CLAIMERS) as pool:
            took = [ms for found in pool.map(claims, queues) for ms in found]
    _drop(bench, name)
    return took, listener.count
