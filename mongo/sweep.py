"""What a crash can leave in the domain, found and finished by whoever polls (I8).

Guarantees: each function is bounded, may run in any number of processes at once, and does
nothing where nothing is left over.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from mongo import engine, recompute, rejudge_items, storage, unreadable
from mongo.storage import Place

HOMEWORKS_MAX = 2
BLOBS_MAX = 100
BLOB_GRACE = timedelta(minutes=10)
"""A blob this young may belong to a write still under way."""


class Sweeper:
    """Finishes what crashes left. Holds the place in long lists between calls, nothing else."""

    def __init__(self) -> None:
        self._homework_after = ""
        self._blobs_after: Place | None = None

    def finish_homeworks(self, *, now: datetime) -> int:
        """Finish the recomputes that edits of homeworks left undone; return how many.

        Takes turns: one that fails every time does not keep the others waiting.
        """
        after, self._homework_after = self._homework_after, ""
        due = list(recompute.homeworks_due(after=after, limit=HOMEWORKS_MAX, now=now))
        if not due and after:
            due = list(recompute.homeworks_due(after="", limit=HOMEWORKS_MAX, now=now))
        finished = 0
        for homework_id in due:
            self._homework_after = homework_id
            if recompute.claim_recompute(homework_id, now=now):
                recompute.recompute_homework(homework_id)
                finished += 1
        return finished

    def drop_blobs(self, *, now: datetime) -> int:
        """Remove code and outputs that no submission refers to; return how many.

        (A crash between a blob and the write that refers to it, or after that of a newer one.)
        """
        dropped = 0
        for prefix in ("code/", "outputs/"):
            if self._blobs_after is not None and self._blobs_after.name > prefix + "\U0010ffff":
                continue
            old = storage.older_than(
                prefix, now - BLOB_GRACE, after=self._blobs_after, limit=BLOBS_MAX
            )
            dropped += _drop_unreferenced(prefix, old)
            if len(old) == BLOBS_MAX:
                self._blobs_after = old[-1]
                return dropped
        self._blobs_after = None
        return dropped


def _drop_unreferenced(prefix: str, blobs: list[Place]) -> int:
    seen = _unreferenced(prefix, blobs)
    if not seen:
        return 0
    # A blob that is gone does not come back: look again, with proof that no newer primary has gone
    # on to refer to it.
    with engine.in_order():
        engine.catch_up()
        unreferenced = _unreferenced(prefix, seen)
    for blob in unreferenced:
        storage.delete(blob.blob_id)
    return len(unreferenced)


def _unreferenced(prefix: str, blobs: list[Place]) -> list[Place]:
    owners = [blob.name.removeprefix(prefix) for blob in blobs]
    # Items first: a preview that is applied refers from the submission before it no longer does
    # from its item, so what moves between the two reads is seen by the second.
    referenced: set[Any] = set(rejudge_items.outputs_of(owners))
    kept: set[str] = set()
    for submission in engine.submissions().find(
        {"_id": {"$in": owners}}, {"code_blob": 1, "result.outputs_blob": 1}
    ):
        found = unreadable.each("submissions", [submission], _blobs_of)
        referenced.update(*found)
        if not found:
            # What it refers to is not known, and what is dropped cannot be had again.
            kept.add(prefix + submission["_id"])
    return [blob for blob in blobs if blob.blob_id not in referenced and blob.name not in kept]


def _blobs_of(submission: dict[str, Any]) -> set[Any]:
    blobs = {submission["code_blob"], (submission.get("result") or {}).get("outputs_blob")}
    if not all(blob is None or isinstance(blob, (str, bytes)) for blob in blobs):
        raise TypeError("code_blob or result.outputs_blob is no blob")
    return blobs
