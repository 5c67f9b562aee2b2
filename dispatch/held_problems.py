"""Problems whose jobs wait because runners cannot prepare them.

Guarantees: I9, I10. Where different runners fail at a problem, its jobs cost no attempts and no
runner rests for them: the problem is held, for one version of its test data, and the line moves on.
It is released by new test data, by an admin, or as soon as any runner judges a job of it again; one
job is handed out now and then to find that out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from dispatch import watch
from dispatch.clock import Clock
from dispatch.concerns import DURABLE, MAJORITY
from dispatch.control import HeldProblem
from dispatch.events import emit
from dispatch.health import Settled
from dispatch.queue import Queue
from dispatch.records import Job
from dispatch.retry import LeaseEnd

FAILURES_KEPT = 20
FAILURES_TOGETHER_S = 900.0
"""Failures further apart than this say nothing together."""
JUDGED_LATELY_S = 60.0
"""How far back a claim looks for a verdict that releases a problem: others looked before it."""
PROBE_FIRST_S = 5.0
AFTER_THE_PROBE = timedelta(seconds=1)
RUNNERS_MIN = 2
JOBS_MIN = 2
"""One job alone may be what is broken, unless the runner says that it is the problem."""
JOBS_MIN_ALONE = 3
"""Where a lone runner is all there is to tell by."""
MAY_BE_THE_PROBLEM = frozenset({LeaseEnd.PREP_FAILED, LeaseEnd.JUDGE_ERROR})


class AtFault(StrEnum):
    """What a runner holds to be at fault when it gives a job back."""

    MACHINE = "machine"
    PROBLEM = "problem"
    SUBMISSION = "submission"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """One job of a problem that a runner could not prepare. `surely`: the runner says so."""

    runner_id: str
    job_id: str
    at: datetime
    surely: bool
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """That a job's problem is held. `until`: until when the job waits whatever becomes of that."""

    until: datetime | None


def is_at_fault(failures: Sequence[Failure], *, alone: bool) -> bool:
    """Tell whether these failures, with no success between, are the problem's rather than others'.

    `alone`: no other runner could try.
    """
    runners = {failure.runner_id for failure in failures}
    jobs = {failure.job_id for failure in failures}
    if len(runners) >= RUNNERS_MIN:
        sure = {failure.runner_id for failure in failures if failure.surely}
        return len(jobs) >= JOBS_MIN or len(sure) >= RUNNERS_MIN
    return alone and len(jobs) >= JOBS_MIN_ALONE


def failed(
    queue: Queue,
    job: Job,
    runner_id: str,
    end: LeaseEnd,
    *,
    at_fault: AtFault | None,
    detail: str,
    now: Clock,
) -> Held | None:
    """Note that `runner_id` failed at `job`; return the hold of its problem, None: it is not held.

    Call it before the job is given back. Repeats change nothing.
    """
    if end not in MAY_BE_THE_PROBLEM or job.handed_out is None:
        return None
    if at_fault in (AtFault.MACHINE, AtFault.SUBMISSION):
        return None
    sha256 = job.handed_out.testdata_sha256
    held = queue.control.read().held_problems.get(job.problem_id)
    if held is not None and held.testdata_sha256 == sha256:
        # Another job is the next to be tried: this one may be what is broken.
        return Held(until=next_probe(queue, held, now()) + AFTER_THE_PROBE)
    failure = Failure(
        runner_id=runner_id,
        job_id=job.job_id,
        at=now(),
        surely=at_fault is AtFault.PROBLEM,
        detail=detail or end.value,
    )
    since_when = failure.at - timedelta(seconds=FAILURES_TOGETHER_S)
    noted = _note(queue, job.problem_id, sha256, failure)
    failures = [one for one in noted if one.at >= since_when]
    runners = {one.runner_id for one in failures}
    alone = not watch.other_ready(queue, sorted(runners), job.language, now=now)
    if not is_at_fault(failures, alone=alone):
        return None
    since = min(one.at for one in failures)
    if queue.jobs.was_judged(job.problem_id, sha256, since, _everybody(queue, now)):
        _forget(queue, job.problem_id, sha256)
        _note(queue, job.problem_id, sha256, failure)
        return None
    _hold(queue, job.problem_id, sha256, failures, now)
    return Held(until=None)


def _hold(
    queue: Queue, problem_id: int, sha256: str, failures: Sequence[Failure], now: Clock
) -> None:
    at = now()
    why = f"Runners cannot prepare its jobs: {failures[-1].detail}"
    held = HeldProblem(
        problem_id=problem_id,
        testdata_sha256=sha256,
        since=at,
        why=why,
        probe_at=at + timedelta(seconds=PROBE_FIRST_S),
    )
    if queue.control.hold_problem(held):
        emit("problem_held", problem_id=problem_id, testdata_sha256=sha256, why=why)
    for failure in failures:
        queue.runners.settle(failure.runner_id, failure.job_id, Settled.JOB_FAILED)
    _forget(queue, problem_id, sha256)


def look_again(
    queue: Queue, held: Collection[HeldProblem], *, now: Clock
) -> dict[int, HeldProblem]:
    """Release those of `held` that a runner has judged since; return the others by problem."""
    left: dict[int, HeldProblem] = {}
    everybody = _everybody(queue, now) if held else []
    for one in held:
        since = max(one.since, now() - timedelta(seconds=JUDGED_LATELY_S))
        if queue.jobs.was_judged(one.problem_id, one.testdata_sha256, since, everybody):
            release(queue, one.problem_id, why="judged", sha256=one.testdata_sha256)
        else:
            left[one.problem_id] = one
    return left


def release(queue: Queue, problem_id: int, *, why: str, sha256: str | None = None) -> bool:
    """Hand out the problem's jobs again; tell whether it was held."""
    released = queue.control.release_problem(problem_id, sha256)
    if released:
        emit("problem_released", problem_id=problem_id, why=why)
    return released


def next_probe(queue: Queue, held: HeldProblem, now: datetime) -> datetime:
    """Return when the next job of a held problem is tried: ever later, up to `problem_held_s`."""
    held_for_s = (now - held.since).total_seconds()
    return now + timedelta(seconds=min(max(held_for_s, PROBE_FIRST_S), queue.rules.problem_held_s))


def _everybody(queue: Queue, now: Clock) -> list[str]:
    return [runner.runner_id for runner in queue.runners.list(now=now())]


def _note(queue: Queue, problem_id: int, sha256: str, failure: Failure) -> list[Failure]:
    """Keep the failure beside others with that test data; return them, the oldest first."""
    kept = queue.problem_failures.with_options(write_concern=DURABLE, read_concern=MAJORITY)
    update = {
        "$set": {"at": failure.at},
        "$push": {"failures": {"$each": [asdict(failure)], "$slice": -FAILURES_KEPT}},
    }

    def push() -> dict[str, Any] | None:
        return kept.find_one_and_update(
            {"_id": _key(problem_id, sha256)},
            update,
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )

    try:
        document = push()
    except DuplicateKeyError:  # another process inserted it at the same moment
        document = push()
    return [Failure(**one) for one in (document or {}).get("failures", [])]


def _forget(queue: Queue, problem_id: int, sha256: str) -> None:
    kept = queue.problem_failures.with_options(write_concern=DURABLE)
    kept.delete_one({"_id": _key(problem_id, sha256)})


def _key(problem_id: int, sha256: str) -> str:
    return f"{problem_id}/{sha256}"
