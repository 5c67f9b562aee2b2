"""One job on the real server, and every edge of the queue with its arguments filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dispatch.contract import new_job_id
from dispatch.records import Job
from dispatch.retry import LeaseEnd, Retry, decide
from dispatch.states import Outcome
from dispatch.store import JobStore
from tests.stateful.bench import HANDED_OUT, RULES, Bench, Time

A, B = "rn_A", "rn_B"
SHORT = {
    "used up": ("claim", "at the limit", "lease over"),
    "swept twice": ("exhaust_begins", "lease over", "exhaust_begins"),
    "is swept up": ("lease over", "at the limit", "exhaust_begins"),
}


def give_back(store: JobStore, job: Job, end: LeaseEnd, asked: Mapping[str, Any]) -> Job | None:
    """Give the job back as the retry rule says of it while it has attempts left."""
    retry = decide(end, replace(job, attempts=1), RULES, asked["now"], jitter=0)
    assert isinstance(retry, Retry)
    return store.give_back(job, **asked, end=end, retry=retry)


class Race:
    """One job, and every edge with its arguments filled in."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.store = bench.queue.jobs
        self.now = bench.now = Time()
        self.tokens = 0
        self.store.enqueue(
            submission_id="s1",
            job_id="jb_1",
            problem_id=1,
            language=0,
            priority=0,
            fence=1,
            now=self.now(),
        )

    @property
    def job(self) -> Job:
        job = self.store.get("s1")
        assert job is not None
        return job

    def raw(self) -> Any:
        return self.bench.database["jobs"].find_one({"_id": "s1"})

    def do(self, name: str) -> None:
        """Take an edge, or let time pass; it must succeed."""
        if name in SHORT:
            for step in SHORT[name]:
                self.do(step)
        elif name == "lease over":
            self.now.advance(RULES.lease_ttl_s)
        elif name == "landing over":
            self.now.advance(RULES.landing_ttl_s)
        elif name == "at the limit":
            self.bench.database["jobs"].update_one(
                {"_id": "s1"}, {"$set": {"attempts": RULES.max_attempts}}
            )
        elif name == "renew":
            assert self.store.renew(A, [self.job.job_id], self.now()) == 1
        else:
            assert self.take(name, self.job) is not None, name

    def take(self, name: str, job: Job) -> Job | None:
        """Take the edge called `name`, acting on what `job` says."""
        now = self.now()
        edge, _, who = name.partition(" by ")
        runner_id = {"A": A, "B": B}.get(who, A)
        asked: dict[str, Any] = {"runner_id": runner_id, "lease_token": None, "now": now}
        edges: dict[str, Callable[[], Job | None]] = {
            "claim": lambda: self.lease(self.store.claim, job, runner_id),
            "reclaim": lambda: self.lease(self.store.reclaim, job, runner_id),
            "complete_begins": lambda: self.store.begin_complete(job, **asked),
            "complete_ends": lambda: self.store.end_complete(job, outcome=Outcome.VERDICT, now=now),
            "complete_restore": lambda: self.store.restore(job, now=now, note="a test"),
            "drain": lambda: give_back(self.store, job, LeaseEnd.DRAIN, asked),
            "abort": lambda: give_back(self.store, job, LeaseEnd.REJECTED, asked),
            "exhaust_begins": lambda: self.store.begin_exhaust(job, now=now),
            "last abort": lambda: self.store.begin_exhaust_by_abort(
                job, **asked, end=LeaseEnd.REJECTED
            ),
            "exhaust_ends": lambda: self.store.end_exhaust(
                job, outcome=Outcome.JUDGE_ERROR, now=now
            ),
            "rejudge_pending": lambda: self.store.rejudge_pending(
                job, priority=5, rejudge_id=None, now=now
            ),
            "rejudge": lambda: self.store.rejudge(
                job, job_id=new_job_id(), priority=5, rejudge_id=None, now=now
            ),
            "cancel": lambda: self.store.cancel(job, only_from=None, note="a test", now=now),
            "repair": lambda: self.store.repair(
                {
                    "_id": job.submission_id,
                    "job_id": job.job_id,
                    "state": job.state.value,
                    "fence": job.fence,
                },
                job_id=new_job_id(),
                problem_id=1,
                language=0,
                fence=job.fence + 2,
                preview=False,
                now=now,
                note="a test",
            ),
            "move_to_front": lambda: self.store.move_to_front(job, priority=7, now=now),
        }
        return edges[edge]()

    def lease(self, edge: Callable[..., Job | None], job: Job, runner_id: str) -> Job | None:
        self.tokens += 1
        return edge(
            job,
            runner_id=runner_id,
            lease_token=f"token{self.tokens}",
            claim_id=None,
            handed_out=HANDED_OUT,
            now=self.now(),
        )
