"""When a runner is the trouble rather than its jobs. Pure functions of values.

Guarantees: no clock and no database; the same troubles give the same judgement. A runner is blamed
for a failure only once somebody else judged the job, or it ended as the job's own fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from dispatch import states
from dispatch.records import Job
from dispatch.retry import LeaseEnd

TROUBLES_KEPT = 50
"""How many troubles are kept of a runner, the oldest forgotten first."""


class Kind(StrEnum):
    """What happened to a job in a runner's hands, short of a verdict."""

    DRAIN = "drain"
    PREP_FAILED = "prep_failed"
    REJECTED = "rejected"
    LOST = "lost"
    """Its lease ran out although the runner was there: it no longer listed the job."""
    CUT_OFF = "cut_off"
    """Its lease ran out while nothing was heard of the runner."""
    JUDGE_ERROR = "judge_error"
    """The runner itself reported that it could not judge."""


FAILURES = frozenset({Kind.PREP_FAILED, Kind.REJECTED, Kind.LOST, Kind.JUDGE_ERROR})
"""What may be the runner's fault. Draining is not, nor is a cut network, which would set aside
every healthy runner of a room at once."""


class Settled(StrEnum):
    """Whose fault a failure turned out to be."""

    OTHERS_JUDGED = "others_judged"
    JOB_FAILED = "job_failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """One job that came to nothing in a runner's hands."""

    at: datetime
    job_id: str
    kind: Kind
    settled: Settled | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Trouble:
        """Read it back from a runner."""
        settled = document.get("settled")
        return cls(
            at=document["at"],
            job_id=document["job_id"],
            kind=Kind(document["kind"]),
            settled=None if settled is None else Settled(settled),
        )


def failures_in_a_row(
    troubles: Sequence[Trouble], last_judged_at: datetime | None, *, lost_within: timedelta
) -> list[Trouble]:
    """Return the failures since the runner last judged something, one a job, oldest first.

    Jobs that turned out to be at fault themselves are left out. Leases lost within `lost_within` of
    one another are one failure: a runner that was cut off for a moment loses all it holds at once.
    """
    by_job: dict[str, Trouble] = {}
    for trouble in troubles:
        if trouble.kind not in FAILURES:
            continue
        if last_judged_at is not None and trouble.at <= last_judged_at:
            continue
        earlier = by_job.pop(trouble.job_id, None)
        if earlier is not None and trouble.settled is None:
            trouble = replace(trouble, settled=earlier.settled)
        by_job[trouble.job_id] = trouble
    row: list[Trouble] = []
    lost_at: datetime | None = None
    for trouble in sorted(by_job.values(), key=lambda trouble: trouble.at):
        if trouble.settled is Settled.JOB_FAILED:
            continue
        if trouble.kind is Kind.LOST:
            together = lost_at is not None and trouble.at <= lost_at + lost_within
            lost_at = trouble.at
            if together:
                continue
        row.append(trouble)
    return row


def is_broken(row: Sequence[Trouble], failures_max: int) -> bool:
    """Tell whether others judged enough of the jobs that the runner failed at in a row."""
    blamed = sum(trouble.settled is Settled.OTHERS_JUDGED for trouble in row)
    return blamed >= failures_max


def rests(row: Sequence[Trouble], now: datetime, *, failures_max: int, rest: timedelta) -> bool:
    """Tell whether the runner is to be kept from jobs until it is known whose fault it was.

    Not for ever: after `rest` it may try one more.
    """
    return len(row) >= failures_max and max(trouble.at for trouble in row) + rest > now


def failed_at(job: Job) -> set[str]:
    """Return the runners in whose hands the job, under its present id, came to nothing."""
    failed: set[str | None] = set()
    holder: str | None = None
    for entry in job.history:
        if entry.get("job_id") != job.job_id:
            continue
        runner_id = entry.get("runner_id")
        match entry.get("event"):
            case states.CLAIM.event:
                holder = runner_id
            case states.RECLAIM.event:
                failed |= {holder} - {runner_id}
                holder = runner_id
            case states.ABORT.event if entry.get("reason") != LeaseEnd.DRAIN:
                failed.add(runner_id)
            case states.EXHAUST_BEGINS.event:
                failed.add(holder)
            case _:
                pass
    return {runner_id for runner_id in failed if runner_id is not None}
