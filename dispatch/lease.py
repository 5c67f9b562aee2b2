"""Lease arithmetic: deadlines, attempts, refunds. Pure functions of values.

Guarantees: no clock and no database; the same numbers give the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRules:
    """The numbers of the protocol. Durations in seconds."""

    lease_ttl_s: float = 30
    landing_ttl_s: float = 10
    """A landing may be begun again by its owner after this. Heartbeats do not move it."""
    max_attempts: int = 3
    drain_refunds_max: int = 20
    """How often one job may be drained for nothing, so that no job circles for ever."""
    abort_head_start_s: float = 5
    """How long other runners are preferred after a runner gave a job back."""
    failed_head_start_s: float = 600
    """How long a job is kept from a runner that failed at it while there are others. Long: a
    broken runner is the fastest of all, and would burn the attempts of a whole queue. Bounded:
    the others may look alive and never come for it."""
    failures_max: int = 5
    """Failures in a row after which a runner rests, and is set aside once others judged those."""
    orphan_head_start_s: float = 0.5
    """The same after a runner lost a job; below 1 s, so that no orphan waits longer."""

    def lease_deadline(self, now: datetime) -> datetime:
        """Return when a lease taken or renewed at `now` runs out."""
        return now + timedelta(seconds=self.lease_ttl_s)

    def landing_deadline(self, now: datetime) -> datetime:
        """Return when a landing begun at `now` may be begun again."""
        return now + timedelta(seconds=self.landing_ttl_s)

    def head_start_after_abort(self, now: datetime) -> datetime:
        """Return until when others are preferred for a job given back at `now`."""
        return now + timedelta(seconds=self.abort_head_start_s)

    def head_start_after_failure(self, now: datetime) -> datetime:
        """Return until when others are preferred for a job that a runner failed at by `now`."""
        return now + timedelta(seconds=self.failed_head_start_s)

    def head_start_after_orphan(self, lease_deadline: datetime) -> datetime:
        """Return until when others are preferred for a job whose lease ran out."""
        return lease_deadline + timedelta(seconds=self.orphan_head_start_s)


def deadline_passed(deadline: datetime | None, now: datetime) -> bool:
    """I2: a lease is over if and only if its deadline has passed or is absent."""
    return deadline is None or deadline <= now
