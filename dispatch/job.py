"""The verbs of the lease protocol, and what each caller is told.

Guarantees: I1 (a job ends only after its result is durable), I3 and I4 (every act of a holder is
fenced), I5 (attempts are bounded). A guard that did not hold is turned into an answer only after
looking again.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum, auto
from typing import assert_never

from pymongo.errors import DuplicateKeyError, PyMongoError

from dispatch import held_problems, retry, watch
from dispatch.clock import Clock
from dispatch.contract import (
    HandedOut,
    HandOut,
    InvalidResult,
    JudgeResult,
    Landed,
    ProcessResult,
    Verdict,
    new_job_id,
)
from dispatch.control import HeldProblem
from dispatch.events import emit
from dispatch.glance import Glance, glance
from dispatch.held_problems import AtFault
from dispatch.lease import deadline_passed
from dispatch.queue import Queue
from dispatch.records import Job
from dispatch.retry import LeaseEnd
from dispatch.runner import Runner
from dispatch.states import Outcome, State

CANDIDATES_MAX = 32
"""How many jobs one claim looks at before it asks for more. Reading a few and claiming one by id
stays fast where a sorted find-and-modify walks over the entries of jobs claimed lately."""
ROUNDS_MAX = 16
"""How often a verb looks again after losing a race before it says so."""
EXHAUSTED_MAX = 20
"""How many judge errors one sweep lands."""

PRIORITY_FRESH = 0
PRIORITY_BULK_REJUDGE = -10


class Ended(Enum):
    """What became of a `complete` or an `abort`."""

    LANDED = auto()
    ALREADY_LANDED = auto()
    GIVEN_BACK = auto()
    ALREADY_GIVEN_BACK = auto()
    EXHAUSTED = auto()
    REPLACED = auto()
    IN_FLIGHT = auto()
    LEASE_LOST = auto()
    UNKNOWN_JOB = auto()


class Contended(Exception):
    """The job changed under every try. Nothing was written; trying again is safe."""


# -- entering the queue --------------------------------------------------------------------


def enqueue_job(
    queue: Queue,
    *,
    submission_id: str,
    job_id: str,
    problem_id: int,
    language: int,
    submission_fence: int,
    now: Clock,
    priority: int = PRIORITY_FRESH,
    rejudge_id: str | None = None,
    preview: bool = False,
    mark_due: bool = False,
) -> bool:
    """Give the submission its job, unless it has one. Tell whether it had none.

    `job_id` is the one minted in the submission, so that a repeat (by the sweep, after a crash
    between the two writes) enters the same job. `mark_due`: the caller marks the submission next.
    """
    entered = queue.jobs.enqueue(
        submission_id=submission_id,
        job_id=job_id,
        problem_id=problem_id,
        language=language,
        priority=priority,
        fence=submission_fence + 1,
        now=now(),
        rejudge_id=rejudge_id,
        preview=preview,
        mark_due=mark_due,
    )
    if entered:
        emit("enqueue", submission_id=submission_id, job_id=job_id, fence=submission_fence + 1)
    return entered


def rejudge_job(
    queue: Queue,
    *,
    submission_id: str,
    problem_id: int,
    language: int,
    submission_fence: int,
    now: Clock,
    priority: int = PRIORITY_FRESH,
    rejudge_id: str | None = None,
    minted_job_id: str | None = None,
) -> Job | None:
    """Have the submission judged afresh; return its job as it then stands.

    A job still waiting is kept. A leased, landing or finished one is replaced: from then on its
    result no longer counts. A submission whose job is gone (retention) gets a new one above the
    submission's fence, under `minted_job_id` where its first job has yet to enter the queue, so
    that whoever submits it meanwhile has told its id truly.
    None: this bulk rejudge (`rejudge_id`) has already been here.

    The caller marks the submission with the returned fence, then calls `queue.jobs.marked`.

    Raises:
        Contended: other transitions won every race.
    """
    for _ in range(ROUNDS_MAX):
        job = queue.jobs.get(submission_id)
        if job is None:
            enqueue_job(
                queue,
                submission_id=submission_id,
                job_id=minted_job_id or new_job_id(),
                problem_id=problem_id,
                language=language,
                submission_fence=submission_fence,
                now=now,
                priority=priority,
                rejudge_id=rejudge_id,
                mark_due=True,
            )
            entered = queue.jobs.get(submission_id)
            if entered is not None:
                return entered
            continue
        if rejudge_id is not None and job.rejudge_id == rejudge_id:
            return None
        if job.state is State.PENDING:
            left = queue.jobs.rejudge_pending(
                job,
                priority=priority,
                rejudge_id=rejudge_id,
                submission_fence=submission_fence,
                now=now(),
            )
        else:
            left = queue.jobs.rejudge(
                job,
                job_id=new_job_id(),
                priority=priority,
                rejudge_id=rejudge_id,
                submission_fence=submission_fence,
                now=now(),
            )
        if left is not None:
            emit("rejudge", submission_id=submission_id, job_id=left.job_id, fence=left.fence)
            return left
    raise Contended(f"the job of submission {submission_id} keeps changing")


def preview_job(
    queue: Queue,
    *,
    submission_id: str,
    problem_id: int,
    language: int,
    submission_fence: int,
    rejudge_id: str,
    now: Clock,
) -> Job | None:
    """Have a finished submission judged afresh, beside what it has; return the new job.

    Nothing is marked: the submission goes on showing its result. A submission whose job is gone
    (retention) gets a new one above the submission's fence. None: its job is not done (any more).

    Raises:
        Contended: another process is entering a job of the submission, and it may not last.
    """
    job = queue.jobs.get(submission_id)
    if job is None:
        enqueue_job(
            queue,
            submission_id=submission_id,
            job_id=new_job_id(),
            problem_id=problem_id,
            language=language,
            submission_fence=submission_fence,
            now=now,
            priority=PRIORITY_BULK_REJUDGE,
            rejudge_id=rejudge_id,
            preview=True,
        )
        entered = queue.jobs.get(submission_id)
        if entered is None:
            # What the insert met is on no majority: it may be taken back, and then nobody judges.
            raise Contended(f"the job of submission {submission_id} is being entered")
        return entered if entered.rejudge_id == rejudge_id else None
    if job.state is not State.DONE:
        return None
    left = queue.jobs.rejudge(
        job,
        job_id=new_job_id(),
        priority=PRIORITY_BULK_REJUDGE,
        rejudge_id=rejudge_id,
        preview=True,
        submission_fence=submission_fence,
        now=now(),
    )
    if left is not None:
        emit("preview", submission_id=submission_id, job_id=left.job_id, fence=left.fence)
    return left


def cancel_job(
    queue: Queue, job: Job, *, now: Clock, only_waiting: bool = False, note: str = ""
) -> Job | None:
    """Take back a rejudge, if its job is still as `job` says; return the job as it then stands.

    Whoever holds it has lost its lease. The caller says that a result landed before, brings that
    back on the submission under the returned fence, then calls `queue.jobs.restored`.
    `only_waiting`: not from one who holds it.
    """
    only_from = State.PENDING if only_waiting else None
    cancelled = queue.jobs.cancel(job, only_from=only_from, note=note, now=now())
    if cancelled is not None:
        emit(
            "cancel",
            submission_id=cancelled.submission_id,
            job_id=cancelled.job_id,
            fence=cancelled.fence,
        )
    return cancelled


def move_to_front(queue: Queue, submission_id: str, *, now: Clock) -> Job | None:
    """Put a waiting job before all others; return it, or None: it does not wait (any more).

    Raises:
        Contended: other transitions won every race.
    """
    for _ in range(ROUNDS_MAX):
        job = queue.jobs.get(submission_id)
        if job is None or job.state is not State.PENDING:
            return None
        highest = queue.jobs.highest_priority(queue.languages, besides=submission_id)
        first = job.priority if highest is None else highest + 1
        moved = queue.jobs.move_to_front(job, priority=first, now=now())
        if moved is not None:
            emit("move_to_front", submission_id=submission_id, job_id=moved.job_id)
            return moved
    raise Contended(f"the job of submission {submission_id} keeps changing")


# -- claiming ------------------------------------------------------------------------------


def claim_next_job(
    queue: Queue,
    runner: Runner,
    *,
    hand_out: HandOut,
    now: Clock,
    claim_id: str | None = None,
) -> Job | None:
    """Lease the next job to `runner`: an orphan first, then by priority, then the longest waiting.

    Not one that pauses after a failure (`dispatch.retry`), nor one of a held problem.

    Asked again with the same `claim_id`, the runner gets the same job under the same lease, as
    long as it holds it. None: nothing to do (or paused, or nothing it may have).
    """
    # A wish that was granted is granted again, also to a runner that may have nothing new.
    languages = watch.languages_for(
        queue,
        runner,
        tuple(language for language in queue.languages if runner.judges(language)),
        now=now,
    )
    for _ in range(ROUNDS_MAX):
        seen = glance(
            queue,
            runner_id=runner.runner_id,
            claim_id=claim_id,
            languages=languages,
            now=now(),
            limit=CANDIDATES_MAX,
        )
        if seen.taken is not None and claim_id is not None:
            # The look at the line may have met what a failover takes back.
            taken = queue.jobs.by_claim_id(runner.runner_id, claim_id)
            return None if taken is None else _repeated(taken, runner, now)
        if seen.switches.paused is not None:
            return None
        bound = queue.rules.max_concurrent_jobs
        if bound is not None and seen.held >= bound:
            return None
        held = held_problems.look_again(queue, seen.switches.held_problems.values(), now=now)
        if seen.switches.held_rejudges:
            # They are rare, and the glance did not know which they are.
            seen = replace(seen, pending=_line(queue, languages, seen, [], now))
        ready = _Readiness(queue, hand_out, held, now)
        candidates = _in_turn(queue, runner, languages, seen, ready, now)
        leased = _first_won(queue, runner, candidates, ready, claim_id, now)
        if leased is not None:
            return _still_leased(leased, now)
        if len(seen.pending) < CANDIDATES_MAX or not all(map(queue.tried.is_gone, seen.pending)):
            return None
        # Others took all that was seen of the line, and there is more of it.
    return None


def _first_won(
    queue: Queue,
    runner: Runner,
    candidates: Iterator[tuple[Job, HandedOut]],
    ready: _Readiness,
    claim_id: str | None,
    now: Clock,
) -> Job | None:
    """Claim the first candidate that can be had; last those that others of this process are at."""
    contested: list[tuple[Job, HandedOut]] = []
    for job, handed_out in candidates:
        if not ready.may_try(job.problem_id):
            continue
        with queue.tried.trying(job) as free:
            leased = _try_claim(queue, job, runner, handed_out, claim_id, now) if free else None
        if leased is not None:
            return leased
        if not free:
            contested.append((job, handed_out))
    for job, handed_out in contested:
        if not queue.tried.is_gone(job):
            leased = _try_claim(queue, job, runner, handed_out, claim_id, now)
            if leased is not None:
                return leased
    return None


def _in_turn(
    queue: Queue,
    runner: Runner,
    languages: Sequence[int],
    seen: Glance,
    ready: _Readiness,
    now: Clock,
) -> Iterator[tuple[Job, HandedOut]]:
    """Yield what the runner may claim: what is its own to take, then what no other comes for."""
    put_off: list[tuple[Job, HandedOut]] = []
    for job, handed_out in _candidates(queue, languages, seen, ready, now):
        if _prefers_others(queue, job, runner, now):
            put_off.append((job, handed_out))
        else:
            yield job, handed_out
    if put_off and len(seen.pending) == CANDIDATES_MAX:
        # What others are to have first may be all that was seen of the line.
        not_ready = ready.not_ready()
        for job in _line(queue, languages, seen, not_ready, now, not_failed_by=runner.runner_id):
            known = ready(job.problem_id)
            if known is not None and not _prefers_others(queue, job, runner, now):
                yield job, known
    for job, handed_out in put_off:
        others = (runner.runner_id, *job.failed_by)
        if not watch.other_ready(queue, others, job.language, now=now):
            yield job, handed_out


def _line(
    queue: Queue,
    languages: Sequence[int],
    seen: Glance,
    without: list[int],
    now: Clock,
    *,
    not_failed_by: str | None = None,
) -> list[Job]:
    """Return the head of the line without held rejudges."""
    return queue.jobs.pending(
        now(),
        languages,
        without,
        CANDIDATES_MAX,
        held_rejudges=seen.switches.held_rejudges,
        held_priority=PRIORITY_BULK_REJUDGE,
        not_failed_by=not_failed_by,
    )


class _Readiness:
    """Asks for each problem once per claim, and remembers which are not ready, or held."""

    def __init__(
        self, queue: Queue, hand_out: HandOut, held: Mapping[int, HeldProblem], now: Clock
    ) -> None:
        self._queue = queue
        self._hand_out = hand_out
        self._held = dict(held)
        self._now = now
        self._known: dict[int, HandedOut | None] = {}

    def __call__(self, problem_id: int) -> HandedOut | None:
        if problem_id not in self._known:
            self._known[problem_id] = self._look(problem_id)
        return self._known[problem_id]

    def _look(self, problem_id: int) -> HandedOut | None:
        handed_out = self._hand_out(problem_id)
        held = self._held.get(problem_id)
        if handed_out is None or held is None:
            return handed_out
        if handed_out.testdata_sha256 != held.testdata_sha256:
            held_problems.release(
                self._queue, problem_id, why="new test data", sha256=held.testdata_sha256
            )
            del self._held[problem_id]
            return handed_out
        return handed_out if deadline_passed(held.probe_at, self._now()) else None

    def may_try(self, problem_id: int) -> bool:
        """Tell whether a job of the problem may be claimed: of a held one only as its probe."""
        held = self._held.get(problem_id)
        if held is None:
            return True
        now = self._now()
        next_at = held_problems.next_probe(self._queue, held, now)
        if self._queue.control.take_probe(held, next_at=next_at):
            emit("problem_probed", problem_id=problem_id)
            return True
        self._known[problem_id] = None
        return False

    def not_ready(self) -> list[int]:
        return [problem_id for problem_id, ready in self._known.items() if ready is None]


def _candidates(
    queue: Queue, languages: Sequence[int], seen: Glance, ready: _Readiness, now: Clock
) -> Iterator[tuple[Job, HandedOut]]:
    """Yield claimable jobs in order. Jobs of problems that are not ready do not block the line."""

    def orphans(without: list[int]) -> list[Job]:
        return queue.jobs.orphans(now(), languages, without, CANDIDATES_MAX)

    def pending(without: list[int]) -> list[Job]:
        return _line(queue, languages, seen, without, now)

    finders: tuple[tuple[Collection[Job], Callable[[list[int]], list[Job]]], ...] = (
        (seen.orphans, orphans),
        (seen.pending, pending),
    )
    for jobs, look_further in finders:
        for _ in range(ROUNDS_MAX):
            without = ready.not_ready()
            for job in jobs:
                handed_out = None if queue.tried.is_gone(job) else ready(job.problem_id)
                if handed_out is not None:
                    yield job, handed_out
            if len(jobs) < CANDIDATES_MAX or ready.not_ready() == without:
                break
            jobs = look_further(ready.not_ready())


def _prefers_others(queue: Queue, job: Job, runner: Runner, now: Clock) -> bool:
    """Tell whether others go first: `runner` failed at `job`, just drained it, or lost it."""
    if job.state is State.PENDING and runner.runner_id in job.failed_by:
        until = job.failed_until
    elif job.state is State.PENDING:
        until = job.avoid_until if job.avoid_runner == runner.runner_id else None
    elif job.leased_by == runner.runner_id and job.lease_deadline is not None:
        rule = retry.table(queue.rules)[retry.ended_by(job)]
        until = rule.others_first_until(job.lease_deadline)
    else:
        until = None
    return not deadline_passed(until, now())


def _try_claim(
    queue: Queue,
    job: Job,
    runner: Runner,
    handed_out: HandedOut,
    claim_id: str | None,
    now: Clock,
) -> Job | None:
    edge = queue.jobs.claim if job.state is State.PENDING else queue.jobs.reclaim
    try:
        leased = edge(
            job,
            runner_id=runner.runner_id,
            lease_token=secrets.token_urlsafe(16),
            claim_id=claim_id,
            handed_out=handed_out,
            now=now(),
        )
    except DuplicateKeyError:
        # The same wish, sent twice at once, and the other request was first.
        if claim_id is None:
            raise
        return queue.jobs.by_claim_id(runner.runner_id, claim_id)
    queue.tried.gone(job)
    if leased is not None:
        if edge == queue.jobs.reclaim:
            watch.lost(queue, job, now=now)
        emit(
            "claim" if edge == queue.jobs.claim else "reclaim",
            submission_id=leased.submission_id,
            job_id=leased.job_id,
            fence=leased.fence,
            runner_id=runner.runner_id,
            attempts=leased.attempts,
        )
    return leased


def _repeated(taken: Job, runner: Runner, now: Clock) -> Job | None:
    """Return the lease whose first answer did not arrive, if it is still one."""
    leased = _still_leased(taken, now)
    if leased is not None:
        emit("claim_repeated", job_id=leased.job_id, runner_id=runner.runner_id)
    return leased


def _still_leased(job: Job, now: Clock) -> Job | None:
    held = job.state is State.LEASED and not deadline_passed(job.lease_deadline, now())
    return job if held else None


def renew_leases(queue: Queue, runner_id: str, job_ids: Sequence[str], *, now: Clock) -> bool:
    """Renew the leases on those of `job_ids` that the runner holds; ignore the others.

    Tell whether it holds them all.
    """
    distinct = list(dict.fromkeys(job_ids))
    return not distinct or queue.jobs.renew(runner_id, distinct, now()) == len(distinct)


def lost_jobs(queue: Queue, runner_id: str, job_ids: Sequence[str]) -> list[str]:
    """Return those of `job_ids` that the runner does not hold, in their order."""
    held = queue.jobs.held_by(runner_id, job_ids)
    return [job_id for job_id in dict.fromkeys(job_ids) if job_id not in held]


# -- landing -------------------------------------------------------------------------------


def complete_job(
    queue: Queue,
    runner_id: str,
    job_id: str,
    tasks: JudgeResult,
    *,
    process_result: ProcessResult,
    now: Clock,
    lease_token: str | None = None,
    troubled: bool = False,
    set_aside: bool = False,
) -> Ended:
    """Land `tasks` for the holder of the job's lease: begin, `process_result`, end or restore.

    At least once, not exactly once: when `process_result` raises, the lease is restored and the
    runner's resend lands everything again in full. A result with a judge error is none: the runner
    has failed at the job, and the retry rule decides what becomes of it.

    Raises:
        InvalidResult: the result does not fit what was handed out; the lease stays.
        Exception: whatever `process_result` or the database raised. The lease has been restored,
            or, if that failed too, may be landed again after the landing deadline.
        Contended: other transitions won every race.
    """
    if _is_judge_error(tasks):
        failure = _Failure(end=LeaseEnd.JUDGE_ERROR, result=tasks, set_aside=set_aside)
        return _give_back(
            queue,
            runner_id,
            job_id,
            failure,
            process_result=process_result,
            now=now,
            lease_token=lease_token,
        )
    for _ in range(ROUNDS_MAX):
        job = queue.jobs.by_job_id(job_id)
        ended = _explain(queue, job, job_id, runner_id, lease_token, now)
        if ended is not None:
            return _dropped("complete", ended, job_id, runner_id)
        if job is None:
            continue
        landing = queue.jobs.begin_complete(
            job, runner_id=runner_id, lease_token=lease_token, now=now()
        )
        if landing is None:
            continue
        emit(
            "complete_begins",
            submission_id=job.submission_id,
            job_id=job_id,
            fence=landing.fence,
            runner_id=runner_id,
        )
        return _land(queue, landing, runner_id, tasks, process_result, now, troubled)
    raise Contended(f"job {job_id} keeps changing")


def _land(
    queue: Queue,
    landing: Job,
    runner_id: str,
    tasks: JudgeResult,
    process_result: ProcessResult,
    now: Clock,
    troubled: bool,
) -> Ended:
    try:
        outcome = _land_result(process_result, landing, tasks)
        done = queue.jobs.end_complete(landing, outcome=outcome, now=now())
    except BaseException as error:
        _complete_restore(queue, landing, error, now)
        raise
    if done is not None:
        emit(
            "complete_ends",
            submission_id=landing.submission_id,
            job_id=landing.job_id,
            fence=landing.fence,
            runner_id=runner_id,
            outcome=done.outcome,
        )
        watch.landed(queue, runner_id, done, now=now, troubled=troubled)
        return Ended.LANDED
    # Not ours to end any more: look again, once. A landing begun again by a resend of ours says
    # 503, and that resend, or the next, gives the final answer.
    job = queue.jobs.by_job_id(landing.job_id)
    ended = _explain(queue, job, landing.job_id, runner_id, landing.lease_token, now)
    return _dropped("complete", ended or Ended.IN_FLIGHT, landing.job_id, runner_id)


def _land_result(process_result: ProcessResult, landing: Job, tasks: JudgeResult | None) -> Outcome:
    """Have the domain land `tasks` (None: a judge error); return how that ends the job."""
    landed = process_result(
        submission_id=landing.submission_id,
        job_id=landing.job_id,
        fence=landing.fence,
        tasks=tasks,
        handed_out=landing.handed_out,
        rejudge_id=landing.rejudge_id,
        preview=landing.preview,
        runner_id=landing.leased_by,
    )
    return _outcome(landed)


def _complete_restore(queue: Queue, landing: Job, error: BaseException, now: Clock) -> None:
    """Lease the job to its owner again. Never raises: the landing's own error matters more."""
    invalid = isinstance(error, InvalidResult)
    reason = "invalid result" if invalid else type(error).__name__
    at = now()
    not_before = None
    if invalid:
        rule = retry.table(queue.rules)[LeaseEnd.INVALID_RESULT]
        not_before = at + timedelta(seconds=rule.pause_s(landing.attempts))
    try:
        restored = queue.jobs.restore(
            landing, now=at, note=reason, invalid_result=invalid, not_before=not_before
        )
    except PyMongoError as failure:
        # The landing deadline passes by itself; then a resend begins again.
        emit(
            "complete_restore_failed",
            submission_id=landing.submission_id,
            job_id=landing.job_id,
            fence=landing.fence,
            error=type(failure).__name__,
        )
        return
    if restored is not None:
        emit(
            "complete_restore",
            submission_id=landing.submission_id,
            job_id=landing.job_id,
            fence=landing.fence,
            reason=reason,
        )


