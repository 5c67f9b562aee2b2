"""One process of the crowd: eight runners on the real server's clock, some of which die."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pymongo import MongoClient

from dispatch import job as verbs
from dispatch.clock import ServerClock
from dispatch.lease import LeaseRules
from dispatch.queue import Queue, open_queue
from dispatch.records import Job
from dispatch.runner import Runner
from tests.stateful.bench import HANDED_OUT, Bench, result

RULES = LeaseRules(
    lease_ttl_s=1.5,
    landing_ttl_s=0.5,
    max_attempts=50,
    abort_head_start_s=0.05,
    orphan_head_start_s=0.05,
    retry_pauses_s=(),
    give_up_s=0,
)
RUNNERS = 8
DIE_SHARE, DRAIN_SHARE, HANG_SHARE = 0.05, 0.05, 0.03
LOOKS_EMPTY_MAX_S = 30.0


class CrowdRunner:
    """Judges; dies mid-job and comes back late; drains; loses answers; lands slowly."""

    def __init__(self, queue: Queue, bench: Bench, now: ServerClock, name: str) -> None:
        self._queue, self._bench, self._now = queue, bench, now
        self._random = random.Random(name)
        self._finished = threading.Event()
        runner, _ = queue.runners.register(name=name, languages=None, now=now())
        self._runner: Runner = runner
        self._wishes = 0
        self._late: list[Job] = []
        # It comes back when all is over, so that somebody else has judged its job for sure.
        self._latest: list[Job] = []
        self.counts: Counter[str] = Counter()

    def work(self) -> Counter[str]:
        """Work until every job is done."""
        empty_since = time.monotonic()
        while time.monotonic() - empty_since < LOOKS_EMPTY_MAX_S:
            job = self._claim()
            if self._late and (job is None or self._random.random() < 0.05):
                self._complete(self._late.pop(0), "late")
            if job is not None:
                empty_since = time.monotonic()
                self._handle(job)
            elif self._all_done():
                break
            else:
                self._finished.wait(0.02)
        for job in (*self._late, *self._latest):
            self._complete(job, "late")
        return self.counts

    def _all_done(self) -> bool:
        open_ = {"state": {"$in": ["pending", "leased", "landing"]}}
        return self._bench.database["jobs"].find_one(open_, {"_id": 1}) is None

    def _claim(self) -> Job | None:
        self._wishes += 1
        claim_id = f"wish-{self._wishes}"

        def ask() -> Job | None:
            return verbs.claim_next_job(
                self._queue,
                self._runner,
                hand_out=lambda _: HANDED_OUT,
                now=self._now,
                claim_id=claim_id,
            )

        job = ask()
        if job is not None and self._random.random() < 0.1:
            again = ask()
            # None: so slow that the lease was over by then.
            if again is not None and again.lease_token != job.lease_token:
                self.counts["two leases under one wish"] += 1
        return job

    def _handle(self, job: Job) -> None:
        self.counts["leases"] += 1
        fate = self._random.random()
        if fate < DIE_SHARE:
            (self._late if self._latest else self._latest).append(job)
        elif fate < DIE_SHARE + DRAIN_SHARE:
            ended = verbs.abort_job(
                self._queue,
                self._runner.runner_id,
                job.job_id,
                "drain",
                process_result=self._bench.landing(lambda gate: None),
                now=self._now,
                lease_token=job.lease_token,
            )
            self.counts[f"drain {ended.name}"] += 1
        else:
            if self._random.random() < 0.3:
                verbs.renew_leases(self._queue, self._runner.runner_id, [job.job_id], now=self._now)
            self._complete(job, "complete")

    def _complete(self, job: Job, what: str) -> None:
        value = self._random.randrange(1, 2**31)

        def gate(name: str) -> None:
            # The process hangs in the middle of the landing, past the landing deadline.
            if name == "counters" and hangs:
                self._finished.wait(RULES.landing_ttl_s * 1.2)

        hangs = self._random.random() < HANG_SHARE
        resends = [False, True] if self._random.random() < 0.1 else [False]
        for resent in resends:
            ended = verbs.complete_job(
                self._queue,
                self._runner.runner_id,
                job.job_id,
                result(value),
                process_result=self._bench.landing(gate),
                now=self._now,
                lease_token=None
                if self._random.random() < 0.5 and what != "late"
                else job.lease_token,
            )
            self.counts[f"{'resent' if resent else what} {ended.name}"] += 1


def crowd(uri: str, process: int) -> Counter[str]:
    """Run this process's runners to the end; return what they met."""
    with MongoClient(uri, tz_aware=True, w="majority") as client:
        database: Any = client.get_default_database()
        bench = Bench(database)
        queue = open_queue(database, rules=RULES)
        now = ServerClock(client)
        verbs.emit = lambda *args, **fields: None
        runners = [CrowdRunner(queue, bench, now, f"{process}.{n}") for n in range(RUNNERS)]
        with ThreadPoolExecutor(RUNNERS) as pool:
            return sum(pool.map(CrowdRunner.work, runners), Counter())
