"""Why a job waits, for people: what would have to change before a runner gets it.

Guarantees: reads only; what it says was true when it looked, and it holds nothing up.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from dispatch.clock import Clock
from dispatch.job import PRIORITY_BULK_REJUDGE
from dispatch.queue import Queue
from dispatch.records import Job

PLACES_MAX = 1_000
"""How far the place in line is counted: further back nobody reads the number."""


class Cause(Enum):
    """What keeps a waiting job from a runner."""

    PAUSED = auto()
    NOT_READY = auto()
    REJUDGE_HELD = auto()
    NO_RUNNER_ALIVE = auto()
    NO_RUNNER_FOR_LANGUAGE = auto()
    RUNNERS_KEPT_BACK = auto()
    """There are runners for it, and all of them are set aside or drain."""
    IN_LINE = auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """Why a job waits. `ahead`: how many jobs come before it, at most `PLACES_MAX`."""

    cause: Cause
    ahead: int = 0


def outlook(queue: Queue, job: Job, *, problem_ready: bool, now: Clock) -> Outlook:
    """Return what keeps a pending job from a runner, the most thorough obstacle first."""
    switches = queue.control.read()
    if switches.paused is not None:
        return Outlook(cause=Cause.PAUSED)
    if not problem_ready:
        return Outlook(cause=Cause.NOT_READY)
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
    return Outlook(cause=Cause.IN_LINE, ahead=queue.jobs.ahead_of(job, PLACES_MAX))
