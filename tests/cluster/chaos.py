"""Full load while things break at random from a seed; then peace; then everything is read.

`make chaos` runs it for ten minutes. `python -m tests.cluster.chaos --seconds 600 --seed 7`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from dispatch.lease import LeaseRules
from mongo.rejudging import ACTIVE
from tests.cluster.chaos_faults import Faults
from tests.cluster.chaos_report import Report, failover_gaps, keep_evidence, reclaim_delays
from tests.cluster.checker import check
from tests.cluster.processes import Api, Player, prepare, service_environment
from tests.cluster.replica_set import ReplicaSet
from tests.cluster.snapshot import Retention, Snapshot
from tests.cluster.wire import ANSWER_S_MAX, read_diaries

RUNNERS, CLIENTS = 20, 50
LEASE_TTL_S, HEARTBEAT_S = 6.0, 2.0
PEACE_S_MAX = 900.0
STILL_S_MAX = 90.0
"""For how long nothing may move before what is open is called stuck. Longer than a lease."""
MAX_ATTEMPTS = 50
RULES = LeaseRules(lease_ttl_s=LEASE_TTL_S, max_attempts=MAX_ATTEMPTS)
RETENTION = Retention(after_s=15.0)
AGE_EVERY_S = 5.0
ADMINS_ACTS = (
    "rejudge",
    "front",
    "cancel",
    "bulk",
    "hold",
    "cancel_bulk",
    "apply",
    "discard",
    "edit",
)


class Chaos:
    """One run. `folder` keeps diaries, logs, and in the end what findings are about."""

    def __init__(
        self,
        replica_set: ReplicaSet,
        uri: str,
        folder: Path,
        seed: int,
        *,
        repeat: str,
        pause_s: float = 2.0,
    ) -> None:
        """`pause_s`: from a verdict to the client's next submit, on average.

        `repeat`: the command that runs the same again.
        """
        self._pause_s = pause_s
        self._set = replica_set
        self._uri = uri
        self._folder = folder
        self._seed = seed
        self._repeat = repeat
        self._environment = service_environment(
            uri,
            LEASE_TTL_S=str(LEASE_TTL_S),
            HEARTBEAT_INTERVAL_S=str(HEARTBEAT_S),
            MAX_ATTEMPTS=str(MAX_ATTEMPTS),
            JOB_RETENTION_DAYS="1",
        )
        # One keeps every program and output as a blob, the other small ones in the submission.
        self._apis = [
            Api({**self._environment, "INLINE_BYTES_MAX": inline}, folder / f"api{n}.log")
            for n, inline in enumerate(("-1", "16384"))
        ]
        self._runners: list[Player] = []
        self._stopping = threading.Event()

    def run(self, seconds: float) -> Report:
        """Load, faults, peace, checks. What was found is also in the folder.

        Raises:
            MemberDied: a member of the replica set ended by itself.
        """
        report = Report(self._seed, seconds, self._repeat)
        clients = None
        aging = threading.Thread(target=self._age_jobs)
        try:
            for api in self._apis:
                api.start()
            for api in self._apis:
                api.await_ready()
            prepare(self._apis[0])
            self._runners = [self._runner(number) for number in range(RUNNERS)]
            clients = self._clients()
            aging.start()
            faults = Faults(
                self._set,
                self._apis,
                self._runners,
                random.Random(self._seed),
                runner_paused_s=1.7 * LEASE_TTL_S,
            )
            faults.run(seconds)
            report.peace_s = self._make_peace(faults, clients)
            self._check(report, faults)
        finally:
            self._stopping.set()
            if aging.ident is not None:
                aging.join()
            for runner in self._runners:
                runner.signal(signal.SIGCONT)
                runner.kill()
            if clients is not None:
                clients.kill()
            for api in self._apis:
                api.kill()
            self._keep_members_logs()
        return report

    def _keep_members_logs(self) -> None:
        for member in self._set.members:
            if member.log.exists():
                shutil.copy(member.log, self._folder / f"member{member.number}.log")

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
            "rejudge_s": 0.5,
            "cancel": 0.4,
            "bulk_s": 3.0,
            "edit_s": 3.0,
            "lose": 0.03,
        }
        return Player("tests.cluster.chaos_clients", options, self._folder / "clients.log")

    def _age_jobs(self) -> None:
        """Time passes faster for jobs that are done: so that retention takes some."""
        with self._client() as client:
            while not self._stopping.wait(AGE_EVERY_S):
                try:
                    RETENTION.age(client.get_default_database(), datetime.now(UTC))
                except PyMongoError:
                    continue  # there is no primary; the next turn does it

    # -- peace ---------------------------------------------------------------------------

    def _make_peace(self, faults: Faults, clients: Player) -> float:
        """End all faults and the load; return how long it took until nothing was open."""
        began = time.monotonic()
        faults.end()
        clients.finish(PEACE_S_MAX)
        self._await_quiet()
        peace_s = time.monotonic() - began
        for runner in self._runners:
            runner.signal(signal.SIGTERM)
        for runner in self._runners:
            # A request under way may wait its whole time for an answer that was cut off.
            runner.finish(2 * ANSWER_S_MAX)
        return peace_s

    def _await_quiet(self) -> None:
        """Wait until nothing is open, or nothing moves any more: a slow machine gets its time."""
        until, still_until, moved = time.monotonic() + PEACE_S_MAX, 0.0, None
        while not self._is_quiet():
            was, moved = moved, self._moved()
            if was != moved:
                still_until = time.monotonic() + STILL_S_MAX
            if time.monotonic() > min(until, still_until):
                return
            time.sleep(0.5)

    def _moved(self) -> Any:
        """What changes with each transition of a job and each step of a bulk rejudge."""
        try:
            with self._client() as client:
                database = client.get_default_database()
                fences = {
                    "$group": {"_id": None, "jobs": {"$sum": 1}, "fences": {"$sum": "$fence"}}
                }
                states = {"$group": {"_id": ["$state", "$decided"], "items": {"$sum": 1}}}
                return (
                    list(database["jobs"].aggregate([fences])),
                    sorted(map(str, database["rejudge_items"].aggregate([states]))),
                )
        except PyMongoError:
            return None

    def _is_quiet(self) -> bool:
        try:
            with self._client() as client:
                database = client.get_default_database()
                open_ones = (
                    ("jobs", {"state": {"$ne": "done"}}),
                    ("jobs", {"mark_due": {"$gt": 0}}),
                    ("jobs", {"restore_due": {"$gt": 0}}),
                    ("submissions", {"status": -1}),
                    ("rejudges", {"state": {"$in": ACTIVE}}),
                    ("homeworks", {"recompute_due": True}),
                )
                return all(database[name].find_one(open_) is None for name, open_ in open_ones)
        except PyMongoError:
            return False

    def _client(self) -> MongoClient[dict[str, Any]]:
        return MongoClient(
            self._uri,
            tz_aware=True,
            readConcernLevel="majority",
            w="majority",
            serverSelectionTimeoutMS=5_000,
            socketTimeoutMS=5_000,
        )

    # -- checks --------------------------------------------------------------------------

    def _check(self, report: Report, faults: Faults) -> None:
        diary = read_diaries(self._folder)
        with self._client() as client:
            snapshot = Snapshot.of(client.get_default_database())
        report.findings = check(diary, snapshot, RULES, RETENTION)
        kinds = Counter(entry["kind"] for entry in diary)
        report.faults = Counter(fault.name for fault in faults.done)
        report.faults["answer_dropped"] = kinds["answer_dropped"]
        report.faults["duplicate_delivery"] = kinds["duplicate"]
        report.acts = Counter(
            entry["kind"]
            for entry in diary
            if entry["kind"] in ADMINS_ACTS and entry["status"] in (200, 202, 204)
        )
        report.submits = len(
            {
                entry["submission"]
                for entry in diary
                if (entry["kind"], entry.get("status", 201)) in (("submit", 201), ("seen", 201))
            }
        )
        report.verdicts = sum(one["status"] >= 0 for one in snapshot.submissions)
        report.retired = len(snapshot.submissions) - len(snapshot.jobs)
        report.failover_gaps_s = failover_gaps(faults.done, diary)
        report.reclaim_delays_s = reclaim_delays(faults.deaths, diary, snapshot)
        if report.findings:
            keep_evidence(self._folder, report, snapshot, diary)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, help="keep diaries and logs here, whatever is found")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    repeat = f'make chaos ARGS="--seconds {options.seconds:g} --seed {seed}"'
    print(f"chaos: {repeat}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="judge-chaos-"))
    failed = True
    try:
        with ReplicaSet(folder / "set") as replica_set:
            chaos = Chaos(replica_set, replica_set.uri, folder, seed, repeat=repeat)
            report = chaos.run(options.seconds)
        print(report)
        failed = bool(report.findings)
    except Exception:
        traceback.print_exc()
        print(f"chaos broke off; repeat it: {repeat}")
    finally:
        if options.keep:
            shutil.copytree(folder, options.keep, dirs_exist_ok=True)
        if failed:
            print(f"diaries, logs and the documents in question: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
