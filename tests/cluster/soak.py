"""Moderate load for long: memory, connections and threads stay flat, and no blob is left over.

`make soak` runs it for an hour (SOAK_S). What is measured at the start (when a third of the time
has gone into warming up), in the middle and at the end is printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pymongo import MongoClient

from dispatch.lease import LeaseRules
from tests.cluster.load import Load
from tests.cluster.snapshot import Finding

GROWTH_SHARE_MAX = 0.10
GROWTH_MIB_MIN = 24.0
"""Less growth than this is noise."""
HANDLES_GROWTH_MAX = 12
"""So many connections or threads more than in the middle may be a crowd of the moment."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One process at one moment."""

    memory_mib: float
    connections: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class Sample:
    """All that was measured at one moment: process name to figures."""

    when: str
    processes: dict[str, Measured]
    stale_blobs: int

    def __str__(self) -> str:
        lines = [f"{self.when}: stale blobs {self.stale_blobs}"]
        lines += [
            f"  {name}: {one.memory_mib:.1f} MiB, {one.connections} connections, "
            f"{one.threads} threads"
            for name, one in self.processes.items()
        ]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Soak:
    """What a soak found."""

    samples: list[Sample]
    findings: list[Finding]
    landed: int

    def growths(self) -> list[str]:
        """What grew from the middle to the end, one line each."""
        _, middle, end = self.samples
        found = []
        for name, was in middle.processes.items():
            now = end.processes[name]
            allowed = max(GROWTH_MIB_MIN, was.memory_mib * GROWTH_SHARE_MAX)
            # The database fills its cache up to its own limit.
            if name != "mongod" and now.memory_mib - was.memory_mib > allowed:
                found.append(f"{name}: {was.memory_mib:.1f} to {now.memory_mib:.1f} MiB")
            found += [
                f"{name}: {getattr(was, what)} to {getattr(now, what)} {what}"
                for what in ("connections", "threads")
                if getattr(now, what) - getattr(was, what) > HANDLES_GROWTH_MAX
            ]
        if end.stale_blobs:
            found.append(f"{end.stale_blobs} blobs that nothing refers to")
        return found


def soak(
    uri: str, folder: Path, seconds: float, *, pause: Callable[[float], None] = time.sleep
) -> Soak:
    """Load the service for so long; measure three times; then let everything land, and check."""
    with Load(uri, folder, apis=2, runners=6, clients=10, pause_s=1.0) as load:
        pause(seconds / 3)
        samples = [_sample("start", load)]
        pause(seconds / 3)
        samples.append(_sample("middle", load))
        pause(seconds / 3)
        load.finish()
        samples.append(_sample("end", load))
        landed = sum(
            entry["kind"] == "complete" and entry["status"] == 204 for entry in load.diary()
        )
        return Soak(samples=samples, findings=load.findings(LeaseRules()), landed=landed)


def _sample(when: str, load: Load) -> Sample:
    processes = {}
    for number, api in enumerate(load.apis):
        for worker in api.workers():
            processes[f"api {number}"] = _measured(worker)
        if api.process is not None:
            processes[f"serve {number}"] = _measured(psutil.Process(api.process.pid))
    for number, runner in enumerate(load.runners):
        processes[f"runner {number}"] = _measured(psutil.Process(runner.process.pid))
    with load.client() as client:
        stale = len(stale_blobs(client))
        pid = int(client.admin.command("serverStatus")["pid"])
    processes["mongod"] = _measured(psutil.Process(pid))
    return Sample(when=when, processes=processes, stale_blobs=stale)


def _measured(process: psutil.Process) -> Measured:
    return Measured(
        memory_mib=process.memory_info().rss / 2**20,
        connections=len(process.net_connections("tcp")),
        threads=process.num_threads(),
    )


def stale_blobs(client: MongoClient[dict[str, Any]]) -> list[str]:
    """Names of code and outputs that no submission refers to."""
    database = client.get_default_database()
    known = set()
    for submission in database["submissions"].find({}, {"code_blob": 1, "result.outputs_blob": 1}):
        known |= {submission["code_blob"], (submission.get("result") or {}).get("outputs_blob")}
    return [
        file["filename"]
        for file in database["blobs.files"].find({"filename": {"$regex": "^(code|outputs)/"}})
        if file["_id"] not in known
    ]
