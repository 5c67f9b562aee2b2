"""Bulk rejudges: a document each, moved on in small steps until every submission is settled.

Guarantees: I8. Every step may be repeated and may stop anywhere: whoever calls `advance` next goes
on from what is stored. Each submission still has one job, however many rejudges want it. A short
lease on the document keeps processes out of each other's way; nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

import structlog
from pymongo.collection import Collection
from pymongo.cursor import Cursor
from ulid import ULID

from dispatch.contract import Verdict
from mongo import engine, rejudge_filter, rejudge_items, rejudge_preview, unreadable
from mongo.bulk_queue import BulkQueue, JobView
from mongo.cancelling import cancel_job, is_under_way
from mongo.errors import ConflictError, NotFoundError
from mongo.rejudge_items import CANCELLED, QUEUED, SKIPPED, WAITING
from mongo.submission import mark_rejudged

log = structlog.get_logger("mongo")

Document = dict[str, Any]
Mode = Literal["replace", "preview"]

ACTIVE = ("collecting", "running", "cancelling", "applying", "discarding")
HOLDABLE = ("collecting", "running")
COLLECT_BATCH = 1_000
COLLECTED = (
    "submitted_at",
    "username",
    "problem_id",
    "counted",
    "result.status",
    "result.score",
    "result.fence",
)
QUEUE_BATCH = 200
LOOK_UP_EVERY = 10
"""Items queued before a step looks whether it is still wanted."""
SETTLE_BATCH = 500
QUEUED_MAX = 2_000
"""How many of one rejudge are in the queue at once: what is held is looked past by every claim."""
WORK_LEASE = timedelta(seconds=10)
ACTIVE_MAX = 20
"""How many rejudges one call moves on; the least lately moved come first."""


def rejudges() -> Collection[Document]:
    """Return the raw collection."""
    return (
        engine.submissions()
        .database["rejudges"]
        .with_options(write_concern=engine.submissions().write_concern)
    )


def create_indexes() -> None:
    """Create what is missing. Safe to repeat."""
    # Those that have something left to do.
    rejudges().create_index([("state", 1), ("work_until", 1)], name="active")
    rejudge_items.create_indexes()


# -- starting, looking -----------------------------------------------------------------------


def start(filter_: Mapping[str, Any], *, mode: Mode, by: str, now: datetime) -> Document:
    """Start a rejudge of what fits now; return its id and how many that are.

    Raises:
        InvalidError: `invalid_request`.
        NotFoundError: `unknown_homework`.
    """
    fitting = rejudge_filter.query(filter_, handed_in_by=now)
    total = engine.submissions().count_documents(fitting)
    rejudge_id = f"rj_{ULID()}"
    rejudges().insert_one(
        {
            "_id": rejudge_id,
            "mode": mode,
            "state": "collecting" if total else "done",
            "held": False,
            "by": by,
            "created_at": now,
            "filter": {name: value for name, value in filter_.items() if value is not None},
            "total": total,
            "collected": None,
        }
    )
    return {"rejudge_id": rejudge_id, "total": total}


def view(rejudge_id: str) -> Document:
    """Return a rejudge with its progress and what it changes.

    Raises:
        NotFoundError: `unknown_rejudge`.
    """
    return {
        **_view(_rejudge(rejudge_id)),
        "changes": rejudge_items.changes(rejudge_id),
        "reasons": rejudge_items.reasons(rejudge_id),
    }


def recent(limit: int) -> list[Document]:
    """Return the newest rejudges with their progress."""
    return [_view(found) for found in rejudges().find().sort("_id", -1).limit(limit)]


def page(rejudge_id: str, *, after: str | None, limit: int) -> tuple[list[Document], str | None]:
    """Return some of its submissions, and the next page's cursor.

    Raises:
        NotFoundError: `unknown_rejudge`.
    """
    _rejudge(rejudge_id)
    return rejudge_items.page(rejudge_id, after=after, limit=limit)


def require(rejudge_id: str) -> None:
    """Raise NotFoundError (`unknown_rejudge`) unless there is such a rejudge."""
    _rejudge(rejudge_id)


def _rejudge(rejudge_id: str) -> Document:
    found = rejudges().find_one({"_id": rejudge_id})
    if found is None:
        raise NotFoundError("unknown_rejudge", f"there is no rejudge {rejudge_id!r}")
    return found


def _view(rejudge: Document) -> Document:
    shown = ("mode", "state", "held", "by", "created_at", "filter", "total")
    return {
        "rejudge_id": rejudge["_id"],
        **{name: rejudge[name] for name in shown},
        "counts": rejudge_items.counts(rejudge["_id"]),
    }


def standing_still(*, before: datetime) -> list[Document]:
    """Return rejudges with something left to do that nobody has moved on since `before`."""
    quiet = {"state": {"$in": ACTIVE}, "created_at": {"$lt": before}}
    # Absent until the first step.
    found = rejudges().find({**quiet, "work_until": {"$not": {"$gt": before}}})
    return list(found.sort("work_until", 1).limit(ACTIVE_MAX))


def forgotten_holds(*, queue: BulkQueue) -> list[str]:
    """Return rejudges whose jobs are held back though they are not on hold, or over, or gone."""
    held = list(queue.held())
    # The switch first: a hold writes its document before that.
    wanted = {"_id": {"$in": held}, "held": True, "state": {"$in": HOLDABLE}}
    return sorted({*held} - {found["_id"] for found in rejudges().find(wanted, {"_id": 1})})


# -- deciding --------------------------------------------------------------------------------


def hold(rejudge_id: str, *, queue: BulkQueue) -> None:
    """Have nothing more of it claimed until it is released.

    Raises:
        NotFoundError: `unknown_rejudge`.
        ConflictError: `rejudge_over`: there is nothing left to hold.
    """
    _decide(rejudge_id, HOLDABLE, {"held": True})
    queue.hold(rejudge_id)


def release(rejudge_id: str, *, queue: BulkQueue) -> None:
    """Have it claimed again.

    Raises:
        NotFoundError: `unknown_rejudge`.
    """
    _rejudge(rejudge_id)
    rejudges().update_one({"_id": rejudge_id}, {"$set": {"held": False}})
    queue.release(rejudge_id)


def cancel(rejudge_id: str) -> None:
    """Have what has not been claimed keep its result. What is being judged lands.

    Raises:
        NotFoundError: `unknown_rejudge`.
        ConflictError: `rejudge_over`.
    """
    _decide(rejudge_id, (*HOLDABLE, "cancelling"), {"state": "cancelling", "held": False})


def apply(rejudge_id: str) -> None:
    """Have a preview's verdicts count.

    Raises:
        NotFoundError: `unknown_rejudge`.
        ConflictError: `not_ready`: it is no preview, has not ended, or has been decided on.
    """
    _decide(rejudge_id, ("ready", "applying"), {"state": "applying"}, reason="not_ready")


def discard(rejudge_id: str) -> None:
    """Drop a preview's verdicts.

    Raises:
        NotFoundError: `unknown_rejudge`.
        ConflictError: `not_ready`.
    """
    wanted = {"state": "discarding", "then": "discarded"}
    _decide(rejudge_id, ("ready", "discarding"), wanted, reason="not_ready")


def _decide(
    rejudge_id: str, states: tuple[str, ...], wanted: Document, reason: str = "rejudge_over"
) -> None:
    decided = rejudges().update_one(
        {"_id": rejudge_id, "state": {"$in": list(states)}}, {"$set": wanted}
    )
    if not decided.matched_count:
        state = _rejudge(rejudge_id)["state"]
        raise ConflictError(reason, f"rejudge {rejudge_id} is {state}")


# -- going on --------------------------------------------------------------------------------


def advance(*, queue: BulkQueue, now: Callable[[], datetime]) -> bool:
    """Move every rejudge on by one step; tell whether there is more to do at once.

    One that fails holds up no other: it is logged, and tried again by a later call.
    """
    active = {"state": {"$in": ACTIVE}}
    more = False
    for found in list(rejudges().find(active, {"_id": 1}).sort("work_until", 1).limit(ACTIVE_MAX)):
        try:
            more |= _advance_one(found["_id"], queue=queue, now=now)
        except Exception:
            log.exception("rejudge_failed", rejudge_id=found["_id"])
    return more


def _advance_one(rejudge_id: str, *, queue: BulkQueue, now: Callable[[], datetime]) -> bool:
    at = now()
    rejudge = rejudges().find_one_and_update(
        {
            "_id": rejudge_id,
            "state": {"$in": ACTIVE},
            "$or": [{"working": {"$ne": True}}, {"work_until": {"$lte": at}}],
        },
        {"$set": {"working": True, "work_until": at + WORK_LEASE}},
    )
    if rejudge is None:
        return False
    try:
        with engine.in_order():
            return _STEPS[rejudge["state"]](rejudge, queue)
    finally:
        rejudges().update_one(
            {"_id": rejudge_id, "work_until": at + WORK_LEASE}, {"$set": {"working": False}}
        )


def _move(rejudge: Document, state: str, **fields: Any) -> bool:
    """Bring a rejudge from the state it was read in to another. (An admin may have come first.)"""
    rejudges().update_one(
        {"_id": rejudge["_id"], "state": rejudge["state"]}, {"$set": {"state": state, **fields}}
    )
    return True


def _collect(rejudge: Document, queue: BulkQueue) -> bool:
    _keep_hold(rejudge, queue)
    found = list(_uncollected(rejudge))
    if found:
        rejudge_items.add(rejudge["_id"], [one for one in found if _is_readable(one)])
        rejudges().update_one(
            {"_id": rejudge["_id"], "state": "collecting"},
            {"$set": {"collected": [found[-1].get("submitted_at"), found[-1]["_id"]]}},
        )
        return True
    total = rejudge_items.items().count_documents({"rejudge": rejudge["_id"]})
    return _move(rejudge, "running", total=total)


def _is_readable(submission: Document) -> bool:
    """Tell whether a submission can be rejudged; one that cannot be read is left out."""
    if not unreadable.has("submissions", submission, {"username": str, "problem_id": int}):
        return False
    result = submission.get("result")
    shown = {"_id": submission["_id"], **result} if isinstance(result, dict) else submission
    return result is None or unreadable.has(
        "submissions", shown, {"status": int, "score": int, "fence": int}
    )


def _uncollected(rejudge: Document) -> Cursor[Document]:
    """Return the next submissions to collect, the newest first.

    Whatever the filter names, an index keeps it in that order.
    """
    fitting = rejudge_filter.query(rejudge["filter"], handed_in_by=rejudge["created_at"])
    wanted = {"$and": [fitting, *_not_collected(rejudge["collected"])]}
    found = engine.submissions().find(wanted, dict.fromkeys(COLLECTED, 1))
    return found.sort([("submitted_at", -1), ("_id", -1)]).limit(COLLECT_BATCH)


def _not_collected(last: Any) -> list[Document]:
    """Return the filter of what comes after `last`, [handed in at, id]; or None: all of it.

    Whatever else is there was left by an older version; collecting twice adds nothing.
    """
    if not isinstance(last, list):
        return []
    at, submission_id = last
    return [
        {"submitted_at": {"$lte": at}},
        {"$or": [{"submitted_at": {"$lt": at}}, {"_id": {"$lt": submission_id}}]},
    ]


def _run(rejudge: Document, queue: BulkQueue) -> bool:
    _keep_hold(rejudge, queue)
    # In the order in which an item goes, so that one that moves on meanwhile is counted.
    waiting = rejudge_items.count(rejudge["_id"], WAITING, limit=1)
    queued = rejudge_items.count(rejudge["_id"], QUEUED, limit=QUEUED_MAX)
    _settle_overtaken(rejudge, queue)
    if not waiting and not queued:
        queue.release(rejudge["_id"])
        return _move(rejudge, "ready" if rejudge["mode"] == "preview" else "done", held=False)
    room = min(QUEUE_BATCH, QUEUED_MAX - queued)
    if rejudge["held"] or room <= 0:
        return False
    batch = rejudge_items.some(rejudge["_id"], WAITING, room)
    failed = 0
    for number, item in enumerate(batch):
        if number and number % LOOK_UP_EVERY == 0 and not _is_running(rejudge):
            return True
        try:
            _queue(rejudge, item, queue)
        except Exception:
            # One that cannot be queued now stops no other.
            failed += 1
            log.exception("rejudge_item_failed", item=item["_id"])
    return len(batch) == room and not failed


def _is_running(rejudge: Document) -> bool:
    """Tell whether nobody has cancelled or held the rejudge since this step began."""
    running = {"_id": rejudge["_id"], "state": "running", "held": rejudge["held"]}
    return rejudges().find_one(running, {"_id": 1}) is not None


def _keep_hold(rejudge: Document, queue: BulkQueue) -> None:
    """Have the queue's switch say what the document says: a crash may have come between them."""
    is_held = rejudge["_id"] in queue.held()
    if rejudge["held"] and not is_held:
        queue.hold(rejudge["_id"])
    elif is_held and not rejudge["held"]:
        queue.release(rejudge["_id"])


