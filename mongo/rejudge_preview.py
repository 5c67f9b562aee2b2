"""What becomes of a preview's verdicts: made to count, or dropped.

Guarantees: I6. Applying one is a landing that was judged earlier: one guarded write of the
submission, then the recompute, then the note that it was done; repeated anywhere, it leaves what
one would have left. A submission that was judged by another road meanwhile is not overwritten.
"""

from __future__ import annotations

from typing import Any

from dispatch.contract import Verdict
from mongo import engine, storage
from mongo.bulk_queue import BulkQueue
from mongo.landing import drop_outputs, finish_judging, write_result
from mongo.rejudge_items import DONE, items

Document = dict[str, Any]

BATCH = 100
APPLIED, OVERTAKEN, DROPPED = "applied", "overtaken", "dropped"


def _open(rejudge_id: str) -> Document:
    return {"rejudge": rejudge_id, "state": DONE, "decided": None}


def undecided(rejudge_id: str) -> bool:
    """Tell whether a verdict has yet to be applied or reported."""
    return items().find_one(_open(rejudge_id), {"_id": 1}) is not None


def apply_some(rejudge_id: str, *, queue: BulkQueue) -> int:
    """Have the next few verdicts count; return how many have been decided on.

    Raises:
        RecomputeContendedError: other writers won every race.
    """
    decided = 0
    for item in list(items().find(_open(rejudge_id)).sort("_id", 1).limit(BATCH)):
        job = queue.jobs([item["submission"]]).get(item["submission"])
        if job is not None and job.rejudge_id == rejudge_id and not job.done:
            continue  # its landing is written and about to end, or to be repeated
        how = _apply_one(item)
        items().update_one({"_id": item["_id"], "decided": None}, {"$set": how})
        decided += 1
    return decided


def _apply_one(item: Document) -> Document:
    if "result" not in item:
        # A rejudge that counts took the waiting preview's job: its result landed by itself.
        return {"decided": OVERTAKEN, "reason": "not applied: a rejudge landed it by itself"}
    result, submission_id = item["result"], item["submission"]
    if item["before"] is None:
        # A crash came between its job and the note of what stood, and its verdict before the rest.
        return {
            "decided": OVERTAKEN,
            "reason": "not applied: it is not known what stood before",
            "result.outputs_blob": None,
        }
    before = write_result(
        submission_id,
        # Nothing has landed since, and nothing newer than the preview is under way.
        guard={"result.fence": item["before"]["fence"], "status": {"$ne": Verdict.PENDING.value}},
        result=result,
    )
    if before is None:
        now = engine.submissions().find_one({"_id": submission_id})
        landed = now is not None and (now.get("result") or {}).get("fence") == result["fence"]
        if now is None or not landed:
            # Its outputs are no longer referred to once this is noted; the sweep drops them.
            return {
                "decided": OVERTAKEN,
                "reason": "not applied: it was judged by another road meanwhile",
                "result.outputs_blob": None,
            }
        # An earlier try died after its write.
        before = now
    else:
        drop_outputs(before)
    finish_judging(before["username"], before["problem_id"])
    return {"decided": APPLIED, "result.outputs_blob": None}


def discard_some(rejudge_id: str) -> int:
    """Drop the next few verdicts' outputs; return how many."""
    found = list(items().find(_open(rejudge_id), {"result.outputs_blob": 1}).limit(BATCH))
    for item in found:
        blob_id = (item.get("result") or {}).get("outputs_blob")
        if blob_id is not None:
            storage.delete(blob_id)
        items().update_one(
            {"_id": item["_id"]}, {"$set": {"decided": DROPPED, "result.outputs_blob": None}}
        )
    return len(found)