def abort_job(
    queue: Queue,
    runner_id: str,
    job_id: str,
    reason: str,
    *,
    process_result: ProcessResult,
    now: Clock,
    lease_token: str | None = None,
    set_aside: bool = False,
    at_fault: str | None = None,
    detail: str = "",
) -> Ended:
    """Take a job back from its holder, as the retry rule says (`dispatch.retry`).

    `reason`: a `LeaseEnd`. `set_aside`: the runner is, so that its failures are known not to be the
    job's. `at_fault`: what the runner holds to be at fault (a `held_problems.AtFault`), and
    `detail` why, for people.

    Raises:
        Contended: other transitions won every race.
    """
    failure = _Failure(
        end=LeaseEnd(reason),
        set_aside=set_aside,
        at_fault=None if at_fault is None else AtFault(at_fault),
        detail=detail,
    )
    return _give_back(
        queue,
        runner_id,
        job_id,
        failure,
        process_result=process_result,
        now=now,
        lease_token=lease_token,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Failure:
    """How a holder gave a job back. `result`: what it reported, with a judge error in it."""

    end: LeaseEnd
    set_aside: bool = False
    at_fault: AtFault | None = None
    detail: str = ""
    result: JudgeResult | None = None

    @property
    def verb(self) -> str:
        return "abort" if self.result is None else "complete"


def _give_back(
    queue: Queue,
    runner_id: str,
    job_id: str,
    failure: _Failure,
    *,
    process_result: ProcessResult,
    now: Clock,
    lease_token: str | None,
) -> Ended:
    aborting = failure.result is None
    for _ in range(ROUNDS_MAX):
        job = queue.jobs.by_job_id(job_id)
        if job is not None and _repeats(job, runner_id, failure.end, lease_token):
            return _dropped(failure.verb, Ended.ALREADY_GIVEN_BACK, job_id, runner_id)
        ended = _explain(queue, job, job_id, runner_id, lease_token, now, aborting=aborting)
        if ended is not None:
            return _dropped(failure.verb, ended, job_id, runner_id)
        if job is None:
            continue
        if job.state is State.LANDING:
            # A landing of its own that has died; there is a judge error in its place now.
            queue.jobs.restore(job, now=now(), note="a judge error in its place")
            continue
        left = _take_back(queue, job, runner_id, failure, process_result, now, lease_token)
        if left is not None:
            return left
    raise Contended(f"job {job_id} keeps changing")


def _take_back(
    queue: Queue,
    job: Job,
    runner_id: str,
    failure: _Failure,
    process_result: ProcessResult,
    now: Clock,
    lease_token: str | None,
) -> Ended | None:
    """Take the leased job back, or land its judge error; None: another transition was first."""
    end = failure.end
    held = None
    if not failure.set_aside:
        held = held_problems.failed(
            queue,
            job,
            runner_id,
            end,
            at_fault=failure.at_fault,
            detail=failure.detail,
            now=now,
        )
    decided = retry.decide(
        end,
        job,
        queue.rules,
        now(),
        jitter=random.random(),  # noqa: S311 - it only spreads what would come back together
        problem_held=held is not None,
        held_until=None if held is None else held.until,
        runner_set_aside=failure.set_aside,
    )
    ids = {"submission_id": job.submission_id, "job_id": job.job_id, "runner_id": runner_id}
    match decided:
        case retry.GiveUp():
            landing = queue.jobs.begin_exhaust_by_abort(
                job, runner_id=runner_id, lease_token=lease_token, end=end, now=now()
            )
            if landing is None:
                return None
            watch.gave_back(queue, runner_id, job.job_id, end, now=now)
            _land_judge_error(queue, landing, process_result, now, failure.result)
            return Ended.EXHAUSTED
        case retry.Retry():
            returned = queue.jobs.give_back(
                job,
                runner_id=runner_id,
                lease_token=lease_token,
                end=end,
                retry=decided,
                now=now(),
            )
            if returned is None:
                return None
            emit(
                "abort",
                **ids,
                fence=returned.fence,
                reason=end.value,
                attempts=returned.attempts,
                not_before=returned.not_before,
                problem_held=held is not None,
                detail=failure.detail,
            )
            if held is None:
                watch.gave_back(queue, runner_id, job.job_id, end, now=now)
            return Ended.GIVEN_BACK
        case _:
            assert_never(decided)


def _is_judge_error(tasks: JudgeResult) -> bool:
    return any(case.status is Verdict.JE for cases in tasks for case in cases)


def _repeats(job: Job, runner_id: str, reason: str, lease_token: str | None) -> bool:
    """Tell whether this very abort has already been taken, and the job is still pending."""
    back = job.given_back
    return (
        job.state is State.PENDING
        and back is not None
        and back["runner_id"] == runner_id
        and back["reason"] == reason
        and lease_token in (None, back["lease_token"])
    )


def _explain(
    queue: Queue,
    job: Job | None,
    job_id: str,
    runner_id: str,
    lease_token: str | None,
    now: Clock,
    *,
    aborting: bool = False,
) -> Ended | None:
    """Say why the caller may not act on the job, or None when it may.

    What makes a runner drop its result is said only with proof: on a primary that has been cut
    off a claim or a rejudge may be missing, and a judging would be thrown away for nothing.
    """
    ended = _why_not(job, runner_id, lease_token, now, aborting=aborting)
    if ended in (None, Ended.IN_FLIGHT):
        return ended
    job, was_replaced = queue.jobs.confirmed(job_id)
    if job is None:
        return Ended.REPLACED if was_replaced else Ended.UNKNOWN_JOB
    return _why_not(job, runner_id, lease_token, now, aborting=aborting)


def _why_not(
    job: Job | None, runner_id: str, lease_token: str | None, now: Clock, *, aborting: bool
) -> Ended | None:
    if job is None:
        return Ended.UNKNOWN_JOB
    owner = job.leased_by == runner_id and lease_token in (None, job.lease_token)
    if not owner:
        return Ended.LEASE_LOST
    match job.state:
        case State.LEASED:
            return None
        case State.LANDING:
            begin_again = not aborting and deadline_passed(job.landing_deadline, now())
            return None if begin_again else Ended.IN_FLIGHT
        case State.DONE:
            # A judge error has no owner: whoever owns a job that is done has landed it.
            return Ended.LEASE_LOST if aborting else Ended.ALREADY_LANDED
        case State.PENDING:
            return Ended.LEASE_LOST
        case _:
            assert_never(job.state)


def _dropped(verb: str, ended: Ended, job_id: str, runner_id: str) -> Ended:
    if ended in (Ended.REPLACED, Ended.LEASE_LOST, Ended.UNKNOWN_JOB):
        emit(f"{verb}_dropped", reason=ended.name.lower(), job_id=job_id, runner_id=runner_id)
    if ended in (Ended.ALREADY_LANDED, Ended.ALREADY_GIVEN_BACK):
        emit(f"{verb}_repeated", job_id=job_id, runner_id=runner_id)
    return ended


# -- judge errors --------------------------------------------------------------------------


def sweep(queue: Queue, *, process_result: ProcessResult, now: Clock) -> int:
    """Land a judge error for every job whose last lease is over; return how many ended.

    Called by whoever polls. A landing that fails stays in place and is tried again by a later
    sweep, after its deadline.
    """
    ended = 0
    for job in queue.jobs.exhausted(now(), EXHAUSTED_MAX):
        landing = queue.jobs.begin_exhaust(job, now=now())
        if landing is not None:
            watch.lost(queue, job, now=now)
            ended += _land_judge_error(queue, landing, process_result, now)
    return ended


def _land_judge_error(
    queue: Queue,
    landing: Job,
    process_result: ProcessResult,
    now: Clock,
    result: JudgeResult | None = None,
) -> bool:
    """Land a judge error, with what the last runner reported where it did."""
    ids = {
        "submission_id": landing.submission_id,
        "job_id": landing.job_id,
        "fence": landing.fence,
    }
    emit("exhaust_begins", **ids, attempts=landing.attempts)
    try:
        try:
            outcome = _land_result(process_result, landing, result)
        except InvalidResult:
            outcome = _land_result(process_result, landing, None)
        done = queue.jobs.end_exhaust(landing, outcome=outcome, now=now())
    except Exception as error:  # noqa: BLE001 - whatever a landing raises, it is tried again
        # Whoever happened to poll is not to blame; the next sweep after the deadline retries.
        emit("exhaust_failed", **ids, error=type(error).__name__, exc_info=True)
        return False
    if done is None:
        emit("exhaust_dropped", **ids)
        return False
    emit("exhaust_ends", **ids, outcome=done.outcome)
    watch.exhausted(queue, done)
    return True


def _outcome(landed: Landed) -> Outcome:
    match landed:
        case Landed.VERDICT:
            return Outcome.VERDICT
        case Landed.JUDGE_ERROR:
            return Outcome.JUDGE_ERROR
        case Landed.REFUSED:
            return Outcome.DROPPED
        case _:
            assert_never(landed)