def _queue(rejudge: Document, item: Document, queue: BulkQueue) -> None:
    """Put one item into the queue. A crash in between leaves it waiting, and this goes on."""
    submission = engine.submissions().find_one({"_id": item["submission"]})
    if submission is None:
        rejudge_items.settle(item, SKIPPED, "the submission is gone")
        return
    was = rejudge_items.before(submission)
    if rejudge["mode"] == "preview":
        if was is None or submission["status"] == Verdict.PENDING:
            rejudge_items.settle(item, SKIPPED, "it has no verdict to compare with")
            return
        asked = queue.preview_for(
            rejudge["_id"],
            submission_id=submission["_id"],
            problem_id=submission["problem_id"],
            language=submission["language"],
            submission_fence=submission.get("fence", 0),
        )
    else:
        asked = queue.requeue(
            rejudge_id=rejudge["_id"],
            submission_id=submission["_id"],
            problem_id=submission["problem_id"],
            language=submission["language"],
            submission_fence=submission.get("fence", 0),
            minted_job_id=submission["job_id"] if was is None else None,
        )
        if asked is not None:
            mark_rejudged(submission["_id"], job_id=asked[0], fence=asked[1], queue=queue)
    if asked is None:
        job = queue.jobs([submission["_id"]]).get(submission["_id"])
        if job is None or job.rejudge_id != rejudge["_id"]:
            if rejudge["mode"] == "preview":
                rejudge_items.settle(item, SKIPPED, "it is being judged already")
            return
        asked = (job.job_id, job.fence)
        if rejudge["mode"] != "preview":
            # The new result may have landed. (A preview's lands beside: what stood still stands.)
            was = item["before"]
    noted = rejudge_items.queued(item, job_id=asked[0], fence=asked[1], was=was)
    if not noted and rejudge_items.is_cancelled(item):
        # The rejudge was cancelled between the look at the item and its job.
        job = queue.jobs([submission["_id"]]).get(submission["_id"])
        _take_back(rejudge["_id"], item, job, queue)


