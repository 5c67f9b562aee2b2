"""The queue as the domain sees it: the verbs of the lease protocol behind the domain's types.

Guarantees: translates and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dispatch import inspection, repair
from dispatch import job as verbs
from dispatch.clock import Clock
from dispatch.contract import SubmissionSeen
from dispatch.queue import Queue
from dispatch.records import Job
from dispatch.states import Outcome, State
from mongo.bulk_queue import JobView


class DomainQueue:
    """The queue as the domain sees it (`mongo.bulk_queue.BulkQueue`)."""

    def __init__(self, queue: Queue, now: Clock) -> None:
        self._queue = queue
        self._now = now

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
        verbs.enqueue_job(
            self._queue,
            submission_id=submission_id,
            job_id=job_id,
            problem_id=problem_id,
            language=language,
            submission_fence=submission_fence,
            now=self._now,
        )

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
        """Have the submission judged afresh; return (job id, fence), None: that has been done.

        `rejudge_id`: for a bulk rejudge, behind fresh ones.
        """
        job = verbs.rejudge_job(
            self._queue,
            submission_id=submission_id,
            problem_id=problem_id,
            language=language,
            submission_fence=submission_fence,
            minted_job_id=minted_job_id,
            priority=verbs.PRIORITY_FRESH if rejudge_id is None else verbs.PRIORITY_BULK_REJUDGE,
            rejudge_id=rejudge_id,
            now=self._now,
        )
        return None if job is None else (job.job_id, job.fence)

    def marked(self, *, submission_id: str, job_id: str, fence: int) -> None:
        """Note that the submission carries the mark of that rejudge."""
        self._queue.jobs.marked(submission_id, job_id=job_id, fence=fence)

    def compare(
        self, submission_ids: Sequence[str], seen: Mapping[str, SubmissionSeen]
    ) -> tuple[list[str], list[str]]:
        """Return those without a job, and those whose job seems to lead to no verdict."""
        return repair.compare(self._queue, submission_ids, seen, now=self._now)

    def open_page(
        self, place: repair.Place | None, limit: int
    ) -> tuple[list[str], repair.Place | None]:
        """Return the submissions of the next open jobs, and where to go on; None: at the start."""
        ids, following = repair.open_page(self._queue, place or repair.START, limit)
        return ids, None if following == repair.START else following

    def given_up(self, limit: int) -> list[str]:
        """Return the submissions of some jobs that were given up."""
        return [job["_id"] for job in repair.given_up(self._queue, limit)]

    def forgive(self, submission_id: str, *, look: Callable[[], SubmissionSeen | None]) -> None:
        """Take back that a job was given up, if nothing is wrong with it any more."""
        repair.forgive(self._queue, submission_id, look=look, now=self._now)

    def repair(
        self,
        submission_id: str,
        *,
        look: Callable[[], SubmissionSeen | None],
        by_hand: Callable[[Mapping[str, int]], None] | None = None,
    ) -> tuple[str, int] | None:
        """Put right what is still wrong; return (job id, fence) to be marked, if there is one."""
        return repair.repair_job(
            self._queue, submission_id, look=look, now=self._now, by_hand=by_hand
        )

    def inspect(
        self,
        after: str,
        limit: int,
        *,
        look_at: Callable[[Sequence[str]], Mapping[str, SubmissionSeen]],
    ) -> tuple[list[tuple[str, str, str, str]], int, str | None]:
        """Return (invariant, submission, what, remedy) of each fault, how many jobs, the place."""
        faults, count, following = inspection.inspect_page(
            self._queue, after, limit, look_at=look_at, now=self._now
        )
        told = [
            (fault.invariant, fault.submission_id, fault.what, fault.remedy.value)
            for fault in faults
        ]
        return told, count, following

    def preview_for(
        self,
        rejudge_id: str,
        *,
        submission_id: str,
        problem_id: int,
        language: int,
        submission_fence: int,
    ) -> tuple[str, int] | None:
        """Have a finished submission judged beside what it has; None: its job is not done."""
        job = verbs.preview_job(
            self._queue,
            submission_id=submission_id,
            problem_id=problem_id,
            language=language,
            submission_fence=submission_fence,
            rejudge_id=rejudge_id,
            now=self._now,
        )
        return None if job is None else (job.job_id, job.fence)

    def jobs(self, submission_ids: Sequence[str]) -> Mapping[str, JobView]:
        """Return submission id to job, of those that have one."""
        found = self._queue.jobs.some(submission_ids)
        return {submission_id: _view(job) for submission_id, job in found.items()}

    def cancel(self, submission_id: str, job: JobView, *, note: str) -> int | None:
        """Take the rejudge back if its job is still like that; return its new fence."""
        now = self._queue.jobs.get(submission_id)
        if now is None or _view(now) != job:
            return None
        cancelled = verbs.cancel_job(
            self._queue, now, only_waiting=job.waiting, note=note, now=self._now
        )
        return None if cancelled is None else cancelled.fence

    def restored(self, submission_id: str, *, fence: int) -> None:
        """Note that the submission shows its result again."""
        self._queue.jobs.restored(submission_id, fence=fence)

    def hold(self, rejudge_id: str) -> None:
        """Hand out none of the rejudge's waiting jobs."""
        self._queue.control.hold_rejudge(rejudge_id)

    def release(self, rejudge_id: str) -> None:
        """Hand them out again."""
        self._queue.control.release_rejudge(rejudge_id)

    def held(self) -> Sequence[str]:
        """Return the rejudges on hold."""
        return self._queue.control.read().held_rejudges


def _view(job: Job) -> JobView:
    return JobView(
        job_id=job.job_id,
        fence=job.fence,
        waiting=job.state is State.PENDING,
        done=job.state is State.DONE,
        cancelled=job.outcome is Outcome.CANCELLED,
        mark_due=job.mark_due is not None,
        preview=job.preview,
        rejudge_id=job.rejudge_id,
    )
