"""Lease arithmetic: deadlines, attempts, refunds. Pure functions of values.

Guarantees: no clock and no database; the same numbers give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from dispatch.contract import TaskSpec

CEILING_S_MIN = 300.0
CEILING_FACTOR = 2
COMPILE_S = 30.0
"""What a runner may take to compile."""
WALL_FACTOR = 2
WALL_EXTRA_S = 1.0
"""What a program may take beside its time limit, by the wall clock, before a runner stops it."""
CASE_EXTRA_S = 1.0
"""What a runner takes for a case beside running the program."""
RUNS_MAX = 3
"""How often a runner may run one case, where its machine is busy."""


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
    retry_pauses_s: tuple[float, ...] = (5, 30, 120)
    """How long a job that a runner failed at is handed to nobody, by the attempts it has used."""
    retry_jitter: float = 0.2
    """By how much of itself such a pause may grow, so that what failed together does not return
    together."""
    max_concurrent_jobs: int | None = None
    """How many leases in force a runner may have; `None`: any number. Polls of one runner at the
    same moment may pass it by as many as they are."""
    give_up_runners: int = 2
    """A job whose attempts are used up is given up once so many runners had it ..."""
    give_up_s: float = 300
    """... or so long after its first failure."""
    overtime_pause_s: float = 120
    """How long an orphan waits whose attempts are used up, and that is not given up yet."""
    problem_held_s: float = 300
    """How often a job of a held problem is handed out, to see whether it can be judged again."""

    def lease_deadline(self, now: datetime) -> datetime:
        """Return when a lease taken or renewed at `now` runs out."""
        return now + timedelta(seconds=self.lease_ttl_s)

    def landing_deadline(self, now: datetime) -> datetime:
        """Return when a landing begun at `now` may be begun again."""
        return now + timedelta(seconds=self.landing_ttl_s)

    def renew_until(self, now: datetime, tasks: Iterable[TaskSpec]) -> datetime:
        """Return until when a lease taken at `now` may be renewed: a runner may hang for ever."""
        return now + timedelta(seconds=lease_ceiling_s(tasks))


def lease_ceiling_s(tasks: Iterable[TaskSpec]) -> float:
    """Return how long a sound runner may need at most for all cases, twice over."""
    running_s = sum(
        (WALL_FACTOR * task.time_limit_ms / 1000 + WALL_EXTRA_S + CASE_EXTRA_S) * task.case_count
        for task in tasks
    )
    return max(CEILING_S_MIN, CEILING_FACTOR * (COMPILE_S + RUNS_MAX * running_s))


def deadline_passed(deadline: datetime | None, now: datetime) -> bool:
    """I2: a lease is over if and only if its deadline has passed or is absent."""
    return deadline is None or deadline <= now
