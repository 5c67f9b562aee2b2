"""Checking runners: known programs, handed out as ordinary jobs, and what their answers lead to.

Guarantees: a check is in no queue, waits behind nobody and costs nobody an attempt; a runner knows
nothing of it. A runner off probation pays no database request for any of this until a check is due.
What cannot be noted of a job that has landed is logged and let go.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pymongo.errors import PyMongoError
from ulid import ULID

from dispatch import probation
from dispatch.check_store import CheckRecord
from dispatch.clock import Clock
from dispatch.contract import JudgeResult, KnownProgram, Verdict, new_job_id
from dispatch.events import emit
from dispatch.health import Kind
from dispatch.job import Ended
from dispatch.probation import Doubt, Due, OpenCheck
from dispatch.queue import Queue
from dispatch.runner import Runner
from dispatch.states import Outcome, State

CHECK_S_MAX = 300
"""How long heartbeats keep a check alive; by then any of the programs has ended."""
ROUNDS_MAX = 8
"""How often a poll looks again after losing a race before it says that there is no check."""
PROBATION_WAIT_S = 1.0
"""How long a poll of a runner on probation is held: its next check is due when one ends, which no
notice tells of."""
COUNTED_MAX = 10_000
"""How many doubtful jobs are counted."""
LOGGED_MAX = 50
"""How many of them the log names."""

COMPLETE, OVER = "complete", "over"
"""How a check ends; else as the reason of the abort says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A check as it is handed to a runner."""

    open: OpenCheck
    program: KnownProgram


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubtful:
    """What a runner may have judged wrong. `submission_ids` are the first of `total`."""

    total: int
    submission_ids: tuple[str, ...]


# -- handing out -----------------------------------------------------------------------------


def offered(queue: Queue, runner: Runner) -> tuple[int, ...]:
    """Return the languages that the runner offers to judge."""
    return tuple(language for language in queue.languages if runner.judges(language))


def on_probation(queue: Queue, runner: Runner) -> bool:
    """Tell whether the runner has to pass a check before it gets all that it offers to judge."""
    return probation.on_probation(runner.checks, offered(queue, runner), queue.known_programs)


def unproven(queue: Queue, runner: Runner) -> tuple[int, ...]:
    """Return the languages that the runner offers and is on probation for."""
    return probation.unproven(runner.checks, offered(queue, runner), queue.known_programs)


def as_proven(queue: Queue, runner: Runner) -> Runner:
    """Return the runner with the languages alone that it may be handed jobs in."""
    if not queue.known_programs:
        return runner
    languages = offered(queue, runner)
    proven = probation.may_judge(runner.checks, languages, queue.known_programs)
    return runner if proven == languages else replace(runner, languages=proven)


def next_check(queue: Queue, runner: Runner, *, claim_id: str | None, now: Clock) -> Check | None:
    """Hand the runner the check that is due, or None: there is none.

    Asked again with the same `claim_id`, it gets the same check, as long as it holds it.
    """
    current: Runner | None = runner
    for _ in range(ROUNDS_MAX):
        if current is None or current.gets_nothing or not queue.known_programs:
            return None
        at = now()
        over = [check for check in current.checks.open.values() if check.deadline <= at]
        if over:
            for check in over:
                _end(queue, current, check, how=OVER, now=now)
            current = queue.runners.get(runner.runner_id)
            continue
        repeated = _under(queue, current, claim_id)
        if repeated is not None:
            emit("claim_repeated", job_id=repeated.open.job_id, runner_id=runner.runner_id)
            return repeated
        languages = offered(queue, current)
        due = probation.due(current.checks, languages, queue.known_programs, at)
        if due is None:
            return None
        if claim_id is not None and queue.jobs.by_claim_id(runner.runner_id, claim_id) is not None:
            return None  # That wish was granted a job, and is granted it again.
        given = _give(queue, current, due, claim_id, at)
        if given is not None:
            return given
        current = queue.runners.get(runner.runner_id)
    return None


def _under(queue: Queue, runner: Runner, claim_id: str | None) -> Check | None:
    for check in runner.checks.open.values():
        program = _program(queue, check.program_id)
        if claim_id is not None and check.claim_id == claim_id and program is not None:
            return Check(open=check, program=program)
    return None


def _give(
    queue: Queue, runner: Runner, due: Due, claim_id: str | None, at: datetime
) -> Check | None:
    program = due.program
    check = OpenCheck(
        job_id=new_job_id(),
        submission_id=f"sn_{ULID()}",
        program_id=program.program_id,
        language=program.language,
        lease_token=secrets.token_urlsafe(16),
        claim_id=claim_id,
        at=at,
        deadline=queue.rules.lease_deadline(at),
    )
    in_place_of_one = program.expected is not Verdict.AC
    left = queue.checks.give(
        runner,
        due,
        check,
        languages=queue.languages,
        next_at=at + probation.FOLLOW_UP_EVERY if in_place_of_one else None,
    )
    if left is None:
        return None
    queue.checks.record(
        CheckRecord(
            job_id=check.job_id,
            runner_id=runner.runner_id,
            program_id=program.program_id,
            language=program.language,
            at=at,
            follow_up=due.follow_up,
        )
    )
    emit(
        "runner_check",
        runner_id=runner.runner_id,
        job_id=check.job_id,
        program_id=program.program_id,
        follow_up=due.follow_up,
    )
    return Check(open=check, program=program)


def held(runner: Runner, job_id: str, now: datetime) -> OpenCheck | None:
    """Return the check of that id if the runner holds it."""
    check = runner.checks.check(job_id)
    return None if check is None or check.deadline <= now else check


def renew(queue: Queue, runner: Runner, job_ids: Iterable[str], *, now: Clock) -> tuple[str, ...]:
    """Renew those of `job_ids` that are checks the runner holds, up to a ceiling; return them."""
    held_still = []
    for job_id in dict.fromkeys(job_ids):
        at = now()
        check = held(runner, job_id, at)
        if check is None:
            continue
        until = min(queue.rules.lease_deadline(at), check.at + timedelta(seconds=CHECK_S_MAX))
        if queue.checks.renew(runner.runner_id, check, until=until, now=at):
            held_still.append(job_id)
    return tuple(held_still)


# -- what comes back -------------------------------------------------------------------------


def concerns(runner: Runner, job_id: str) -> bool:
    """Tell whether that is one of the runner's latest checks. Asks the database nothing."""
    return runner.checks.check(job_id) is not None or _how(runner, job_id) is not None


