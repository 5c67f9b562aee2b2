"""Row 0: what the single steps cost on this machine, so that the other rows can be read."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pymongo import MongoClient, WriteConcern
from pymongo.database import Database

from benchmarks.bench import Bench
from benchmarks.client import Connection
from benchmarks.report import Line, line
from benchmarks.servers import cpu_s, service
from benchmarks.stats import interleaved, summarise

ROW = "0 single steps"
ROUNDS = 5
WARM = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class _Round:
    took_ms: list[float]
    client_ms: float
    server_ms: float


def run(bench: Bench) -> Iterator[Line]:
    """Measure a ping, a read, two kinds of writes, and a request that does nothing."""
    uri = bench.mongod.uri_for("bench_units")
    with service(uri, bench.folder) as api, Connection(api.port) as connection:
        steps = {**_database_steps(bench), "GET /healthz": _get(connection)}
        rounds: dict[str, list[_Round]] = {name: [] for name in steps}
        for name in interleaved(list(steps), ROUNDS):
            watched = api.cpu_s if name.startswith("GET") else _database_cpu(bench)
            rounds[name].append(_round(steps[name], watched, bench.sizes.unit_calls))
    for name, done in rounds.items():
        count = sum(len(each.took_ms) for each in done)
        client_ms = sum(each.client_ms for each in done) / count
        server_ms = sum(each.server_ms for each in done) / count
        yield line(
            ROW,
            "one after the other",
            name,
            summarise([ms for each in done for ms in each.took_ms]),
            note=f"CPU each: client {client_ms:.2f} ms, server {server_ms:.2f} ms",
        )


def _database_steps(bench: Bench) -> dict[str, Callable[[], object]]:
    client: MongoClient[dict[str, Any]] = bench.mongo
    database: Database[dict[str, Any]] = client["bench_units"]
    durable = database.get_collection("steps", write_concern=WriteConcern("majority", j=True))
    soft = database.get_collection("steps", write_concern=WriteConcern(1))
    durable.update_one({"_id": 1}, {"$set": {"n": 0}}, upsert=True)
    return {
        "database: ping": lambda: client.admin.command("ping"),
        "database: read by id": lambda: soft.find_one({"_id": 1}),
        "database: write, w 1": lambda: soft.update_one({"_id": 1}, {"$inc": {"n": 1}}),
        "database: durable write": lambda: durable.update_one({"_id": 1}, {"$inc": {"n": 1}}),
    }


def _get(connection: Connection) -> Callable[[], object]:
    return lambda: connection.request("GET", "/healthz", "none")


def _database_cpu(bench: Bench) -> Callable[[], float]:
    return lambda: cpu_s(bench.mongo_process)


def _round(step: Callable[[], object], watched: Callable[[], float], calls: int) -> _Round:
    for _ in range(WARM):
        step()
    took_ms: list[float] = []
    server_s, client_s = watched(), _own_cpu_s()
    for _ in range(calls):
        began = time.perf_counter()
        step()
        took_ms.append(1000 * (time.perf_counter() - began))
    client_s = _own_cpu_s() - client_s
    return _Round(
        took_ms=took_ms, client_ms=1000 * client_s, server_ms=1000 * (watched() - server_s)
    )


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
