"""Row 1: the full durable cycle over HTTP, beside six raw durable writes on the same server.

A cycle: submit with code, claim, complete with ten cases; counters and one homework recomputed.
Every runner is a client that submits, claims and completes, one after the other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks import client
from benchmarks.bench import Bench
from benchmarks.client import Connection, Refused, RunnerKey
from benchmarks.floor import FloorShare, six_writes
from benchmarks.load import Measured, sleep_until
from benchmarks.report import Line, line
from benchmarks.servers import Service, cpu_s, service
from benchmarks.stats import interleaved, ratio, summarise
from benchmarks.world import CODE, PROBLEM, World, furnish

ROW = "1 cycle over HTTP"
OURS = "judge-dispatch"
FLOOR = "floor: six writes"
SORTED_FLOOR = "floor, claim by order"
NO_JOB_S = 0.002


@dataclass(frozen=True, kw_only=True, slots=True)
class CycleShare:
    """One client's part. Without `seconds` it does `cycles`."""

    port: int
    runner: RunnerKey
    keys: tuple[str, ...]
    seconds: float | None = None
    cycles: int = 0


def cycles(share: CycleShare, start_at: float) -> list[tuple[float, float]]:
    """Do cycle after cycle; return (its end, its duration), in s.

    Raises:
        Refused: the service answered anything but success.
    """
    chance = random.Random(share.runner.runner_id)
    done: list[tuple[float, float]] = []
    with Connection(share.port) as connection:
        connection.request("GET", "/healthz", "none")
        sleep_until(start_at)
        while _goes_on(share, len(done), start_at):
            began = time.monotonic()
            one_cycle(connection, share.runner, chance, share.keys)
            ended = time.monotonic()
            done.append((ended, ended - began))
    return done


def _goes_on(share: CycleShare, done: int, start_at: float) -> bool:
    if share.seconds is None:
        return done < share.cycles
    return time.monotonic() < start_at + share.seconds


def one_cycle(
    connection: Connection, runner: RunnerKey, chance: random.Random, keys: tuple[str, ...]
) -> None:
    """Submit for one of the students, claim whatever is next, and complete it.

    Raises:
        Refused: the service answered anything but success.
    """
    status, _ = client.submit(connection, chance.choice(keys), PROBLEM, CODE)
    if status != 201:
        raise Refused(f"submit: {status}")
    while (job := client.next_job(connection, runner)) is None:
        time.sleep(NO_JOB_S)  # Others are at the same head of the line.
    status = client.complete(connection, runner, job, chance.random() < 0.5)
    if status != 204:
        raise Refused(f"complete: {status}")


def run(bench: Bench) -> Iterator[Line]:
    """Measure each number of runners in rounds, the contenders taking turns."""
    with service(bench.mongod.uri_for("bench_cycle"), bench.folder) as api:
        world = furnish(api, max(bench.sizes.cycle_runners))
        _measure(bench, api, world, min(4, max(bench.sizes.cycle_runners)), OURS, 1.0)  # warm
        for runners in bench.sizes.cycle_runners:
            yield from _compare(bench, api, world, runners)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Round:
    measured: Measured[tuple[float, float]]
    rate_per_s: float
    database_cores: float
    api_cores: float
    commands: float


def _compare(bench: Bench, api: Service, world: World, runners: int) -> Iterator[Line]:
    rounds: dict[str, list[_Round]] = {OURS: [], FLOOR: [], SORTED_FLOOR: []}
    for who in interleaved(list(rounds), bench.sizes.cycle_rounds):
        rounds[who].append(_measure(bench, api, world, runners, who, bench.sizes.cycle_round_s))
    rates = {who: median(each.rate_per_s for each in done) for who, done in rounds.items()}
    for who, done in rounds.items():
        durations_ms = [1000 * took for each in done for _, took in each.measured.results]
        cores = [each.measured.cores for each in done]
        note = (
            f"cores: clients {median(cores):.2f}, "
            f"database {median(each.database_cores for each in done):.2f}"
        )
        if who == OURS:
            note += (
                f", {api.processes} API processes {median(each.api_cores for each in done):.2f}; "
                f"{median(each.commands for each in done):.1f} database commands a cycle"
            )
        yield line(
            ROW,
            f"{runners} runner{'s' if runners > 1 else ''}",
            who,
            summarise(durations_ms),
            rate_per_s=rates[who],
            ratio=ratio(rates[OURS], rates[who]) if who != OURS else None,
            against="" if who == OURS else "ours to this",
            note=note,
        )


def _measure(
    bench: Bench, api: Service, world: World, runners: int, who: str, seconds: float
) -> _Round:
    bench.say(f"{runners} runners, {who}")
    api_s, database_s = api.cpu_s(), cpu_s(bench.mongo_process)
    counted = commands(bench)
    if who == OURS:
        measured = bench.crowd.run(
            cycles,
            [
                CycleShare(port=world.port, runner=runner, keys=world.keys, seconds=seconds)
                for runner in world.runners[:runners]
            ],
        )
    else:
        uri = bench.mongod.uri_for("bench_floor")
        measured = bench.crowd.run(
            six_writes,
            [
                FloorShare(
                    uri=uri,
                    seconds=seconds,
                    username=f"floor{number}",
                    sorted_claim=who == SORTED_FLOOR,
                )
                for number in range(runners)
            ],
        )
    number = len(measured.results)
    return _Round(
        measured=measured,
        rate_per_s=number / measured.wall_s,
        database_cores=(cpu_s(bench.mongo_process) - database_s) / measured.wall_s,
        api_cores=(api.cpu_s() - api_s) / measured.wall_s,
        commands=(commands(bench) - counted) / max(1, number),
    )


COUNTED = ("find", "insert", "update", "delete", "findAndModify", "aggregate", "getMore", "count")


def commands(bench: Bench) -> int:
    """Return how many commands on documents the database has served so far."""
    served = bench.mongo.admin.command("serverStatus")["metrics"]["commands"]
    return sum(int(served[name]["total"]) for name in COUNTED if name in served)
