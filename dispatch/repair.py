"""Jobs that can lead to no verdict any more: found, and their submissions judged afresh.

Guarantees: I8. What the invariants call impossible (a failover may take back what others went by,
a restored dump may lack a collection) ends in a fresh job whose fence is above the job's and the
submission's. Only what was confirmed is touched: the job is read before and after its submission,
and written under the state and fence that were read. No job is repaired for ever: each time later,
and at most `REPAIRS_MAX` times until somebody asks for a rejudge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from dispatch.clock import Clock
from dispatch.contract import SubmissionSeen, new_job_id
from dispatch.events import emit
from dispatch.invariants import pair_faults
from dispatch.queue import Queue
from dispatch.records import Job
from dispatch.retention import KeepFences
from dispatch.states import State
from dispatch.unreadable import UnreadableDocument

Document = Mapping[str, Any]
Look = Callable[[], SubmissionSeen | None]
"""Reads the submission as it is now; None: there is none."""

REPAIRS_MAX = 5
"""How often one job is repaired before it is given up."""
REPAIR_AGAIN_AFTER = timedelta(minutes=1)
"""Four times that after the first repair, and four times longer after each other one."""
LEASE_MAX = timedelta(hours=2)
"""No setting allows a lease as long as this."""
LOOKS_MAX = 10
"""How often a pair is read until its job did not move meanwhile."""
COMPARED = {"history": 0, "handed_out": 0, "replaced_ids": 0}
WALK = (
    (State.PENDING, "queued_at"),
    (State.LEASED, "lease_deadline"),
    (State.LANDING, "lease_deadline"),
)
"""The open jobs, in the orders in which they are indexed."""
Place = tuple[int, datetime | None]
"""Where a walk through the open jobs goes on: at which part, from which moment."""


class Remedy(Enum):
    """What becomes of a job that leads to no verdict."""

    JUDGE_AFRESH = "judges it afresh"
    REMOVE = "removes the job"
    ENTER_ANEW = "enters it into the queue anew"
    """Only where somebody asks for it."""
    NONE = "nothing: a human has to look"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrong:
    """Why a job leads to no verdict: the broken invariant, what it is, and the remedy."""

    invariant: str
    what: str
    remedy: Remedy


START: Place = (0, None)

# -- the rule ------------------------------------------------------------------------------


def what_strands(
    job: Document,
    submission: SubmissionSeen | None,
    *,
    languages: Sequence[int],
    now: datetime,
    thorough: bool = False,
) -> Wrong | None:
    """Return why the raw `job` cannot lead to its submission's verdict, or None: it can.

    Both read at one moment. What another sweep finishes (a mark or a restore that is due) is none,
    nor is a lease that has run out. `thorough`: also what is wrong while nobody waits for it.
    """
    state = job.get("state")
    if submission is None:
        # Not while somebody may be landing: fences begin anew with a job, and the old landing could
        # write over what is handed in under that id by then. It ends by itself.
        held = state in (State.LEASED, State.LANDING)
        gone = Wrong(invariant="I8", what="a job without its submission", remedy=Remedy.REMOVE)
        return None if held else gone
    if state not in list(State):
        # Perhaps a newer version's. What an older version does not know it leaves alone.
        return Wrong(invariant="I3", what=f"state is {state!r}", remedy=Remedy.ENTER_ANEW)
    if state == State.DONE:
        return _of_done(job, submission, languages, thorough)
    # What is open was asked for; a preview alone may be refused, and its rejudge says so.
    awaited = submission.pending or not job.get("preview")
    found = (
        _of_itself(job, submission, now)
        or (_of_pair(job, submission) if awaited or thorough else None)
        or _of_language(job, languages)
    )
    return found and _afresh(found, submission, languages)


def _of_done(
    job: Document, submission: SubmissionSeen, languages: Sequence[int], thorough: bool
) -> Wrong | None:
    found = _unreadable(job) or _of_pair(job, submission)
    if found and submission.pending:
        return _afresh(found, submission, languages)
    if found and thorough:
        # The verdict stands, and a later judging begins above its fence.
        return Wrong(invariant=found[0], what=found[1], remedy=Remedy.REMOVE)
    return None


def _afresh(found: tuple[str, str], submission: SubmissionSeen, languages: Sequence[int]) -> Wrong:
    # In a language that nobody judges it would only wait again.
    known = submission.language in languages
    remedy = Remedy.JUDGE_AFRESH if known else Remedy.NONE
    return Wrong(invariant=found[0], what=found[1], remedy=remedy)


def _of_itself(job: Document, submission: SubmissionSeen, now: datetime) -> tuple[str, str] | None:
    missing = [name for name, kind in _NEEDED.items() if not isinstance(job.get(name), kind)]
    if missing:
        return "I3", f"{', '.join(missing)} is missing"
    unreadable = _unreadable(job)
    if unreadable is not None:
        return unreadable
    fence = job.get("fence") or 0
    for name, due in (("mark", "mark_due"), ("restore", "restore_due")):
        if (job.get(due) or 0) > fence:
            return "I4", f"the {name} that is due carries a fence of the future"
    for name in ("problem_id", "language"):
        if job[name] != getattr(submission, name):
            return "I3", f"{name} is {job[name]}, and {getattr(submission, name)} was handed in"
    deadline = job.get("lease_deadline")
    if job["state"] != State.PENDING and deadline is not None and deadline > now + LEASE_MAX:
        return "I2", f"leased until {deadline.isoformat(timespec='seconds')}"
    return None


def _unreadable(job: Document) -> tuple[str, str] | None:
    try:
        Job.from_document(job)
    except UnreadableDocument as error:
        # Every claim passes over it.
        return "I3", str(error)
    return None


_NEEDED = {"job_id": str, "problem_id": int, "language": int, "queued_at": datetime}
"""Without these a job can be neither handed out nor found."""


def _of_pair(job: Document, submission: SubmissionSeen) -> tuple[str, str] | None:
    faults = pair_faults(
        job, fence=submission.fence, pending=submission.pending, job_id=submission.job_id
    )
    return next(faults, None)


def _of_language(job: Document, languages: Sequence[int]) -> tuple[str, str] | None:
    if job["language"] in languages:
        return None
    return "I8", f"language {job['language']} is none that runners are asked for"


def may_be_repaired(job: Document, now: datetime) -> bool:
    """Tell whether it is not too soon after the last repair, nor has it been given up."""
    repairs, last = job.get("repairs", 0), job.get("repaired_at")
    if job.get("given_up_at") is not None:
        return False
    if last is None or repairs >= REPAIRS_MAX:
        return True
    return bool(now >= last + REPAIR_AGAIN_AFTER * 4**repairs)


# -- looking -------------------------------------------------------------------------------


def compare(
    queue: Queue,
    submission_ids: Sequence[str],
    seen: Mapping[str, SubmissionSeen],
    *,
    now: Clock,
) -> tuple[list[str], list[str]]:
    """Return those without a job, and those whose job seems to lead to no verdict.

    `seen`: the submissions among `submission_ids` that there are, read before. What a second look
    is still to confirm, and what may not be repaired yet, is told apart by `repair_job`.
    """
    at = now()
    found = queue.jobs.jobs.find({"_id": {"$in": list(submission_ids)}}, COMPARED)
    jobs = {job["_id"]: job for job in found}
    missing = [submission_id for submission_id in submission_ids if submission_id not in jobs]
    suspects = [
        submission_id
        for submission_id in submission_ids
        if (job := jobs.get(submission_id)) is not None
        and may_be_repaired(job, at)
        and what_strands(job, seen.get(submission_id), languages=queue.languages, now=at)
    ]
    return missing, suspects


def open_page(queue: Queue, place: Place, limit: int) -> tuple[list[str], Place]:
    """Return the submissions of the next open jobs, and where to go on.

    Along the line's and the deadlines' own indexes. Of jobs that share one moment only the first
    `limit` are seen.
    """
    number, after = place
    state, field = WALK[number]
    wanted: dict[str, Any] = {"state": state.value}
    if after is not None:
        wanted[field] = {"$gte": after}
    found = list(queue.jobs.jobs.find(wanted, {field: 1}).sort(field, 1).limit(limit))
    ids = [job["_id"] for job in found]
    if len(found) < limit:
        return ids, ((number + 1) % len(WALK), None)
    last = found[-1].get(field)
    if last is not None and last == found[0].get(field):
        last += timedelta(milliseconds=1)
    return ids, (number, last)


def given_up(queue: Queue, limit: int) -> list[Document]:
    """Return the raw jobs that only a human can put right, the oldest first."""
    noted = queue.jobs.jobs.find({"given_up_at": {"$exists": True}}, COMPARED)
    return list(noted.sort("given_up_at", 1).limit(limit))


def count_given_up(queue: Queue) -> int:
    """Return how many these are."""
    return queue.jobs.jobs.count_documents({"given_up_at": {"$exists": True}})


# -- putting right -------------------------------------------------------------------------


def repair_job(
    queue: Queue,
    submission_id: str,
    *,
    look: Look,
    now: Clock,
    by_hand: KeepFences | None = None,
) -> tuple[str, int] | None:
    """Put right what `look` and the job still say is wrong; return (job id, fence) to be marked.

    The caller marks the submission with them, as after a rejudge; None: there is nothing to mark.
    `by_hand`: somebody asks for it, so neither too soon nor too often, and for all that is wrong;
    it keeps the fence of a job that goes.
    """
    job, submission = confirmed(queue, submission_id, look)
    if job is None:
        return None
    at = now()
    wrong = what_strands(
        job, submission, languages=queue.languages, now=at, thorough=by_hand is not None
    )
    if wrong is None or not (by_hand or may_be_repaired(job, at)):
        return None
    too_often = job.get("repairs", 0) >= REPAIRS_MAX and by_hand is None
    if submission is None:
        _remove(queue, job, "job_without_submission")
    elif wrong.remedy is Remedy.REMOVE:
        _remove(queue, job, "finished_job_removed")
    elif wrong.remedy is Remedy.ENTER_ANEW and by_hand is not None:
        by_hand({submission_id: job.get("fence") or 0})
        _remove(queue, job, "unreadable_job_removed")
    elif too_often or wrong.remedy is not Remedy.JUDGE_AFRESH:
        _give_up(queue, job, wrong, at)
    else:
        return _judge_afresh(queue, job, submission, wrong, at)
    return None


def confirmed(
    queue: Queue, submission_id: str, look: Look
) -> tuple[Document | None, SubmissionSeen | None]:
    """Return the raw job and its submission as both were at one moment; no job: neither is sure."""
    jobs = queue.jobs.jobs
    job = jobs.find_one({"_id": submission_id})
    for _ in range(LOOKS_MAX):
        submission = look()
        again = jobs.find_one({"_id": submission_id})
        if job == again:
            return job, submission
        job = again
    return None, None


def forgive(queue: Queue, submission_id: str, *, look: Look, now: Clock) -> None:
    """Take back that a job was given up, if nothing is wrong with it any more."""
    job, submission = confirmed(queue, submission_id, look)
    if job is None or what_strands(job, submission, languages=queue.languages, now=now()):
        return
    queue.jobs.jobs.update_one(_as_read(job), {"$unset": {"given_up_at": "", "given_up_why": ""}})


def _judge_afresh(
    queue: Queue, job: Document, submission: SubmissionSeen, wrong: Wrong, at: datetime
) -> tuple[str, int] | None:
    known = (job.get(name) for name in ("fence", "mark_due", "restore_due"))
    fences = [fence for fence in known if isinstance(fence, int)]
    preview = bool(job.get("preview")) and not submission.pending
    fresh = queue.jobs.repair(
        job,
        job_id=new_job_id(),
        problem_id=submission.problem_id,
        language=submission.language,
        fence=max([*fences, submission.fence]) + 1,
        preview=preview,
        now=at,
        note=wrong.what,
    )
    if fresh is None:
        return None
    emit(
        "stranded_repaired",
        submission_id=submission.submission_id,
        job_id=fresh.job_id,
        fence=fresh.fence,
        invariant=wrong.invariant,
        wrong=wrong.what,
    )
    return None if preview else (fresh.job_id, fresh.fence)


def _remove(queue: Queue, job: Document, event: str) -> None:
    """Remove a job with nothing to judge, if it is still as it was read."""
    if queue.jobs.jobs.delete_one(_as_read(job)).deleted_count:
        emit(
            event,
            submission_id=job["_id"],
            job_id=job.get("job_id"),
            state=job.get("state"),
        )


def _give_up(queue: Queue, job: Document, wrong: Wrong, at: datetime) -> None:
    """Note that a human has to look, and say so once."""
    noted = queue.jobs.jobs.update_one(
        {**_as_read(job), "given_up_at": None},
        {"$set": {"given_up_at": at, "given_up_why": wrong.what}},
    )
    if noted.modified_count:
        emit(
            "stranded_given_up",
            submission_id=job["_id"],
            job_id=job.get("job_id"),
            invariant=wrong.invariant,
            wrong=wrong.what,
        )


def _as_read(job: Document) -> dict[str, Any]:
    """Return the filter of a raw job that has not moved since."""
    return {name: job.get(name) for name in ("_id", "job_id", "state", "fence")}
