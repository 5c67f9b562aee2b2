"""What the queue should do, in plain Python: one mutable job per submission, no database.

The stateful test runs every call against this and the real queue and compares answers and
documents. Ids and tokens are minted by the real one and told to the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dispatch.job import Ended
from dispatch.lease import LeaseRules
from dispatch.retry import LeaseEnd, table

HELD = ("leased", "landing")


@dataclass
class ModelRunner:
    """A runner, as far as preferences ask for it."""

    runner_id: str
    languages: tuple[int, ...] | None
    last_seen: datetime

    def judges(self, language: int) -> bool:
        return self.languages is None or language in self.languages


@dataclass
class ModelJob:
    """One submission's job."""

    submission_id: str
    job_id: str
    problem_id: int
    language: int
    queued_at: datetime
    fence: int
    state: str = "pending"
    priority: int = 0
    attempts: int = 0
    drain_refunds: int = 0
    leased_by: str | None = None
    lease_token: str | None = None
    claim_id: str | None = None
    lease_deadline: datetime | None = None
    landing_deadline: datetime | None = None
    outcome: str | None = None
    rejudge_id: str | None = None
    mark_due: int | None = None
    restore_due: int | None = None
    preview: bool = False
    avoid_runner: str | None = None
    avoid_until: datetime | None = None
    failed_by: list[str] = field(default_factory=list)
    failed_until: datetime | None = None
    given_back: dict[str, Any] | None = None
    replaced_ids: list[str] = field(default_factory=list)

    def over(self, now: datetime) -> bool:
        """Whether the lease is over (I2)."""
        return self.lease_deadline is None or self.lease_deadline <= now

    def end_lease(self) -> None:
        self.leased_by = self.lease_token = self.claim_id = None
        self.lease_deadline = self.landing_deadline = None


@dataclass
class ModelSubmission:
    """What landings and marks leave on a submission. `result`: (job id, value), None for JE."""

    job_id: str
    fence: int = 0
    status: int = -1
    result: tuple[str, int | None] | None = None
    counted: int | None = None


@dataclass
class ModelLanding:
    """A landing that has begun. `value` None: a judge error."""

    job: ModelJob
    job_id: str
    fence: int
    runner_id: str | None
    token: str | None
    value: int | None
    preview: bool
    says: str = ""