def _settle_overtaken(rejudge: Document, queue: BulkQueue) -> None:
    """End items whose job will land nothing for them any more. Takes turns through the queued."""
    after = rejudge.get("looked_after", "")
    batch = rejudge_items.some(rejudge["_id"], QUEUED, SETTLE_BATCH, after=after)
    jobs = queue.jobs([item["submission"] for item in batch])
    for item in batch:
        why = _overtaken(rejudge["_id"], rejudge["mode"], jobs.get(item["submission"]))
        if why is not None:
            rejudge_items.settle(item, *why)
    looked = batch[-1]["_id"] if len(batch) == SETTLE_BATCH else ""
    if looked != after:
        rejudges().update_one({"_id": rejudge["_id"]}, {"$set": {"looked_after": looked}})


def _overtaken(rejudge_id: str, mode: str, job: JobView | None) -> tuple[str, str] | None:
    if job is None:
        return SKIPPED, "its job is gone"
    if job.rejudge_id != rejudge_id:
        by = f"rejudge {job.rejudge_id}" if job.rejudge_id else "a rejudge of its own"
        return SKIPPED, f"overtaken by {by}"
    if mode == "preview" and not job.preview:
        return SKIPPED, "overtaken by a rejudge of its own"
    if job.cancelled:
        return CANCELLED, "taken back"
    # A landing writes the item before its job is done.
    return (SKIPPED, "its result was refused: something newer stood") if job.done else None


