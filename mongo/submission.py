"""Submissions: handing in, rejudging, reading.

Guarantees: I7. A submission id is reserved from its insert on; a second submit under it starts
nothing and touches nothing of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from pymongo.errors import DuplicateKeyError

from dispatch.contract import Language, Verdict, new_job_id
from mongo import engine, outputs, storage, together, unreadable, user
from mongo.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from mongo.together import Look

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BLOBS = {"code_blob": 0, "result.outputs_blob": 0}
"""Left out by whoever wants neither code nor outputs: they may be in the submission itself."""


class JobQueue(Protocol):
    """What the domain needs of the queue. Wired by the composition root."""

    def enqueue(
        self,
        *,
        submission_id: str,
        job_id: str,
        problem_id: int,
        language: int,
        submission_fence: int,
    ) -> None:
        """Give the submission its job, unless it has one."""

    def requeue(
        self,
        *,
        submission_id: str,
        problem_id: int,
        language: int,
        submission_fence: int,
        minted_job_id: str | None,
        rejudge_id: str | None = None,
    ) -> tuple[str, int] | None:
        """Have the submission judged afresh; return (job id, the job's fence).

        `minted_job_id`: the id of its first job, if that has not been judged: perhaps it has yet
        to enter the queue. `rejudge_id`: for that bulk rejudge, behind fresh ones; None: that has
        been done.
        """

    def marked(self, *, submission_id: str, job_id: str, fence: int) -> None:
        """Note that the submission carries the mark of that rejudge."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """A submission that has been taken in."""

    submission_id: str
    job_id: str


# -- handing in ----------------------------------------------------------------------------


def submit(
    *,
    submission_id: str,
    username: str,
    problem_id: int,
    language: int,
    code_zip: bytes,
    may_be_early: bool,
    queue: JobQueue,
    now: datetime,
) -> Submitted:
    """Take a program in: its code, the submission, its job, in this order.

    `code_zip` is as `archive.source_zip` makes it. A crash between the writes leaves a submission
    without a job, which the next sweep enters.

    Raises:
        NotFoundError: `unknown_problem`, `unknown_user`.
        ForbiddenError: `language_not_allowed`, `homework_not_started`.
        ConflictError: `duplicate_submission`; nothing was started.
    """
    _check(
        submission_id=submission_id,
        username=username,
        problem_id=problem_id,
        language=language,
        may_be_early=may_be_early,
        now=now,
    )
    job_id = new_job_id()
    code = storage.keep(code_zip, name=f"code/{submission_id}")
    taken_in = _insert(
        {
            "_id": submission_id,
            "username": username,
            "problem_id": problem_id,
            "language": language,
            "code_blob": code,
            "submitted_at": now,
            "status": Verdict.PENDING.value,
            "job_id": job_id,
            "fence": 0,
            "result": None,
            "counted": None,
        }
    )
    if not taken_in:
        storage.delete(code)
        raise _duplicate(submission_id)
    queue.enqueue(
        submission_id=submission_id,
        job_id=job_id,
        problem_id=problem_id,
        language=language,
        submission_fence=0,
    )
    return Submitted(submission_id=submission_id, job_id=job_id)


def _insert(submission: dict[str, Any]) -> bool:
    """Store a new submission; tell whether its id was free.

    Raises:
        DuplicateKeyError: it is being taken at this moment, and a failover may free it again.
    """
    try:
        engine.submissions().insert_one(submission)
    except DuplicateKeyError:
        # The driver says so also where a majority never got what was met.
        if engine.submissions().find_one({"_id": submission["_id"]}, {"_id": 1}) is None:
            raise
        return False
    return True


def _check(
    *,
    submission_id: str,
    username: str,
    problem_id: int,
    language: int,
    may_be_early: bool,
    now: datetime,
) -> None:
    """Raise what `submit` refuses, in this order; all of it is read at once."""
    known, (problems, homeworks, taken) = together.read(
        Look(collection=engine.users(), filter={"_id": username}),
        Look(
            collection=engine.problems(),
            filter={"_id": problem_id},
            fields={"allowed_languages": 1},
        ),
        Look(
            collection=engine.homeworks(),
            filter={"students": username, "problem_ids": problem_id},
            fields={"start": 1},
        ),
        Look(collection=engine.submissions(), filter={"_id": submission_id}),
    )
    if not problems:
        raise NotFoundError("unknown_problem", f"there is no problem {problem_id}")
    if known is None:
        raise user.unknown(username)
    if language not in problems[0]["allowed_languages"]:
        name = Language(language).name
        raise ForbiddenError(
            "language_not_allowed", f"language: {name} is not allowed for problem {problem_id}"
        )
    starts = [
        reaching["start"]
        for reaching in homeworks
        if unreadable.has("homeworks", reaching, {"start": datetime})
    ]
    if not may_be_early and starts and min(starts) > now:
        # The problem reaches the student only through homeworks yet to start.
        raise ForbiddenError(
            "homework_not_started", f"the homework with problem {problem_id} has not started"
        )
    if taken:
        raise _duplicate(submission_id)


def _duplicate(submission_id: str) -> ConflictError:
    return ConflictError("duplicate_submission", f"submission {submission_id} already submitted")


# -- rejudging -----------------------------------------------------------------------------


def rejudge(submission_id: str, *, queue: JobQueue) -> str:
    """Have a submission judged afresh; return its job's id.

    Two writes: the job, then the mark on the submission. It takes effect with the mark; what a
    crash leaves between the two, a sweep repeats. Until the new verdict lands, the last landed
    result still counts.

    Raises:
        NotFoundError: `unknown_submission`.
    """
    submission = _submission(submission_id)
    asked = queue.requeue(
        submission_id=submission_id,
        problem_id=submission["problem_id"],
        language=submission["language"],
        submission_fence=submission.get("fence", 0),
        minted_job_id=submission["job_id"] if submission.get("result") is None else None,
    )
    if asked is None:
        raise RuntimeError("a rejudge without an id of its own is never skipped")
    mark_rejudged(submission_id, job_id=asked[0], fence=asked[1], queue=queue)
    return asked[0]


def mark_rejudged(submission_id: str, *, job_id: str, fence: int, queue: JobQueue) -> bool:
    """Mark a submission pending under its rejudge's fence, unless something newer stands.

    Tell whether it was not marked so before.
    """
    written = engine.submissions().update_one(
        {"_id": submission_id, "fence": engine.at_most(fence - 1)},
        {"$set": {"status": Verdict.PENDING.value, "fence": fence, "job_id": job_id}},
    )
    queue.marked(submission_id=submission_id, job_id=job_id, fence=fence)
    return written.modified_count == 1


def keep_fences(fences: Mapping[str, int]) -> None:
    """Have submissions (id to fence) hold at least these fences, whose jobs are about to go."""
    for submission_id, fence in fences.items():
        engine.submissions().update_one(
            {"_id": submission_id, "fence": engine.at_most(fence - 1)}, {"$set": {"fence": fence}}
        )


# -- reading -------------------------------------------------------------------------------


def _submission(submission_id: str, *fields: str) -> dict[str, Any]:
    wanted = dict.fromkeys(fields, 1) if fields else BLOBS
    submission = engine.submissions().find_one({"_id": submission_id}, wanted)
    if submission is None:
        raise NotFoundError("unknown_submission", f"there is no submission {submission_id!r}")
    return submission


def view_submission(submission_id: str) -> dict[str, Any]:
    """Return what is shown of a submission.

    While a rejudge is under way it is pending: no verdict, score 0, no tasks.

    Raises:
        NotFoundError: `unknown_submission`.
    """
    return _view(_submission(submission_id))


def _view(submission: dict[str, Any]) -> dict[str, Any]:
    pending = submission["status"] == Verdict.PENDING
    result = {} if pending else submission.get("result") or {}
    return {
        "submission_id": submission["_id"],
        "username": submission["username"],
        "problem_id": submission["problem_id"],
        "language": submission["language"],
        "status": submission["status"],
        "verdict": Verdict(submission["status"]).name,
        "score": result.get("score", 0),
        "exec_time_ms": result.get("exec_time_ms", -1),
        "memory_usage_kib": result.get("memory_usage_kib", -1),
        "submitted_at": submission["submitted_at"],
        "judged_at": result.get("judged_at"),
        "testdata_sha256": result.get("testdata_sha256"),
        "tasks": [_named(task) for task in result.get("tasks", [])],
    }


def _named(task: dict[str, Any]) -> dict[str, Any]:
    return {
        **task,
        "verdict": Verdict(task["status"]).name,
        "cases": [
            {"runs": 1, **case, "verdict": Verdict(case["status"]).name} for case in task["cases"]
        ],
    }


def verdict_of(submission_id: str) -> int | None:
    """Return the status shown (-1 while pending), or None if there is no such submission."""
    found = engine.submissions().find_one({"_id": submission_id}, {"status": 1})
    return None if found is None else int(found["status"])


def owner_of(submission_id: str) -> str:
    """Return whose submission it is.

    Raises:
        NotFoundError: `unknown_submission`.
    """
    return str(_submission(submission_id, "username")["username"])


def read_code(submission_id: str) -> bytes:
    """Return the code as a zip.

    Raises:
        NotFoundError: `unknown_submission`.
    """
    # The newest state: a program never changes, and a runner may come for one handed in just now.
    submission = engine.newest(engine.submissions()).find_one(
        {"_id": submission_id}, {"code_blob": 1}
    )
    data = None if submission is None else storage.read(submission["code_blob"])
    if data is None:
        raise NotFoundError("unknown_submission", f"there is no code of {submission_id!r}")
    return data


def read_output(submission_id: str, task: int, case: int, stream: outputs.Stream) -> bytes:
    """Return what a case of the shown result printed.

    Raises:
        NotFoundError: `unknown_submission`, or `unknown_output`: no such case has been judged.
    """
    submission = _submission(submission_id, "status", "result")
    result = submission.get("result") or {}
    tasks = [] if submission["status"] == Verdict.PENDING else result.get("tasks", [])
    if not (0 <= task < len(tasks) and 0 <= case < len(tasks[task]["cases"])):
        raise NotFoundError("unknown_output", f"submission {submission_id!r} has no such case")
    blob = result.get("outputs_blob")
    return b"" if blob is None else outputs.read(blob, task, case, stream)


def list_submissions(
    *,
    username: str | None,
    problem_id: int | None,
    status: int | None,
    limit: int,
    before: str | None,
    leave_out_unreadable: bool = True,
) -> tuple[list[dict[str, Any]], str | None]:
    """Return a page of submissions without tasks, newest first, and the next page's cursor.

    Raises:
        InvalidError: `invalid_request`, the cursor is none of ours.
        LookupError, TypeError, ValueError: one cannot be read and is not to be left out.
    """
    filter_: dict[str, Any] = {
        name: value
        for name, value in (
            ("username", username),
            ("problem_id", problem_id),
            ("status", status),
        )
        if value is not None
    }
    if before is not None:
        at, last_id = _cursor(before)
        filter_["$or"] = [
            {"submitted_at": {"$lt": at}},
            {"submitted_at": at, "_id": {"$lt": last_id}},
        ]
    found = list(
        engine.submissions()
        .find(filter_, {"result.tasks": 0, **BLOBS})
        .sort([("submitted_at", -1), ("_id", -1)])
        .limit(limit + 1)
    )
    page = found[:limit]
    more = len(found) > limit
    if leave_out_unreadable:
        # What has no date comes after all that has one: there is nothing to go on from.
        more = more and isinstance(page[-1].get("submitted_at"), datetime)
    cursor = f"{_epoch_ms(page[-1]['submitted_at'])}~{page[-1]['_id']}" if more else None
    if not leave_out_unreadable:
        return [_view(submission) for submission in page], cursor
    readable = [
        entry for entry in page if unreadable.has("submissions", entry, unreadable.SUBMISSION)
    ]
    return unreadable.each("submissions", readable, _view), cursor


def _epoch_ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _cursor(text: str) -> tuple[datetime, str]:
    at, _, last_id = text.partition("~")
    try:
        return EPOCH + timedelta(milliseconds=int(at)), last_id
    except (ValueError, OverflowError):
        raise InvalidError("invalid_request", "cursor: not one that was given out") from None
