"""Removing the jobs of submissions that were judged long ago.

Guarantees: only jobs that are done, and with nothing left to write on their submission, go; a
fence never goes back: before a job is removed its submission holds the job's fence, above which a
later rejudge begins. Bounded per call, safe in any number of processes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from dispatch.events import emit
from dispatch.queue import Queue
from dispatch.states import State

RETIRED_MAX = 100
"""How many jobs one call removes."""

KeepFences = Callable[[Mapping[str, int]], None]
"""Makes sure that submissions (id to fence) hold at least these fences; of those that are gone,
nothing is to be kept."""


def retire_jobs(queue: Queue, *, done_before: datetime, keep_fences: KeepFences) -> int:
    """Remove jobs that were done before that moment; return how many.

    A late `complete` of one of them finds no such job.

    Raises:
        Exception: what `keep_fences` or the database raised; no job was removed.
    """
    old: dict[str, Any] = {
        "state": State.DONE.value,
        "done_at": {"$lt": done_before},
        "mark_due": None,
        "restore_due": None,
        # A fence that cannot be read cannot be kept either, so its job stays.
        "$or": [{"fence": {"$type": "number"}}, {"fence": None}],
    }
    found = queue.jobs.jobs.find(old, {"fence": 1}).sort("done_at", 1).limit(RETIRED_MAX)
    fences = {job["_id"]: int(job.get("fence") or 0) for job in found}
    if not fences:
        return 0
    keep_fences(fences)
    # Under the same guard: one that was rejudged meanwhile stays.
    retired = queue.jobs.jobs.delete_many({"_id": {"$in": list(fences)}, **old}).deleted_count
    if retired:
        emit("jobs_retired", count=retired)
    return retired