def _cancel(rejudge: Document, queue: BulkQueue) -> bool:
    rejudge_id = rejudge["_id"]
    queue.release(rejudge_id)
    _note_entered(rejudge, queue)
    rejudge_items.items().update_many(
        {"rejudge": rejudge_id, "state": WAITING},
        {"$set": {"state": CANCELLED, "reason": "taken back"}},
    )
    _settle_overtaken(rejudge, queue)
    after, batch = "", rejudge_items.some(rejudge_id, QUEUED, SETTLE_BATCH)
    while batch:
        jobs = queue.jobs([item["submission"] for item in batch])
        for item in batch:
            _take_back(rejudge_id, item, jobs.get(item["submission"]), queue)
        after = batch[-1]["_id"]
        batch = rejudge_items.some(rejudge_id, QUEUED, SETTLE_BATCH, after=after)
    counts = rejudge_items.counts(rejudge_id)
    if counts[WAITING] or counts[QUEUED]:
        return False
    total = rejudge_items.items().count_documents({"rejudge": rejudge_id})
    if rejudge["mode"] == "preview":
        return _move(rejudge, "discarding", then="cancelled", total=total)
    return _move(rejudge, "cancelled", total=total)


def _note_entered(rejudge: Document, queue: BulkQueue) -> None:
    """Note the jobs that a step entered and did not get to note; its items are the first."""
    first = rejudge_items.some(rejudge["_id"], WAITING, QUEUE_BATCH)
    if not first:
        return
    jobs = queue.jobs([item["submission"] for item in first])
    for item in first:
        job = jobs.get(item["submission"])
        if job is not None and job.rejudge_id == rejudge["_id"]:
            rejudge_items.queued(item, job_id=job.job_id, fence=job.fence, was=item["before"])


def _take_back(rejudge_id: str, item: Document, job: JobView | None, queue: BulkQueue) -> None:
    if job is None or not job.waiting or job.rejudge_id != rejudge_id:
        return
    if not is_under_way(item["submission"], job):
        # Nothing ever landed: it is to be judged anyway.
        rejudge_items.settle(item, SKIPPED, "it had no earlier result to keep")
    elif cancel_job(item["submission"], job, queue=queue, note=rejudge_id):
        rejudge_items.settle(item, CANCELLED, "taken back")


def _apply(rejudge: Document, queue: BulkQueue) -> bool:
    if rejudge_preview.apply_some(rejudge["_id"], queue=queue):
        return True
    if rejudge_preview.undecided(rejudge["_id"]):
        return False
    return _move(rejudge, "applied")


def _discard(rejudge: Document, queue: BulkQueue) -> bool:
    if rejudge_preview.discard_some(rejudge["_id"]):
        return True
    return _move(rejudge, rejudge["then"])


_STEPS: dict[str, Callable[[Document, BulkQueue], bool]] = {
    "collecting": _collect,
    "running": _run,
    "cancelling": _cancel,
    "applying": _apply,
    "discarding": _discard,
}