class Model:
    """The queue and the submissions."""

    def __init__(self, rules: LeaseRules, alive_s: float) -> None:
        self.rules = rules
        self.alive_s = alive_s
        self.jobs: dict[str, ModelJob] = {}
        self.submissions: dict[str, ModelSubmission] = {}
        self.runners: dict[str, ModelRunner] = {}
        self.paused = False
        self.held_rejudges: set[str] = set()
        self.not_ready: set[int] = set()
        self.every_id: list[str] = []

    def by_job_id(self, job_id: str) -> ModelJob | None:
        return next((job for job in self.jobs.values() if job.job_id == job_id), None)

    # -- claiming --------------------------------------------------------------------------

    def by_claim_id(self, runner_id: str, claim_id: str) -> ModelJob | None:
        return next(
            (
                job
                for job in self.jobs.values()
                if job.leased_by == runner_id and job.claim_id == claim_id
            ),
            None,
        )

    def claimable(self, runner: ModelRunner, now: datetime) -> list[ModelJob]:
        """Return the jobs of which one must be given out (all equally first), or nothing."""
        if self.paused:
            return []
        fitting = [
            job
            for job in self.jobs.values()
            if runner.judges(job.language) and job.problem_id not in self.not_ready
        ]
        line = sorted(
            (self._rank(job), index)
            for index, job in enumerate(fitting)
            if self.is_claimable(job, now)
        )
        ranked = [(rank, fitting[index]) for rank, index in line]
        free = [(rank, job) for rank, job in ranked if not self._puts_off(job, runner, now)]
        left = free or [
            (rank, job) for rank, job in ranked if not self._other_alive(runner, job, now)
        ]
        return [job for rank, job in left if rank == left[0][0]]

    def is_claimable(self, job: ModelJob, now: datetime) -> bool:
        orphan = job.state in HELD and job.over(now)
        if job.state == "pending":
            return job.rejudge_id not in self.held_rejudges or job.priority > -10
        return orphan and job.attempts < self.rules.max_attempts

    @staticmethod
    def _rank(job: ModelJob) -> tuple[Any, ...]:
        if job.state in HELD:
            return (0, 0, job.lease_deadline)
        return (1, -job.priority, job.queued_at)

    def _puts_off(self, job: ModelJob, runner: ModelRunner, now: datetime) -> bool:
        if job.state == "pending" and runner.runner_id in job.failed_by:
            return job.failed_until is not None and job.failed_until > now
        if job.state == "pending":
            return (
                job.avoid_runner == runner.runner_id
                and job.avoid_until is not None
                and job.avoid_until > now
            )
        if job.leased_by != runner.runner_id or job.lease_deadline is None:
            return False
        return table(self.rules)[LeaseEnd.LOST].others_first_until(job.lease_deadline) > now

    def _other_alive(self, runner: ModelRunner, job: ModelJob, now: datetime) -> bool:
        return any(
            other is not runner
            and other.runner_id not in job.failed_by
            and other.judges(job.language)
            and (now - other.last_seen).total_seconds() < self.alive_s
            for other in self.runners.values()
        )

    def take(
        self, job: ModelJob, runner_id: str, token: str, claim_id: str | None, now: datetime
    ) -> None:
        job.state, job.leased_by, job.lease_token, job.claim_id = (
            "leased",
            runner_id,
            token,
            claim_id,
        )
        job.lease_deadline, job.landing_deadline = self.rules.lease_deadline(now), None
        job.avoid_runner = job.avoid_until = job.given_back = None
        job.fence += 1
        job.attempts += 1

    def renew(self, runner_id: str, job_ids: list[str], now: datetime) -> None:
        for job in self.jobs.values():
            if job.leased_by == runner_id and job.state in HELD and job.job_id in job_ids:
                job.lease_deadline = self.rules.lease_deadline(now)

    # -- completing ------------------------------------------------------------------------

    def explain(
        self, runner_id: str, job_id: str, token: str | None, now: datetime, *, aborting: bool
    ) -> Ended | None:
        """Return the answer to one that may not act on the job, None to one that may."""
        job = self.by_job_id(job_id)
        if job is None:
            known = any(job_id in other.replaced_ids for other in self.jobs.values())
            return Ended.REPLACED if known else Ended.UNKNOWN_JOB
        if job.leased_by != runner_id or token not in (None, job.lease_token):
            return Ended.LEASE_LOST
        if job.state == "landing":
            dead = job.landing_deadline is None or job.landing_deadline <= now
            return None if dead and not aborting else Ended.IN_FLIGHT
        if job.state == "done":
            return Ended.LEASE_LOST if aborting else Ended.ALREADY_LANDED
        return None if job.state == "leased" else Ended.LEASE_LOST

    def begin(self, job_id: str, value: int, now: datetime) -> ModelLanding:
        job = self.by_job_id(job_id)
        assert job is not None
        job.state = "landing"
        job.fence += 1
        job.landing_deadline = self.rules.landing_deadline(now)
        job.lease_deadline = self.rules.lease_deadline(now)
        return ModelLanding(
            job, job_id, job.fence, job.leased_by, job.lease_token, value, job.preview
        )

    def _is_current(self, landing: ModelLanding) -> bool:
        job = landing.job
        return (job.state, job.job_id, job.fence) == ("landing", landing.job_id, landing.fence)

    def write(self, landing: ModelLanding) -> None:
        """The landing's first write. (JE keeps a real result that no mark has come over.)"""
        submission = self.submissions[landing.job.submission_id]
        if submission.fence > landing.fence:
            landing.says = "dropped"
            return
        submission.fence = landing.fence
        landing.says = "verdict"
        if landing.preview:
            # Its result is kept beside the submission's.
            landing.says = "judge_error" if landing.value is None else "verdict"
            return
        real = submission.result is not None and submission.result[1] is not None
        if landing.value is None and real and submission.status != -1:
            assert submission.result is not None
            if submission.result[0] == landing.job_id:
                return
        submission.result = (landing.job_id, landing.value)
        submission.status = 6 if landing.value is None else 0
        if landing.value is None:
            landing.says = "judge_error"

    def count(self, landing: ModelLanding) -> None:
        """The landing's second write."""
        if landing.preview:
            return
        submission = self.submissions[landing.job.submission_id]
        submission.counted = submission.result[1] if submission.result else None

    def end(self, landing: ModelLanding, now: datetime) -> Ended:
        """The landing's end; what its caller is told."""
        if self._is_current(landing):
            landing.job.state = "done"
            landing.job.outcome = landing.says
            landing.job.landing_deadline = None
            return Ended.LANDED
        if landing.runner_id is None:
            return Ended.EXHAUSTED
        told = self.explain(landing.runner_id, landing.job_id, landing.token, now, aborting=False)
        return told or Ended.IN_FLIGHT

    def fail(self, landing: ModelLanding, now: datetime) -> None:
        """The landing raised; a judge error's stays in place."""
        if landing.value is not None and self._is_current(landing):
            landing.job.state = "leased"
            landing.job.landing_deadline = None
            landing.job.lease_deadline = self.rules.lease_deadline(now)

    # -- giving back, giving up ------------------------------------------------------------

    def abort(
        self, runner_id: str, job_id: str, reason: str, token: str | None, now: datetime
    ) -> Ended | ModelLanding:
        job = self.by_job_id(job_id)
        if job is not None and job.state == "pending" and job.given_back is not None:
            back = job.given_back
            same = back["runner_id"] == runner_id and back["reason"] == reason
            if same and token in (None, back["lease_token"]):
                return Ended.ALREADY_GIVEN_BACK
        told = self.explain(runner_id, job_id, token, now, aborting=True)
        if told is not None:
            return told
        assert job is not None
        others_first_until = table(self.rules)[LeaseEnd(reason)].others_first_until(now)
        refunded = reason == "drain" and job.drain_refunds < self.rules.drain_refunds_max
        if not refunded and job.attempts >= self.rules.max_attempts:
            return self.exhaust(job, now)
        if refunded:
            job.attempts -= 1
            job.drain_refunds += 1
        else:
            job.failed_by = list(dict.fromkeys([*job.failed_by, runner_id]))
            job.failed_until = others_first_until
        job.given_back = {
            "runner_id": runner_id,
            "lease_token": job.lease_token,
            "reason": reason,
        }
        job.end_lease()
        job.state, job.queued_at = "pending", now
        if refunded:
            job.avoid_runner = runner_id
            job.avoid_until = others_first_until
        return Ended.GIVEN_BACK

    def exhausted(self, now: datetime) -> list[ModelJob]:
        return [
            job
            for job in self.jobs.values()
            if job.state in HELD and job.over(now) and job.attempts >= self.rules.max_attempts
        ]

    def exhaust(self, job: ModelJob, now: datetime) -> ModelLanding:
        job.end_lease()
        job.state = "landing"
        job.fence += 1
        job.landing_deadline = job.lease_deadline = self.rules.landing_deadline(now)
        return ModelLanding(job, job.job_id, job.fence, None, None, None, job.preview)

    # -- rejudging -------------------------------------------------------------------------

    def rejudge(
        self, job: ModelJob, job_id: str, priority: int, rejudge_id: str | None, now: datetime
    ) -> None:
        """`job_id` is the one that a replaced job gets."""
        job.fence += 1
        job.mark_due = job.fence
        job.preview = False
        if job.state == "pending":
            job.priority = max(job.priority, priority)
            job.rejudge_id = rejudge_id or job.rejudge_id
            return
        done = job.state == "done"
        job.replaced_ids = [*job.replaced_ids, job.job_id][-8:]
        job.end_lease()
        job.job_id, job.state, job.queued_at = job_id, "pending", now
        job.priority = priority if done else max(job.priority, priority)
        job.rejudge_id = rejudge_id
        job.attempts = job.drain_refunds = 0
        job.outcome = job.avoid_runner = job.avoid_until = job.given_back = None
        job.failed_by, job.failed_until = [], None

    def preview(self, job: ModelJob, job_id: str, rejudge_id: str, now: datetime) -> None:
        """A finished job gives way to one whose result will not count. Nothing is marked."""
        self.rejudge(job, job_id, -10, rejudge_id, now)
        job.mark_due, job.preview = None, True

    def mark(self, submission_id: str, job_id: str, fence: int) -> None:
        submission, job = self.submissions[submission_id], self.jobs[submission_id]
        if submission.fence < fence:
            submission.fence, submission.status, submission.job_id = fence, -1, job_id
        if job.job_id == job_id and job.mark_due is not None and job.mark_due <= fence:
            job.mark_due = None

    # -- cancelling, moving up ---------------------------------------------------------------

    def may_cancel(self, submission_id: str) -> bool:
        """Tell whether a rejudge is under way, and a result landed before it."""
        job, submission = self.jobs.get(submission_id), self.submissions[submission_id]
        if job is None or job.state == "done" or submission.result is None:
            return False
        return submission.status == -1 or job.mark_due is not None or job.preview

    def cancel(self, job: ModelJob) -> None:
        job.end_lease()
        job.state, job.outcome, job.given_back = "done", "cancelled", None
        job.fence += 1
        job.restore_due, job.mark_due = job.fence, None

    def bring_back(self, submission_id: str, fence: int) -> None:
        submission, job = self.submissions[submission_id], self.jobs[submission_id]
        assert submission.result is not None
        if submission.fence < fence:
            submission.fence = fence
            submission.status = 6 if submission.result[1] is None else 0
        submission.counted = submission.result[1]
        if job.restore_due is not None and job.restore_due <= fence:
            job.restore_due = None

    def move_to_front(self, job: ModelJob) -> None:
        others = [
            other.priority
            for other in self.jobs.values()
            if other.state == "pending" and other is not job
        ]
        if others:
            job.priority = max(job.priority, max(others) + 1)