def complete(
    queue: Queue,
    runner: Runner,
    job_id: str,
    tasks: JudgeResult,
    *,
    lease_token: str | None,
    now: Clock,
) -> Ended:
    """Judge the runner by its answer to a check, and say what became of it.

    Raises:
        InvalidResult: the result does not fit what was handed out; the check stays.
    """
    at = now()
    check = held(runner, job_id, at)
    program = None if check is None else _program(queue, check.program_id)
    if check is None or program is None or lease_token not in (None, check.lease_token):
        return _why_not(queue, runner, job_id)
    verdict = probation.verdict_of(tasks, program)
    if verdict is Verdict.JE:
        # It says itself that it could not judge. That is no wrong verdict.
        ended = _end(queue, runner, check, how=Kind.JUDGE_ERROR.value, now=now)
    elif program.fits(verdict):
        ended = _pass(queue, runner, check, program, verdict, probation.time_of(tasks), at)
    else:
        ended = _fail(queue, runner, check, program, verdict, at)
    return Ended.LANDED if ended else _why_not(queue, runner, job_id)


def abort(
    queue: Queue, runner: Runner, job_id: str, reason: str, *, lease_token: str | None, now: Clock
) -> Ended:
    """Take a check back. But for a drain, its language is on probation until a later one is passed.

    A runner is not set aside for it: it may be the service that cannot be reached from there.
    """
    if _how(runner, job_id) == reason:
        return Ended.ALREADY_GIVEN_BACK
    check = held(runner, job_id, now())
    if check is None or lease_token not in (None, check.lease_token):
        return Ended.LEASE_LOST
    if _end(queue, runner, check, how=reason, now=now):
        return Ended.GIVEN_BACK
    current = queue.runners.get(runner.runner_id)
    repeated = current is not None and _how(current, job_id) == reason
    return Ended.ALREADY_GIVEN_BACK if repeated else Ended.LEASE_LOST


