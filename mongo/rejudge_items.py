"""The submissions of a bulk rejudge, one document each: what was, what became of it, and why.

Guarantees: an item is written once by whoever collects it (its id is made of both) and leaves
"waiting" and "queued" once; repeating any write here leaves what one would have left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import ASCENDING, IndexModel, ReturnDocument
from pymongo.collection import Collection

from dispatch.contract import Verdict
from mongo import engine
from mongo.bulk import upsert_each

Document = dict[str, Any]

WAITING, QUEUED, DONE, SKIPPED, CANCELLED = "waiting", "queued", "done", "skipped", "cancelled"
STATES = (WAITING, QUEUED, DONE, SKIPPED, CANCELLED)
UNSETTLED = (WAITING, QUEUED)
REASONS_MAX = 100


def items() -> Collection[Document]:
    """Return the raw collection."""
    return (
        engine.submissions()
        .database["rejudge_items"]
        .with_options(write_concern=engine.submissions().write_concern)
    )


def create_indexes() -> None:
    """Create what is missing. Safe to repeat."""
    items().create_indexes(
        [
            # What of a rejudge is in one state, in order; and how many, from the index alone.
            IndexModel(
                [("rejudge", ASCENDING), ("state", ASCENDING), ("_id", ASCENDING)], name="state"
            ),
            # Outputs of previews, for the sweep that drops those which nothing refers to.
            IndexModel(
                [("submission", ASCENDING)],
                name="outputs",
                partialFilterExpression={"result.outputs_blob": {"$type": "string"}},
            ),
        ]
    )


def item_id(rejudge_id: str, submission_id: str) -> str:
    """Return the id of a submission's item. (A rejudge's id has no slash.)"""
    return f"{rejudge_id}/{submission_id}"


def before(submission: Mapping[str, Any]) -> Document | None:
    """Return what a submission shows before its rejudge; None where nothing ever landed."""
    result = submission.get("result")
    if result is None:
        return None
    shown = {name: result[name] for name in ("status", "score", "fence")}
    return {**shown, "counted": submission.get("counted")}


def add(rejudge_id: str, submissions: Sequence[Mapping[str, Any]]) -> None:
    """Note submissions as waiting; those that are there already stay as they are."""
    upsert_each(
        items(),
        [
            (
                {
                    "_id": item_id(rejudge_id, submission["_id"]),
                    "rejudge": {"$exists": False},
                },
                {
                    "$set": {
                        "rejudge": rejudge_id,
                        "submission": submission["_id"],
                        "username": submission["username"],
                        "problem_id": submission["problem_id"],
                        "state": WAITING,
                        "before": before(submission),
                    }
                },
            )
            for submission in submissions
        ],
    )


def some(rejudge_id: str, state: str, limit: int, *, after: str = "") -> list[Document]:
    """Return the next items in that state, without whole results, in order of their ids."""
    found = items().find(
        {"rejudge": rejudge_id, "state": state, "_id": {"$gt": after}},
        {"result.tasks": 0, "result.outputs_blob": 0},
    )
    return list(found.sort("_id", 1).limit(limit))


def queued(item: Mapping[str, Any], *, job_id: str, fence: int, was: Document | None) -> bool:
    """Note under which job and fence an item is judged, and what it showed just before.

    Tell whether it was still waiting.
    """
    noted = items().update_one(
        {"_id": item["_id"], "state": WAITING},
        {"$set": {"state": QUEUED, "job_id": job_id, "fence": fence, "before": was}},
    )
    return noted.matched_count == 1


def is_cancelled(item: Mapping[str, Any]) -> bool:
    """Tell whether the item has been taken back."""
    return items().find_one({"_id": item["_id"], "state": CANCELLED}, {"_id": 1}) is not None


def settle(item: Mapping[str, Any], state: str, reason: str) -> None:
    """End an item without a verdict, unless it has ended."""
    items().update_one(
        {"_id": item["_id"], "state": {"$in": UNSETTLED}},
        {"$set": {"state": state, "reason": reason}},
    )


def landed(
    rejudge_id: str, submission_id: str, *, result: Mapping[str, Any], keep: bool = False
) -> Document | None:
    """Note the verdict that landed for an item; return the item as it was before.

    `keep`: with the whole result, for a preview. None: there is no such item, or it has ended
    otherwise, or carries a newer verdict.
    """
    after = {"status": result["status"], "score": result["score"]}
    kept = {"result": dict(result)} if keep else {}
    return items().find_one_and_update(
        {
            "_id": item_id(rejudge_id, submission_id),
            "state": {"$in": [*UNSETTLED, DONE]},
            "landed_fence": {"$not": {"$gt": result["fence"]}},
            "decided": None,
        },
        {"$set": {"state": DONE, "after": after, "landed_fence": result["fence"], **kept}},
        return_document=ReturnDocument.BEFORE,
    )


def counts(rejudge_id: str) -> dict[str, int]:
    """Return how many items are in each state."""
    found = items().aggregate(
        [{"$match": {"rejudge": rejudge_id}}, {"$group": {"_id": "$state", "n": {"$sum": 1}}}]
    )
    counted = {group["_id"]: group["n"] for group in found}
    return {state: counted.get(state, 0) for state in STATES}


def count(rejudge_id: str, state: str, *, limit: int) -> int:
    """Return how many items are in that state, counting to `limit`."""
    return items().count_documents({"rejudge": rejudge_id, "state": state}, limit=limit)


def changes(rejudge_id: str) -> list[Document]:
    """Return how many verdicts became which other: {from, to, count}, the most first."""
    found = items().aggregate(
        [
            {"$match": {"rejudge": rejudge_id, "state": DONE}},
            {
                "$group": {
                    "_id": {"was": "$before.status", "is": "$after.status"},
                    "count": {"$sum": 1},
                }
            },
        ]
    )
    changed = [
        {
            "from": verdict_name(group["_id"].get("was")),
            "to": verdict_name(group["_id"].get("is")),
            "count": group["count"],
        }
        for group in found
        if group["_id"].get("was") != group["_id"].get("is")
    ]
    return sorted(changed, key=lambda change: (-change["count"], change["from"], change["to"]))


def reasons(rejudge_id: str) -> list[Document]:
    """Return why items were skipped: {reason, count}, the most first."""
    found = items().aggregate(
        [
            {"$match": {"rejudge": rejudge_id, "state": SKIPPED}},
            {"$group": {"_id": "$reason", "count": {"$sum": 1}}},
            {"$sort": {"count": -1, "_id": 1}},
            {"$limit": REASONS_MAX},
        ]
    )
    return [{"reason": group["_id"], "count": group["count"]} for group in found]


def page(rejudge_id: str, *, after: str | None, limit: int) -> tuple[list[Document], str | None]:
    """Return items as they are shown, in order of their submissions, and the next page's cursor.

    A cursor is the last submission's id.
    """
    # By the id's prefix: the state of an item may change between two pages, its id does not.
    found = list(
        items()
        .find(
            {
                "_id": {
                    "$gt": item_id(rejudge_id, after or ""),
                    "$lt": f"{rejudge_id}0",
                }
            },
            {"result": 0},
        )
        .sort("_id", 1)
        .limit(limit + 1)
    )
    shown = [_shown(item) for item in found[:limit]]
    return shown, shown[-1]["submission_id"] if len(found) > limit else None


def _shown(item: Mapping[str, Any]) -> Document:
    was, is_ = item.get("before") or {}, item.get("after") or {}
    return {
        "submission_id": item["submission"],
        "username": item["username"],
        "state": item["state"],
        "reason": item.get("reason"),
        "verdict_before": verdict_name(was.get("status")),
        "verdict_after": verdict_name(is_.get("status")) if is_ else None,
        "score_before": was.get("score", 0),
        "score_after": is_.get("score"),
    }


def outputs_of(submission_ids: Sequence[str]) -> set[str]:
    """Return the outputs that previews of those submissions keep."""
    found = items().find(
        {"submission": {"$in": list(submission_ids)}, "result.outputs_blob": {"$type": "string"}},
        {"result.outputs_blob": 1},
    )
    return {item["result"]["outputs_blob"] for item in found}


def verdict_name(status: int | None) -> str:
    """Return a verdict's name; what never had one is pending."""
    return Verdict.PENDING.name if status is None else Verdict(status).name
