"""Row 4, the queue: claims and reclaims by what is pending, finished and out, and many in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from benchmarks.bench import Bench
from benchmarks.flat import (
    FLOOR,
    ROW,
    BareQueue,
    compare,
    done_job,
    durable_write,
    fresh_job,
    leased_job,
)
from benchmarks.report import Line, line
from benchmarks.stats import ratio, summarise

PENDING_BESIDE_FINISHED = 100
IN_A_ROW_SAMPLE = 100
OUT_FOR = timedelta(hours=1)


def run(bench: Bench) -> Iterator[Line]:
    """Measure all of it; every database goes when its part is done."""
    yield from _by_pending(bench)
    yield from _by_finished(bench)
    yield from _by_leases(bench)
    yield from _in_a_row(bench)


def _queue(bench: Bench, name: str) -> BareQueue:
    return BareQueue(bench.mongo, f"bench_flat_{name}")


def _drop(bench: Bench, name: str) -> None:
    bench.mongo.drop_database(f"bench_flat_{name}")


def _waiting_since(first_s: float, number: int) -> dict[str, Any]:
    return fresh_job(first_s - number)


def _claiming(queue: BareQueue) -> Callable[[], float]:
    """Return a claim that leaves as many waiting as there were: what it took goes to the tail."""

    def once() -> float:
        submission_id, took_ms = queue.claim()
        again = fresh_job()
        queue.raw["jobs"].replace_one({"_id": submission_id}, {**again, "_id": submission_id})
        return took_ms

    return once


def _by_pending(bench: Bench) -> Iterator[Line]:
    acts = {}
    for size in bench.sizes.pending:
        bench.say(f"seeding {size:,} pending")
        queue = _queue(bench, f"pending_{size}")
        queue.fill(size, partial(_waiting_since, size))
        acts[size] = _claiming(queue)
    yield from compare(bench, "claim, by pending", "pending", acts, bench.sizes.claims)
    for size in acts:
        _drop(bench, f"pending_{size}")


def _by_finished(bench: Bench) -> Iterator[Line]:
    acts = {}
    for size in bench.sizes.finished:
        bench.say(f"seeding {size:,} finished")
        queue = _queue(bench, f"finished_{size}")
        queue.fill(size, lambda _: done_job())
        queue.fill(PENDING_BESIDE_FINISHED, partial(_waiting_since, PENDING_BESIDE_FINISHED))
        acts[size] = _claiming(queue)
    yield from compare(bench, "claim, by finished", "finished", acts, bench.sizes.claims)
    for size in acts:
        _drop(bench, f"finished_{size}")


def _by_leases(bench: Bench) -> Iterator[Line]:
    acts = {}
    for size in bench.sizes.leases_out:
        queue = _queue(bench, f"leases_{size}")
        queue.fill(size, lambda _: leased_job(datetime.now(UTC) + OUT_FOR, "rn_other"))
        acts[size] = _reclaiming(queue)
    yield from compare(bench, "reclaim, by leases out", "out", acts, bench.sizes.claims)
    for size in acts:
        _drop(bench, f"leases_{size}")


def _reclaiming(queue: BareQueue) -> Callable[[], float]:
    """Return a reclaim of the one orphan among the leases that are out."""
    orphan = leased_job(datetime.now(UTC), "rn_gone")
    queue.raw["jobs"].insert_one(orphan)

    def once() -> float:
        over = leased_job(datetime.now(UTC) - timedelta(minutes=1), "rn_gone")
        queue.raw["jobs"].replace_one({"_id": orphan["_id"]}, {**over, "_id": orphan["_id"]})
        submission_id, took_ms = queue.claim()
        if submission_id != orphan["_id"]:
            raise RuntimeError("the orphan did not go first")
        return took_ms

    return once


def _in_a_row(bench: Bench) -> Iterator[Line]:
    """Claim one after the other; the database keeps what it deleted lately at the queue's head."""
    many = bench.sizes.claims_in_a_row
    what = f"claims in a row, {many:,}"
    bench.say(what)
    queue = _queue(bench, "row")
    queue.fill(many, partial(_waiting_since, many))
    floor = durable_write(bench.mongo)
    took: list[float] = []
    floors: list[float] = []
    began = datetime.now(UTC)
    for number in range(many):
        submission_id, took_ms = queue.claim()
        took.append(took_ms)
        # The lease ends, without what a landing costs.
        queue.raw["jobs"].update_one(
            {"_id": submission_id}, {"$set": {"state": "done"}, "$unset": {"lease_deadline": 1}}
        )
        if number < 2 * IN_A_ROW_SAMPLE or number >= many - 2 * IN_A_ROW_SAMPLE:
            floors.append(floor())
    spent_s = (datetime.now(UTC) - began).total_seconds()
    _drop(bench, "row")
    first = summarise(took[IN_A_ROW_SAMPLE // 2 : IN_A_ROW_SAMPLE * 3 // 2])
    last = summarise(took[-IN_A_ROW_SAMPLE:])
    half = len(floors) // 2
    floor_first, floor_last = summarise(floors[:half]), summarise(floors[half:])
    yield line(ROW, what, "around the 100th", first)
    yield line(
        ROW,
        what,
        f"around the {many:,}th",
        last,
        ratio=ratio(last.median, first.median),
        against="to the 100th",
        note=f"all within {spent_s:.0f} s",
    )
    yield line(ROW, what, f"{FLOOR}, then", floor_first)
    yield line(
        ROW,
        what,
        f"{FLOOR}, at the end",
        floor_last,
        ratio=ratio(floor_last.median, floor_first.median),
        against="to then: the machine's own drift",
    )