def late_word(queue: Queue, runner_id: str, job_id: str) -> Ended:
    """Say what to answer about an id that no job has: it may be a check that ended, or another's.

    As long as its record is kept.
    """
    record = queue.checks.recorded(job_id)
    if record is None:
        return Ended.UNKNOWN_JOB
    answered = record.runner_id == runner_id and record.passed is not None
    return Ended.ALREADY_LANDED if answered else Ended.LEASE_LOST


def _why_not(queue: Queue, runner: Runner, job_id: str) -> Ended:
    """Say why the runner may not complete a check: looking again, for a resend may have come by."""
    current = queue.runners.get(runner.runner_id) or runner
    answered = _how(current, job_id) in (COMPLETE, Kind.JUDGE_ERROR)
    return Ended.ALREADY_LANDED if answered else Ended.LEASE_LOST


def _how(runner: Runner, job_id: str) -> str | None:
    return next((one.how for one in runner.checks.ended if one.job_id == job_id), None)


def _pass(
    queue: Queue,
    runner: Runner,
    check: OpenCheck,
    program: KnownProgram,
    verdict: Verdict,
    time_ms: int,
    at: datetime,
) -> bool:
    far_off = probation.is_far_off(time_ms, _others_times(queue, runner, program))
    # A machine that is slow on probation, too, is a slow one; else it would never end.
    was_proven = program.language in runner.checks.proven
    doubted = far_off and was_proven
    left = queue.checks.passed(runner.runner_id, check, program, doubted=doubted, now=at)
    if left is None:
        return False
    _record(queue, runner, check, answer=verdict.name, passed=True, time_ms=time_ms, at=at)
    emit(
        "runner_check_passed",
        runner_id=runner.runner_id,
        job_id=check.job_id,
        program_id=program.program_id,
        far_off=far_off,
    )
    if doubted:
        _tell_of_probation(runner.runner_id, program.language, "its time is far off the fleet's")
    return True


def _others_times(queue: Queue, runner: Runner, program: KnownProgram) -> list[int]:
    # Only these two do the same work on every machine.
    if program.expected not in (Verdict.AC, Verdict.WA):
        return []
    return queue.checks.times_of_others(program.program_id, runner.runner_id)


def _fail(
    queue: Queue,
    runner: Runner,
    check: OpenCheck,
    program: KnownProgram,
    verdict: Verdict,
    at: datetime,
) -> bool:
    since = runner.checks.passed.get(program.language, runner.registered_at)
    doubt = Doubt(
        program_id=program.program_id,
        language=program.language,
        answer=verdict.name,
        since=since,
        at=at,
    )
    why = f"It said {verdict.name} of a check that is {program.expected.name} ({doubt.program_id})."
    left, is_news = queue.checks.failed(runner.runner_id, check, doubt, why=why, now=at)
    if left is None:
        return False
    _record(queue, runner, check, answer=verdict.name, passed=False, at=at)
    told = {"runner_id": runner.runner_id, "name": runner.name}
    emit(
        "runner_check_failed",
        **told,
        job_id=check.job_id,
        program_id=program.program_id,
        answer=verdict.name,
    )
    if is_news:
        found = _doubtful(queue, runner.runner_id, doubt, LOGGED_MAX)
        emit(
            "runner_set_aside",
            **told,
            why=why,
            doubtful_since=since.isoformat(),
            doubtful=found.total,
            submission_ids=list(found.submission_ids),
        )
    return True


def doubtful(queue: Queue, runner: Runner, *, limit: int) -> Doubtful | None:
    """Return what the runner judged that is in doubt after a failed check; None: it failed none."""
    doubt = runner.checks.doubt
    return None if doubt is None else _doubtful(queue, runner.runner_id, doubt, limit)


def _doubtful(queue: Queue, runner_id: str, doubt: Doubt, limit: int) -> Doubtful:
    """Return what the runner judged under a doubt and nobody has rejudged since.

    From the queue's books, by an index, up to `limit` ids, the oldest first.
    """
    until = {} if doubt.until is None else {"$lte": doubt.until}
    wanted = {
        "leased_by": runner_id,
        "state": State.DONE.value,
        "done_at": {"$gte": doubt.since, **until},
        "outcome": Outcome.VERDICT.value,
        "preview": {"$ne": True},
    }
    jobs = queue.jobs.jobs
    return Doubtful(
        total=jobs.count_documents(wanted, limit=COUNTED_MAX),
        submission_ids=tuple(
            job["_id"] for job in jobs.find(wanted, {"_id": 1}).sort("done_at", 1).limit(limit)
        ),
    )


