"""Why a job waits, for people: what would have to change before a runner gets it.

Guarantees: reads only; what it says was true when it looked, and it holds nothing up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from dispatch import checks
from dispatch.clock import Clock
from dispatch.job import PRIORITY_BULK_REJUDGE
from dispatch.lease import deadline_passed
from dispatch.queue import Queue
from dispatch.records import Job

PLACES_MAX = 1_000
"""How far the place in line is counted: further back nobody reads the number."""


class Cause(Enum):
    """What keeps a waiting job from a runner."""

    PAUSED = auto()
    NOT_READY = auto()
    PROBLEM_HELD = auto()
    REJUDGE_HELD = auto()
    PAUSES = auto()
    """A runner has failed at it; it is handed to nobody for a moment."""
    NO_RUNNER_ALIVE = auto()
    NO_RUNNER_FOR_LANGUAGE = auto()
    RUNNERS_KEPT_BACK = auto()
    """There are runners for it, and all of them are set aside or drain."""
    RUNNERS_ON_PROBATION = auto()
    """There are runners for it, and those that are given jobs have yet to pass a check."""
    IN_LINE = auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """Why a job waits. `ahead`: how many jobs come before it, at most `PLACES_MAX`.

    `until`: for how long at the most, where that is known. `why`: what is known of the cause.
    """

    cause: Cause
    ahead: int = 0
    until: datetime | None = None
    why: str = ""


def outlook(queue: Queue, job: Job, *, problem_ready: bool, now: Clock) -> Outlook:
    """Return what keeps a pending job from a runner, the most thorough obstacle first."""
    switches = queue.control.read()
    if switches.paused is not None:
        return Outlook(cause=Cause.PAUSED)
    if not problem_ready:
        return Outlook(cause=Cause.NOT_READY)
    held = switches.held_problems.get(job.problem_id)
    if held is not None:
        return Outlook(cause=Cause.PROBLEM_HELD, until=held.probe_at, why=held.why)
    if job.rejudge_id in switches.held_rejudges and job.priority <= PRIORITY_BULK_REJUDGE:
        return Outlook(cause=Cause.REJUDGE_HELD)
    at = now()
    alive = [
        runner for runner in queue.runners.list(now=at) if queue.runners.is_alive(runner, now=at)
    ]
    if not alive:
        return Outlook(cause=Cause.NO_RUNNER_ALIVE)
    able = [runner for runner in alive if runner.judges(job.language)]
    if not able:
        return Outlook(cause=Cause.NO_RUNNER_FOR_LANGUAGE)
    if all(runner.gets_nothing for runner in able):
        return Outlook(cause=Cause.RUNNERS_KEPT_BACK)
    given = [checks.as_proven(queue, runner) for runner in able if not runner.gets_nothing]
    if not any(runner.judges(job.language) for runner in given):
        return Outlook(cause=Cause.RUNNERS_ON_PROBATION)
    if not deadline_passed(job.not_before, at):
        return Outlook(cause=Cause.PAUSES, until=job.not_before)
    return Outlook(cause=Cause.IN_LINE, ahead=queue.jobs.ahead_of(job, PLACES_MAX))
