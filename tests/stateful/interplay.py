"""The stateful test's ground: the real queue beside the model, landings that wait, the checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from dispatch.invariants import check_document, check_pair, check_step
from dispatch.job import Ended
from dispatch.queue import Queue
from dispatch.runner import TOUCHES_A_LIFE
from tests.stateful.bench import (
    ALIVE_S,
    RULES,
    Bench,
    Gate,
    LandingFailed,
    MortalCollection,
    ParkedCall,
    Time,
)
from tests.stateful.model import Model, ModelJob, ModelLanding, ModelRunner

PARKED_MAX = 3
JOB_FIELDS = [name for name in ModelJob.__dataclass_fields__ if name != "submission_id"]


@dataclass
class Parked:
    """A landing that waits at a gate."""

    call: ParkedCall
    process: MortalCollection
    landing: ModelLanding
    kind: str


class Interplay(RuleBasedStateMachine):
    """The real queue and the model, kept in step. What may happen is added by a subclass."""

    bench: Bench

    def __init__(self) -> None:
        super().__init__()
        self.bench.empty("jobs", "submissions", "dispatch_control", "runners")
        self.now = self.bench.now = Time()
        self.queue = self.bench.queue
        self.model = Model(RULES, ALIVE_S)
        self.ids: dict[str, tuple[str, str]] = {}
        self.old_tokens: dict[str, list[str]] = {}
        self.claim_ids: dict[str, str] = {}
        self.parked: list[Parked] = []
        self.restores: list[tuple[str, int]] = []
        self.marks: list[tuple[str, str, int]] = []
        self.values = 0
        self.before: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def teardown(self) -> None:
        for parked in self.parked:
            parked.process.dead = True
            parked.call.go_on("raise")

    # -- landings --------------------------------------------------------------------------

    def land(
        self, call: Callable[[Queue, Gate], Any], landing: ModelLanding, plan: str, kind: str
    ) -> None:
        """Run a call that begins `landing`, and have the model follow it as far as it goes."""
        queue, process = self.bench.mortal_queue()
        if plan == "park" and len(self.parked) < PARKED_MAX:
            parked = Parked(ParkedCall(lambda gate: call(queue, gate)), process, landing, kind)
            parked.call.start()
            assert parked.call.at == "result", parked.call.error or parked.call.answer
            self.parked.append(parked)
            return
        parked = Parked(ParkedCall(lambda gate: None), process, landing, kind)
        try:
            parked.call.answer = call(queue, _raising_at(plan))
        except LandingFailed as error:
            parked.call.error = error
        at: str | None = "result"
        while at is not None and at != plan:
            at = self.pass_gate(landing, at)
        if at is None:
            self.check_answer(parked)
        else:
            self.model.fail(landing, self.now())
            self.check_failed(parked)

    def pass_gate(self, landing: ModelLanding, at: str) -> str | None:
        """Have the model's landing pass the gate `at`; return the next gate."""
        if at == "result":
            self.model.write(landing)
            return None if landing.says == "dropped" else "counters"
        if at == "counters":
            self.model.count(landing)
            return "end"
        return None

    def follow(self, parked: Parked, at: str) -> None:
        expected = self.pass_gate(parked.landing, at)
        assert parked.call.at == expected, parked.call.error
        if expected is None:
            self.check_answer(parked)
        else:
            self.parked.append(parked)

    def check_answer(self, parked: Parked) -> None:
        assert parked.call.error is None, parked.call.error
        told = self.model.end(parked.landing, self.now())
        expected = {
            "complete": told,
            "abort": Ended.EXHAUSTED,
            "sweep": int(told is Ended.LANDED),
        }
        assert parked.call.answer == expected[parked.kind]

    def check_failed(self, parked: Parked) -> None:
        assert parked.call.at is None
        if parked.kind == "complete":
            assert isinstance(parked.call.error, LandingFailed)
        else:
            assert parked.call.error is None
            assert parked.call.answer == (Ended.EXHAUSTED if parked.kind == "abort" else 0)

    # -- helpers ---------------------------------------------------------------------------

    def tick(self) -> None:
        self.now.advance(0.001)

    def seen(self, name: str) -> ModelRunner:
        runner = self.model.runners[name]
        if (self.now() - runner.last_seen).total_seconds() >= ALIVE_S / TOUCHES_A_LIFE:
            runner.last_seen = self.now()
        return runner

    def held(self) -> list[ModelJob]:
        return [job for job in self.model.jobs.values() if job.state in ("leased", "landing")]

    def forget_token(self, job: ModelJob) -> None:
        if job.lease_token is not None:
            self.old_tokens.setdefault(job.submission_id, []).append(job.lease_token)

    def aimed_at(self, caller: str, pick: int, token: str) -> tuple[str, str, str | None]:
        """Return the runner, job id and token of a call: a holder's own, or somebody else's."""
        leases = [job for job in self.held() if job.leased_by is not None]
        if caller == "holder" and leases:
            job = pick_one(leases, pick)
            assert job.leased_by is not None
            runner_id, job_id = job.leased_by, job.job_id
        else:
            runner_id = self.ids["A" if caller == "holder" else caller][0]
            job_id = pick_one([*self.model.every_id[::-1], "jb_unknown"], pick)
            found = self.model.by_job_id(job_id)
            if found is None:
                return runner_id, job_id, None
            job = found
        old = self.old_tokens.get(job.submission_id)
        if token == "old" and old:
            return runner_id, job_id, old[-1]
        return runner_id, job_id, None if token == "none" else job.lease_token

    # -- what must be true after every step ------------------------------------------------

    @invariant()
    def the_database_is_as_the_model_says(self) -> None:
        jobs, submissions = self.bench.raw()
        assert jobs.keys() == self.model.jobs.keys()
        for submission_id, job in self.model.jobs.items():
            stored = jobs[submission_id]
            differing = {
                name: (stored.get(name), getattr(job, name))
                for name in JOB_FIELDS
                if (stored.get(name) or None) != (getattr(job, name) or None)
            }
            assert not differing, f"(stored, expected) of {submission_id}: {differing}"
        for submission_id, expected in self.model.submissions.items():
            stored = submissions[submission_id]
            landed = stored.get("result")
            assert (stored["fence"], stored["status"], stored.get("counted")) == (
                expected.fence,
                expected.status,
                expected.counted,
            )
            assert (landed and (landed["job_id"], landed["value"])) == expected.result
        self.check_documents(jobs, submissions)
        self.before = jobs, submissions

    def check_documents(self, jobs: dict[str, Any], submissions: dict[str, Any]) -> None:
        """I1 to I5 and I7, on the raw documents alone."""
        old_jobs, old_submissions = self.before
        for submission_id, job in jobs.items():
            found = check_document(job, RULES)
            found += check_pair(job, submissions[submission_id])
            if submission_id in old_jobs:
                found += check_step(old_jobs[submission_id], job)
            assert not found, [str(violation) for violation in found]
            submission = submissions[submission_id]
            old_fence = old_submissions.get(submission_id, submission)["fence"]
            assert old_fence <= submission["fence"] <= job["fence"]
            if job["state"] == "done" and job["outcome"] == "cancelled":
                assert submission["result"] is not None
                if "restore_due" not in job:
                    assert submission["result"]["value"] == submission["counted"]
            elif job["state"] == "done" and job.get("preview"):
                assert submission["result"]["job_id"] != job["job_id"]
            elif job["state"] == "done":
                assert submission["result"]["job_id"] == job["job_id"]
                assert submission["result"]["value"] == submission["counted"]


def pick_one(from_: list[Any], pick: int) -> Any:
    return from_[pick % len(from_)]


def no_gate(name: str) -> None:
    """Let a landing through."""


def _raising_at(plan: str) -> Gate:
    def gate(name: str) -> None:
        if name == plan:
            raise LandingFailed(name)

    return gate
