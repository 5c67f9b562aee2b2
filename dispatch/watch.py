"""Keeping book of runners that fail, and setting aside the broken ones.

Guarantees: nothing here decides about a lease or a landing, and nothing here fails one: what
cannot be noted is logged and let go. Setting aside is one conditional write, so it is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from typing import ParamSpec

from pymongo.errors import PyMongoError

from dispatch import health, probation
from dispatch.clock import Clock
from dispatch.events import emit
from dispatch.health import Kind, Settled, Trouble
from dispatch.queue import Queue
from dispatch.records import Job
from dispatch.runner import Runner
from dispatch.states import Outcome

P = ParamSpec("P")


def _noted(note: Callable[P, None]) -> Callable[P, None]:
    """Let the failure of a note pass: the job it is about has been dealt with."""

    @wraps(note)
    def tried(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            note(*args, **kwargs)
        except PyMongoError as error:
            emit("runner_note_failed", note=note.__name__, error=type(error).__name__)

    return tried


@_noted
def gave_back(queue: Queue, runner_id: str, job_id: str, reason: str, *, now: Clock) -> None:
    """Note that the runner gave a job back; `reason` as in the abort."""
    queue.runners.note_trouble(runner_id, kind=Kind(reason), job_id=job_id, now=now())


@_noted
def lost(queue: Queue, orphan: Job, *, now: Clock) -> None:
    """Note that the lease of `orphan`, as it was then, ran out in its owner's hands."""
    if orphan.leased_by is None:
        return
    runner = queue.runners.get(orphan.leased_by)
    if runner is None:
        return
    over_at = orphan.lease_deadline
    there = over_at is not None and runner.last_seen > over_at
    queue.runners.note_trouble(
        runner.runner_id,
        kind=Kind.LOST if there else Kind.CUT_OFF,
        job_id=orphan.job_id,
        # When it was lost, not when somebody came for it: what was lost together is told so.
        now=over_at or now(),
    )


@_noted
def landed(
    queue: Queue,
    runner_id: str,
    done: Job,
    *,
    now: Clock,
    troubled: bool = False,
) -> None:
    """Note what `done`, landed by the runner, says about it and about those before it.

    `troubled`: it is known for troubles.
    """
    if done.outcome is not Outcome.VERDICT:
        return
    if troubled:
        queue.runners.judged(runner_id, now=now())
    for blamed in health.failed_at(done) - {runner_id}:
        runner = queue.runners.settle(blamed, done.job_id, Settled.OTHERS_JUDGED)
        if runner is not None:
            _set_aside_if_broken(queue, runner, now)


@_noted
def exhausted(queue: Queue, done: Job) -> None:
    """Note that the job ended as a judge error: its failures were not the runners'."""
    if done.outcome is not Outcome.JUDGE_ERROR:
        return
    for runner_id in health.failed_at(done):
        queue.runners.settle(runner_id, done.job_id, Settled.JOB_FAILED)


def _set_aside_if_broken(queue: Queue, runner: Runner, now: Clock) -> None:
    failures_max = queue.rules.failures_max
    if runner.set_aside is not None or not health.is_broken(runner.troubles, failures_max):
        return  # The judgement below can only be milder.
    row = _row(queue, runner, now)
    if not health.is_broken(row, failures_max):
        return
    why = f"It failed at {len(row)} jobs in a row that others then judged."
    if queue.runners.set_aside(runner.runner_id, why=why, now=now()):
        emit("runner_set_aside", runner_id=runner.runner_id, name=runner.name, why=why)


def languages_for(
    queue: Queue, runner: Runner, languages: tuple[int, ...], *, now: Clock
) -> tuple[int, ...]:
    """Return those of `languages` whose jobs the runner may be given now.

    None to one that drains or is set aside. To one that rests, only what nobody else can judge:
    a lone runner is never starved.
    """
    if runner.gets_nothing:
        return ()
    if not rests(queue, runner, now=now):
        return languages
    return tuple(
        language
        for language in languages
        if not other_ready(queue, (runner.runner_id,), language, now=now)
    )


def other_ready(queue: Queue, but: Sequence[str], language: int, *, now: Clock) -> bool:
    """Tell whether a runner not in `but` was seen lately that gets jobs in `language` now.

    One that rests does not: were it to count, all that rest would wait for one another. Nor does
    one that is on probation for the language.
    """
    return any(
        language in probation.may_judge(other.checks, (language,), queue.known_programs)
        and not rests(queue, other, now=now)
        for other in queue.runners.others_alive(but, language, now=now())
    )


def rests(queue: Queue, runner: Runner, *, now: Clock) -> bool:
    """Tell whether the runner is kept from jobs after failures in a row."""
    # Asked first: it needs no database.
    known = health.failures_in_a_row(runner.troubles, runner.judged_at, lost_within=_lease(queue))
    return _rests(queue, known, now) and _rests(queue, _row(queue, runner, now), now)


def _rests(queue: Queue, row: list[Trouble], now: Clock) -> bool:
    rest = timedelta(seconds=queue.rules.failed_head_start_s)
    return health.rests(row, now(), failures_max=queue.rules.failures_max, rest=rest)


def _row(queue: Queue, runner: Runner, now: Clock) -> list[Trouble]:
    last_judged_at = queue.jobs.last_judged_at(runner.runner_id, now())
    if runner.judged_at is not None:
        # Rejudges and retention take jobs out of sight; that they were judged stays true.
        last_judged_at = max(runner.judged_at, last_judged_at or runner.judged_at)
    return health.failures_in_a_row(runner.troubles, last_judged_at, lost_within=_lease(queue))


def _lease(queue: Queue) -> timedelta:
    return timedelta(seconds=queue.rules.lease_ttl_s)
