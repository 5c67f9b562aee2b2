"""Full load while things break at random from a seed; then peace; then everything is read.

`make chaos` runs it for ten minutes. `python -m tests.cluster.chaos --seconds 600 --seed 7`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from dispatch.lease import LeaseRules
from tests.cluster.checker import DOUBLE_EFFECTS, LOSSES, Finding, Snapshot, check
from tests.cluster.processes import Api, Player, prepare, service_environment
from tests.cluster.replica_set import Member, ReplicaSet
from tests.cluster.wire import read_diaries

RUNNERS, CLIENTS = 20, 50
LEASE_TTL_S, HEARTBEAT_S = 6.0, 2.0
PRIMARY_PAUSED_S = 15.0
PEACE_S_MAX = 180.0
NEVER_LEFT_OUT = frozenset({"primary_paused", "primary_killed", "runner_killed"})
"""A run goes on for up to its length again until it has had these."""
WHOLE_S_MIN = 4.0
"""How long the replica set is left whole between two faults, so that there is work to lose."""
MAX_ATTEMPTS = 50
RULES = LeaseRules(lease_ttl_s=LEASE_TTL_S, max_attempts=MAX_ATTEMPTS)


@dataclass
class Report:
    """What a run was made of, and what it found."""

    seed: int
    seconds: float
    faults: Counter[str] = field(default_factory=Counter)
    submits: int = 0
    verdicts: int = 0
    rejudges: int = 0
    failover_gaps_s: list[float] = field(default_factory=list)
    reclaim_delays_s: list[float] = field(default_factory=list)
    peace_s: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}, {self.seconds:.0f} s of load, peace after {self.peace_s:.1f} s",
            "faults: " + ", ".join(f"{name} {n}" for name, n in sorted(self.faults.items())),
            f"submits acknowledged {self.submits}, verdicts {self.verdicts}, "
            f"rejudges {self.rejudges}",
            f"failover gap {_spread(self.failover_gaps_s)}",
            f"reclaim after a runner's death {_spread(self.reclaim_delays_s)} "
            f"(lease {LEASE_TTL_S:g} s)",
            f"losses {self._count(LOSSES)}, double effects {self._count(DOUBLE_EFFECTS)}, "
            f"findings {len(self.findings)}",
            *(f"  {finding}" for finding in self.findings[:40]),
        ]
        return "\n".join(lines)

    def _count(self, names: frozenset[str]) -> int:
        return sum(finding.name in names for finding in self.findings)


def _spread(values_s: list[float]) -> str:
    if not values_s:
        return "none"
    return f"median {statistics.median(values_s):.1f} s, worst {max(values_s):.1f} s"


@dataclass(frozen=True)
class Fault:
    """Something that has been broken at `at`, and is to be mended."""

    name: str
    at: float


class Chaos:
    """One run. `folder` keeps diaries and logs."""

    def __init__(
        self,
        replica_set: ReplicaSet,
        uri: str,
        folder: Path,
        seed: int,
        *,
        pause_s: float = 1.0,
    ) -> None:
        """`pause_s`: from a verdict to the client's next submit, on average."""
        self._pause_s = pause_s
        self._set = replica_set
        self._uri = uri
        self._folder = folder
        self._seed = seed
        self._random = random.Random(seed)
        self._environment = service_environment(
            uri,
            LEASE_TTL_S=str(LEASE_TTL_S),
            HEARTBEAT_INTERVAL_S=str(HEARTBEAT_S),
            MAX_ATTEMPTS=str(MAX_ATTEMPTS),
        )
        self._apis = [Api(self._environment, folder / f"api{n}.log") for n in range(2)]
        self._runners: list[Player] = []
        self._paused: set[int] = set()
        self._faults: list[Fault] = []
        self._deaths: list[tuple[float, int]] = []
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self._whole_since: float | None = None

    @property
    def logs(self) -> list[Path]:
        """The services' logs."""
        return [api.log for api in self._apis]

    def run(self, seconds: float) -> Report:
        """Load, faults, peace, checks."""
        report = Report(self._seed, seconds)
        clients = None
        try:
            for api in self._apis:
                api.start()
            for api in self._apis:
                api.await_ready()
            prepare(self._apis[0])
            self._runners = [self._runner(number) for number in range(RUNNERS)]
            clients = self._clients()
            self._break_things(seconds)
            report.peace_s = self._make_peace(clients)
            self._check(report)
        finally:
            for runner in self._runners:
                runner.signal(signal.SIGCONT)
                runner.kill()
            if clients is not None:
                clients.kill()
            for api in self._apis:
                api.kill()
        return report

    # -- load ----------------------------------------------------------------------------

    def _runner(self, number: int) -> Player:
        options = {
            "ports": [api.port for api in self._apis],
            "diary": str(self._folder / f"runner{number}.jsonl"),
            "name": f"runner-{number}",
            "token": self._environment["RUNNER_REGISTRATION_TOKEN"],
            "lose": 0.02,
            "twice": 0.03,
            "judge_s": 0.6,
            "long_share": 0.05,
            "long_s": 1.5 * LEASE_TTL_S,
        }
        return Player("tests.cluster.chaos_runner", options, self._folder / "runners.log")

    def _clients(self) -> Player:
        options = {
            "ports": [api.port for api in self._apis],
            "diary": str(self._folder / "clients.jsonl"),
            "seed": self._seed,
            "admin_key": self._environment["ADMIN_API_KEY"],
            "clients": CLIENTS,
            "pause_s": self._pause_s,
            "rejudge_s": 1.0,
            "lose": 0.03,
        }
        return Player("tests.cluster.chaos_clients", options, self._folder / "clients.log")

    # -- faults --------------------------------------------------------------------------

    def _break_things(self, seconds: float) -> None:
        """Break one thing every few seconds: each kind once, in a random order, then any."""
        kinds: dict[str, Callable[[], bool]] = {
            "primary_killed": self._kill_primary,
            "primary_paused": self._pause_primary,
            "primary_cut_off": lambda: self._cut_off_primary(clients_too=True),
            "primary_cut_off_from_members": lambda: self._cut_off_primary(clients_too=False),
            "secondary_cut_off": self._cut_off_secondary,
            "api_process_killed": self._kill_worker,
            "api_service_killed": self._kill_api,
            "runner_killed": self._kill_runner,
            "runner_paused": self._pause_runner,
        }
        first = sorted(kinds)
        self._random.shuffle(first)
        # The longest first, so that a short run has it, too.
        first.sort(key=lambda name: name != "primary_paused")
        until = time.monotonic() + seconds
        following = time.monotonic() + 3
        while time.monotonic() < until or (
            NEVER_LEFT_OUT.intersection(first) and time.monotonic() < until + seconds
        ):
            self._undo_due()
            if time.monotonic() >= following:
                following = time.monotonic() + self._random.uniform(2.0, 5.0)
                names = first or [self._random.choice(sorted(kinds))]
                done = next((name for name in names if kinds[name]()), None)
                if done is not None:
                    self._faults.append(Fault(done, time.time()))
                    if done in first:
                        first.remove(done)
            time.sleep(0.05)

    def _undo_due(self) -> None:
        due = [entry for entry in self._undo if entry[0] <= time.monotonic()]
        self._undo = [entry for entry in self._undo if entry not in due]
        for _, undo in due:
            undo()

    def _later(self, after_s: float, undo: Callable[[], None]) -> None:
        self._undo.append((time.monotonic() + after_s, undo))

    def _take_primary(self) -> Member | None:
        """The primary, if the set is whole: two faults at once would leave no majority."""
        if not self._is_whole():
            self._whole_since = None
            return None
        if self._whole_since is None:
            self._whole_since = time.monotonic()
        if time.monotonic() - self._whole_since < WHOLE_S_MIN:
            return None
        self._whole_since = None
        return self._set.primary()

    def _is_whole(self) -> bool:
        if any(not member.running or member.paused for member in self._set.members):
            return False
        try:
            self._set.await_healthy(limit_s=1)
        except TimeoutError:
            return False
        return True

    def _kill_primary(self) -> bool:
        primary = self._take_primary()
        if primary is None:
            return False
        primary.kill()
        self._later(3, lambda: self._set.start(primary))
        return True

    def _pause_primary(self) -> bool:
        primary = self._take_primary()
        if primary is None:
            return False
        primary.pause()
        self._later(PRIMARY_PAUSED_S, primary.resume)
        return True

    def _cut_off_primary(self, *, clients_too: bool) -> bool:
        primary = self._take_primary()
        if primary is None:
            return False
        self._set.isolate(primary, clients_too=clients_too)
        self._later(6, lambda: self._set.isolate())
        return True

    def _cut_off_secondary(self) -> bool:
        primary = self._take_primary()
        if primary is None:
            return False
        others = [member for member in self._set.members if member is not primary]
        self._set.isolate(self._random.choice(others))
        self._later(5, lambda: self._set.isolate())
        return True

    def _kill_worker(self) -> bool:
        self._random.choice(self._apis).kill_worker()
        return True

    def _kill_api(self) -> bool:
        api = self._random.choice(self._apis)
        if api.process is None or api.process.poll() is not None:
            return False
        api.kill()
        self._later(2, api.start)
        return True

    def _kill_runner(self) -> bool:
        number = self._random.randrange(RUNNERS)
        if number in self._paused:
            return False
        runner = self._runners[number]
        if runner.process.poll() is not None:
            return False
        runner.kill()
        self._deaths.append((time.time(), number))
        self._later(1, runner.restart)
        return True

    def _pause_runner(self) -> bool:
        number = self._random.randrange(RUNNERS)
        if number in self._paused:
            return False
        runner = self._runners[number]
        if runner.process.poll() is not None:
            return False
        runner.signal(signal.SIGSTOP)
        self._paused.add(number)

        def resume() -> None:
            runner.signal(signal.SIGCONT)
            self._paused.discard(number)

        self._later(1.7 * LEASE_TTL_S, resume)
        return True

    # -- peace ---------------------------------------------------------------------------

    def _make_peace(self, clients: Player) -> float:
        """End all faults and the load; return how long it took until nothing was open."""
        began = time.monotonic()
        for _, undo in self._undo:
            undo()
        self._undo = []
        self._set.mend()
        self._set.await_healthy()
        for api in self._apis:
            if api.process is None or api.process.poll() is not None:
                api.start()
        for api in self._apis:
            api.await_ready()
        clients.finish(PEACE_S_MAX)
        while time.monotonic() - began < PEACE_S_MAX and not self._is_quiet():
            time.sleep(0.2)
        peace_s = time.monotonic() - began
        for runner in self._runners:
            runner.signal(signal.SIGTERM)
        for runner in self._runners:
            runner.finish(30)
        return peace_s

    def _is_quiet(self) -> bool:
        try:
            with self._client() as client:
                database = client.get_default_database()
                return (
                    database["jobs"].find_one({"state": {"$ne": "done"}}) is None
                    and database["submissions"].find_one({"status": -1}) is None
                    and database["jobs"].find_one({"mark_due": {"$gt": 0}}) is None
                )
        except PyMongoError:
            return False

    def _client(self) -> MongoClient[dict[str, Any]]:
        return MongoClient(
            self._uri, tz_aware=True, readConcernLevel="majority", serverSelectionTimeoutMS=10_000
        )

    # -- checks --------------------------------------------------------------------------

    def _check(self, report: Report) -> None:
        diary = read_diaries(self._folder)
        with self._client() as client:
            snapshot = Snapshot.of(client.get_default_database())
        report.findings = check(diary, snapshot, RULES)
        kinds = Counter(entry["kind"] for entry in diary)
        report.faults = Counter(fault.name for fault in self._faults)
        report.faults["answer_dropped"] = kinds["answer_dropped"]
        report.faults["duplicate_delivery"] = kinds["duplicate"]
        report.submits = len(
            {
                entry["submission"]
                for entry in diary
                if (entry["kind"], entry.get("status", 201)) in (("submit", 201), ("seen", 201))
            }
        )
        report.verdicts = sum(one["status"] >= 0 for one in snapshot.submissions)
        report.rejudges = sum(
            entry["kind"] == "rejudge" and entry["status"] == 202 for entry in diary
        )
        report.failover_gaps_s = failover_gaps(self._faults, diary)
        report.reclaim_delays_s = reclaim_delays(self._deaths, diary, snapshot)


