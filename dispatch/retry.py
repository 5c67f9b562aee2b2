"""The retry rule: what becomes of a job whose lease ended without a result.

Guarantees: one table (`table`) and one decision (`decide`), both pure. I5: attempts never pass
`max_attempts`. I9: a job is given up, and lands a judge error, only once its attempts are used up
and either two runners had it or `give_up_s` have passed since its first failure.

`docs/retries.md` shows the table to people; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from dispatch.lease import LeaseRules
from dispatch.records import Job


class LeaseEnd(StrEnum):
    """How a lease ended without a result. Kept in the job's history, as its `reason`."""

    DRAIN = "drain"
    """The runner shuts down, and had not begun."""
    PREP_FAILED = "prep_failed"
    """The runner could not prepare the job, or could not run a case."""
    REJECTED = "rejected"
    """The runner does not take such jobs."""
    JUDGE_ERROR = "judge_error"
    """The runner reported a judge error of a case."""
    INVALID_RESULT = "invalid_result"
    """The lease ran out after a result that does not fit what was handed out."""
    LOST = "lost"
    """The lease ran out."""
    OVERDUE = "overdue"
    """The lease was renewed up to its ceiling, and ran out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One row of the table. Times in seconds.

    `pauses_s`: how long nobody is handed the job, by the attempts it has used; the last one also
    for what follows. `others_first_s`: for how long other runners go before the one that had it.
    """

    costs_attempt: bool
    pauses_s: tuple[float, ...]
    others_first_s: float

    def others_first_until(self, ended_at: datetime) -> datetime:
        """Return until when others go first, for a lease that ended then."""
        return ended_at + timedelta(seconds=self.others_first_s)

    def pause_s(self, attempts: int) -> float:
        """Return the pause after the lease that was the job's `attempts`-th, from 1 on."""
        if not self.pauses_s:
            return 0
        return self.pauses_s[min(max(attempts, 1), len(self.pauses_s)) - 1]


def table(rules: LeaseRules) -> Mapping[LeaseEnd, Rule]:
    """Return the whole retry rule."""
    failed = Rule(
        costs_attempt=True,
        pauses_s=rules.retry_pauses_s,
        others_first_s=rules.failed_head_start_s,
    )
    return {
        LeaseEnd.DRAIN: Rule(
            costs_attempt=False, pauses_s=(), others_first_s=rules.abort_head_start_s
        ),
        LeaseEnd.PREP_FAILED: failed,
        LeaseEnd.REJECTED: failed,
        LeaseEnd.JUDGE_ERROR: failed,
        LeaseEnd.INVALID_RESULT: failed,
        LeaseEnd.LOST: Rule(
            costs_attempt=True, pauses_s=(), others_first_s=rules.orphan_head_start_s
        ),
        LeaseEnd.OVERDUE: Rule(
            costs_attempt=True, pauses_s=(), others_first_s=rules.failed_head_start_s
        ),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """The job waits again, for nobody until `not_before`.

    `refunded`: the lease costs no attempt; `counts_as_drain`: it is one of the refunds that a job
    has a bounded number of. `tried`: the lease counts as a try of the runner's.
    """

    others_first_until: datetime
    not_before: datetime | None = None
    refunded: bool
    counts_as_drain: bool = False
    tried: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class GiveUp:
    """The attempts are used up: a judge error lands."""


def decide(
    end: LeaseEnd,
    job: Job,
    rules: LeaseRules,
    now: datetime,
    *,
    jitter: float,
    problem_held: bool = False,
    held_until: datetime | None = None,
    runner_set_aside: bool = False,
) -> Retry | GiveUp:
    """Decide what becomes of a leased `job` that its runner gives back.

    `jitter`, from 0 to 1: how much of the jitter the pause gets. `problem_held`: the failure is the
    problem's, so the job pays nothing for it; it waits until `held_until`.
    `runner_set_aside`: it is known to be the runner's.
    """
    rule = table(rules)[end]
    others_first_until = rule.others_first_until(now)
    if problem_held and rule.costs_attempt:
        return Retry(refunded=True, not_before=held_until, others_first_until=now)
    free = not rule.costs_attempt or runner_set_aside
    if free and job.attempts > 0 and job.drain_refunds < rules.drain_refunds_max:
        return Retry(refunded=True, counts_as_drain=True, others_first_until=others_first_until)
    pause_s = rule.pause_s(job.attempts) * (1 + rules.retry_jitter * jitter)
    again = Retry(
        # Too early to blame the job: one more try than the attempts say.
        refunded=job.attempts >= rules.max_attempts,
        tried=True,
        not_before=now + timedelta(seconds=pause_s) if pause_s else None,
        others_first_until=others_first_until,
    )
    return GiveUp() if again.refunded and may_give_up(job, rules, now) else again


def may_give_up(job: Job, rules: LeaseRules, now: datetime) -> bool:
    """Tell whether enough was tried to blame the job: two runners, or `give_up_s` of trying.

    As `JobStore.exhausted` asks of the database.
    """
    if job.tried >= rules.give_up_runners:
        return True
    give_up_after = timedelta(seconds=rules.give_up_s)
    return (job.first_failed_at or now) <= now - give_up_after


def ended_by(job: Job) -> LeaseEnd:
    """Tell how the lease of an orphan ended."""
    if job.invalid_result:
        return LeaseEnd.INVALID_RESULT
    # A renewal pushes the deadline past the ceiling at most once.
    ceiling, deadline = job.renew_until, job.lease_deadline
    if ceiling is not None and deadline is not None and deadline >= ceiling:
        return LeaseEnd.OVERDUE
    return LeaseEnd.LOST
