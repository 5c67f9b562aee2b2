"""Taking back a rejudge that has not landed: the earlier result stands.

Guarantees: I4 and I8. Two halves, the job and then the submission. It takes effect when the
submission shows its result again, under the cancel's fence, so that nothing judged before can
land over it; what a crash leaves between the halves, a sweep repeats.
"""

from __future__ import annotations

from dispatch.contract import Verdict
from mongo import engine
from mongo.bulk_queue import BulkQueue, JobView
from mongo.errors import ConflictError, NotFoundError
from mongo.landing import finish_judging
from mongo.recompute import RecomputeContendedError

TRIES_MAX = 20


def cancel_rejudge_of(submission_id: str, *, queue: BulkQueue, note: str) -> None:
    """Take back the rejudge of one submission, from whoever has it.

    Raises:
        NotFoundError: `unknown_submission`.
        ConflictError: `nothing_to_cancel`: none is under way, or nothing ever landed before.
        RecomputeContendedError: other writers won every race.
    """
    for _ in range(TRIES_MAX):
        job = queue.jobs([submission_id]).get(submission_id)
        if not is_under_way(submission_id, job) or job is None:
            raise ConflictError(
                "nothing_to_cancel", f"no rejudge of {submission_id} can be taken back"
            )
        if cancel_job(submission_id, job, queue=queue, note=note):
            return
    raise RecomputeContendedError(f"the job of {submission_id} keeps changing")


def is_under_way(submission_id: str, job: JobView | None) -> bool:
    """Tell whether `job`, read before, rejudges a submission that has a result.

    Raises:
        NotFoundError: `unknown_submission`.
    """
    submission = engine.submissions().find_one(
        {"_id": submission_id}, {"status": 1, "result.status": 1}
    )
    if submission is None:
        raise NotFoundError("unknown_submission", f"there is no submission {submission_id!r}")
    if job is None or job.done or submission.get("result") is None:
        return False
    # A result that is shown is that of the job itself, unless a mark has yet to come over it.
    return submission["status"] == Verdict.PENDING or job.mark_due or job.preview


def cancel_job(submission_id: str, job: JobView, *, queue: BulkQueue, note: str) -> bool:
    """Take a rejudge back if its job is still like that; tell whether it was.

    Raises:
        RecomputeContendedError: other writers won every race.
    """
    with engine.in_order():
        fence = queue.cancel(submission_id, job, note=note)
        if fence is None:
            return False
        bring_back(submission_id, fence=fence, queue=queue)
        return True


def bring_back(submission_id: str, *, fence: int, queue: BulkQueue) -> None:
    """Have a submission show its result again, unless something newer stands, and count it.

    Counted too: a landing may have died between its result and the counters.

    Raises:
        RecomputeContendedError: other writers won every race.
    """
    for _ in range(TRIES_MAX):
        submission = engine.submissions().find_one({"_id": submission_id})
        result = None if submission is None else submission.get("result")
        shown_under = 0 if submission is None else submission.get("fence", 0)
        if submission is None or result is None or shown_under >= fence:
            break
        written = engine.submissions().update_one(
            {
                "_id": submission_id,
                "fence": engine.stored(shown_under),
                "result.fence": engine.stored(result.get("fence", 0)),
            },
            {"$set": {"status": result["status"], "fence": fence}},
        )
        if written.matched_count:
            break
    else:
        raise RecomputeContendedError(f"submission {submission_id} keeps changing")
    if submission is not None:
        finish_judging(submission["username"], submission["problem_id"])
    queue.restored(submission_id, fence=fence)