def failover_gaps(faults: list[Fault], diary: list[dict[str, Any]]) -> list[float]:
    """How long after each fault of the primary nothing was acknowledged, at the longest."""
    acknowledged = [
        entry["at"] for entry in diary if entry.get("status") in (201, 204) and "kind" in entry
    ]
    gaps = []
    for fault in faults:
        if not fault.name.startswith("primary"):
            continue
        near = [at for at in acknowledged if fault.at - 1 <= at <= fault.at + 25]
        gaps.append(max((b - a for a, b in pairwise(near)), default=25.0))
    return gaps


def reclaim_delays(
    deaths: list[tuple[float, int]], diary: list[dict[str, Any]], snapshot: Snapshot
) -> list[float]:
    """From a runner's death to the next lease on the job it held. `deaths`: when, and whose."""
    delays = []
    history = {job["_id"]: job["history"] for job in snapshot.jobs}
    for died_at, number in deaths:
        name = f"runner-{number}"
        held: dict[str, Any] | None = None
        runner_id = ""
        for entry in diary:
            if entry["at"] > died_at:
                break
            if entry["kind"] == "registered" and entry["name"] == name:
                runner_id, held = entry["runner"], None
            elif entry.get("runner") == runner_id:
                held = entry if entry["kind"] == "leased" else None
        later = [
            entry["at"].timestamp() - died_at
            for entry in history.get(held["submission"] if held else "", ())
            if entry["event"] == "reclaim" and entry["at"].timestamp() > died_at
        ]
        delays += later[:1]
    return delays


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, help="keep diaries and logs here")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"chaos: seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="judge-chaos-"))
    try:
        with ReplicaSet(folder / "set") as replica_set:
            report = Chaos(replica_set, replica_set.uri, folder, seed).run(options.seconds)
        print(report)
        if options.keep:
            shutil.copytree(folder, options.keep, dirs_exist_ok=True)
        return 1 if report.findings else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