def _end(queue: Queue, runner: Runner, check: OpenCheck, *, how: str, now: Clock) -> bool:
    """End a check that came to nothing; tell whether the runner held it."""
    at = now()
    pause = None
    if how != Kind.DRAIN:
        pause = probation.pause_after(runner.checks.pauses.get(check.language), how, at)
    if queue.checks.ended(runner.runner_id, check, how=how, pause=pause) is None:
        return False
    # What ran out was not worked at to the end.
    _record(queue, runner, check, answer=how, at=min(at, check.deadline))
    emit(
        "runner_check_ended",
        runner_id=runner.runner_id,
        job_id=check.job_id,
        program_id=check.program_id,
        how=how,
    )
    return True


def _record(
    queue: Queue,
    runner: Runner,
    check: OpenCheck,
    *,
    answer: str,
    at: datetime,
    passed: bool | None = None,
    time_ms: int | None = None,
) -> None:
    queue.checks.complete_record(
        check.job_id,
        runner_id=runner.runner_id,
        program_id=check.program_id,
        language=check.language,
        at=check.at,
        answer=answer,
        passed=passed,
        exec_time_ms=time_ms,
        spent_ms=int((at - check.at).total_seconds() * 1000),
    )


def _program(queue: Queue, program_id: str) -> KnownProgram | None:
    found = (one for one in queue.known_programs if one.program_id == program_id)
    return next(found, None)


# -- suspicion -------------------------------------------------------------------------------


def landed(queue: Queue, runner: Runner, job_id: str, tasks: JudgeResult) -> None:
    """Note what a verdict that has landed says of the runner's compiler.

    Asks the database nothing unless the result is a compile error, or comes after one.
    """
    if not queue.known_programs:
        return
    is_error = probation.is_compile_error(tasks)
    if not is_error and not runner.checks.ce_rows:
        return
    try:
        job = queue.jobs.by_job_id(job_id)
        if job is None:
            return  # It has been rejudged since.
        if is_error:
            _compile_error(queue, runner, job.language, empty=probation.says_nothing(tasks))
        elif job.language in runner.checks.ce_rows:
            queue.checks.compiled(runner.runner_id, job.language)
    except PyMongoError as error:
        # The result has landed, and its runner is to be told so.
        emit("runner_note_failed", note="landed", error=type(error).__name__)


def _compile_error(queue: Queue, runner: Runner, language: int, *, empty: bool) -> None:
    row = queue.checks.compile_error(runner.runner_id, language)
    if empty:
        suspect(queue, (runner.runner_id,), language, why="a compile error without a text")
    elif row >= probation.CE_ROW_MAX:
        suspect(queue, (runner.runner_id,), language, why=f"{row} compile errors in a row")


def suspect(
    queue: Queue,
    runner_ids: Collection[str],
    language: int,
    *,
    why: str,
    tell_apart: bool = False,
) -> None:
    """Put runners on probation for a language.

    `tell_apart`: they have to tell a wrong program from a right one again, too.
    """
    if not queue.known_programs:
        return
    for runner_id in runner_ids:
        if queue.checks.doubt_language(runner_id, language, tell_apart=tell_apart):
            _tell_of_probation(runner_id, language, why)


def contradicted(queue: Queue, runner_ids: Sequence[str], language: int) -> None:
    """Put runners on probation that said different things of one program on the same test data."""
    try:
        suspect(
            queue,
            runner_ids,
            language,
            why="another runner's verdict on the same data differs",
            tell_apart=True,
        )
    except PyMongoError as error:
        # The result has landed, and its runner is to be told so.
        emit("runner_note_failed", note="contradicted", error=type(error).__name__)


def _tell_of_probation(runner_id: str, language: int, why: str) -> None:
    emit("runner_on_probation", runner_id=runner_id, language=language, why=why)
