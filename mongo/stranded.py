"""Submissions that wait for what cannot come, found and put right by whoever polls (I8).

Guarantees: each function is bounded, may run in any number of processes at once, and does nothing
where nothing is left over. What is wrong is the queue's to say (`dispatch.repair`); here
submissions are read, and marked as after a rejudge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import structlog
from pymongo.errors import DuplicateKeyError, PyMongoError

from dispatch.contract import SubmissionSeen, Verdict
from mongo import engine, unreadable
from mongo.submission import JobQueue, keep_fences, mark_rejudged

log = structlog.get_logger("mongo")

Document = dict[str, Any]

WAITING_MAX = 500
"""How many submissions, or jobs, one call looks at."""
REPAIRED_MAX = 50
"""How many one call puts right."""
PENDING = Verdict.PENDING.value
NEEDED: Mapping[str, type] = {"job_id": str, "problem_id": int, "language": int, "status": int}
"""What a submission must have to be compared with its job, and judged at all."""
SEEN = {"status": 1, "job_id": 1, "fence": 1, "problem_id": 1, "language": 1}


class StrandedQueue(JobQueue, Protocol):
    """The queue, with a look at jobs that lead to no verdict."""

    def compare(
        self, submission_ids: Sequence[str], seen: Mapping[str, SubmissionSeen]
    ) -> tuple[list[str], list[str]]:
        """Return those without a job, and those whose job seems to lead to no verdict."""

    def open_page(self, place: Any, limit: int) -> tuple[list[str], Any]:
        """Return the submissions of the next open jobs, and where to go on; None: at the start."""

    def given_up(self, limit: int) -> list[str]:
        """Return the submissions of some jobs that were given up."""

    def forgive(self, submission_id: str, *, look: Callable[[], SubmissionSeen | None]) -> None:
        """Take back that a job was given up, if nothing is wrong with it any more."""

    def repair(
        self,
        submission_id: str,
        *,
        look: Callable[[], SubmissionSeen | None],
        by_hand: Callable[[Mapping[str, int]], None] | None = None,
    ) -> tuple[str, int] | None:
        """Put right what is still wrong; return (job id, fence) to be marked, if there is one.

        `by_hand`: somebody asks for it; makes sure that submissions hold at least these fences.
        """


class Stranded:
    """Walks through what waits. Holds the place in long lists between calls, nothing else."""

    def __init__(self, queue: StrandedQueue) -> None:
        self._queue = queue
        self._waiting_after = ""
        self._open_at: Any = None

    def right_waiting(self) -> int:
        """Give each submission that waits a job that leads to a verdict; return how many had none.

        (A crash between storing a submission and queueing it; a failover that took back half of
        what was done.) Looks at the next few hundred of those that wait, and starts over at the
        end.
        """
        waiting = list(
            engine.submissions()
            .find({"status": PENDING, "_id": {"$gt": self._waiting_after}}, SEEN)
            .sort("_id", 1)
            .limit(WAITING_MAX)
        )
        if not waiting:
            self._waiting_after = ""
            return 0
        self._waiting_after = waiting[-1]["_id"] if len(waiting) == WAITING_MAX else ""
        seen = _by_id(waiting)
        missing, suspects = self._queue.compare(list(seen), seen)
        for submission_id in missing:
            enqueue(seen[submission_id], queue=self._queue)
        self._right(suspects)
        return len(missing)

    def right_open(self) -> None:
        """Remove open jobs without a submission, and put right what else is wrong with open ones.

        Also looks again at what was given up.
        """
        looked_at = 0
        while looked_at < WAITING_MAX:
            ids, self._open_at = self._queue.open_page(self._open_at, WAITING_MAX)
            looked_at += len(ids)
            if ids:
                self._right(self._queue.compare(ids, look_at(ids))[1])
            if self._open_at is None:
                break
        for submission_id in self._queue.given_up(REPAIRED_MAX):
            self._queue.forgive(submission_id, look=partial(look, submission_id))

    def _right(self, suspects: Sequence[str]) -> None:
        for submission_id in suspects[:REPAIRED_MAX]:
            try:
                repair(submission_id, queue=self._queue)
            except PyMongoError:
                raise
            except UnreadableSubmissionError:
                continue  # told of already
            except Exception:
                # One that cannot be put right stops no other.
                log.exception("repair_failed", submission_id=submission_id)


def enqueue(submission: SubmissionSeen, *, queue: JobQueue) -> None:
    """Give a submission its job, unless it has one."""
    ids = {"submission_id": submission.submission_id, "job_id": submission.job_id}
    try:
        queue.enqueue(
            **ids,
            problem_id=submission.problem_id,
            language=submission.language,
            submission_fence=submission.fence,
        )
    except DuplicateKeyError:
        # Another submission's job has that id. One that cannot be entered stops no other.
        log.error("job_id_taken", **ids)


def repair(submission_id: str, *, queue: StrandedQueue, by_hand: bool = False) -> None:
    """Have a submission judged afresh whose job leads to no verdict; nothing, if it does."""
    fresh = queue.repair(
        submission_id,
        look=partial(look, submission_id),
        by_hand=keep_fences if by_hand else None,
    )
    if fresh is not None:
        mark_rejudged(submission_id, job_id=fresh[0], fence=fresh[1], queue=queue)


def look(submission_id: str) -> SubmissionSeen | None:
    """Return a submission as the queue is told of it; None: there is none.

    Raises:
        UnreadableSubmissionError: it is there, and cannot be read.
    """
    found = engine.submissions().find_one({"_id": submission_id}, SEEN)
    if found is None:
        return None
    seen = _by_id([found]).get(submission_id)
    if seen is None:
        raise UnreadableSubmissionError(submission_id)
    return seen


def look_at(submission_ids: Sequence[str]) -> dict[str, SubmissionSeen]:
    """Return those of these submissions that there are, by id."""
    return _by_id(engine.submissions().find({"_id": {"$in": list(submission_ids)}}, SEEN))


class UnreadableSubmissionError(Exception):
    """The submission is there, and cannot be read: nothing is done about its job."""


def _by_id(submissions: Iterable[Document]) -> dict[str, SubmissionSeen]:
    return {
        submission["_id"]: SubmissionSeen(
            submission_id=submission["_id"],
            job_id=submission["job_id"],
            fence=submission.get("fence", 0),
            pending=submission["status"] == Verdict.PENDING,
            problem_id=submission["problem_id"],
            language=submission["language"],
        )
        for submission in submissions
        if unreadable.has("submissions", submission, NEEDED)
    }
