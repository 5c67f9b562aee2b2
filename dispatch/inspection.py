"""Every job, alone and beside its submission, a page at a time.

Guarantees: only reads; bounded per call; may run while the service works, since what two documents
seem to disagree on counts only after a look that proves the job did not move meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dispatch.clock import Clock
from dispatch.contract import SubmissionSeen
from dispatch.invariants import check_document
from dispatch.queue import Queue
from dispatch.repair import Remedy, confirmed, what_strands

Document = Mapping[str, Any]
LookAtMany = Callable[[Sequence[str]], Mapping[str, SubmissionSeen]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One broken invariant of one submission's job, and what a repair would do about it."""

    invariant: str
    submission_id: str
    what: str
    remedy: Remedy


def inspect_page(
    queue: Queue, after: str, limit: int, *, look_at: LookAtMany, now: Clock
) -> tuple[list[Fault], int, str | None]:
    """Look at the next `limit` jobs; return faults, how many jobs, and where to go on (None: end).

    `look_at` reads submissions by their ids.
    """
    found = queue.jobs.jobs.find({"_id": {"$gt": after}}).sort("_id", 1).limit(limit)
    jobs = list(found)
    seen = look_at([job["_id"] for job in jobs])
    faults: list[Fault] = []
    for job in jobs:
        submission_id = job["_id"]
        if _faults(queue, job, seen.get(submission_id), now):

            def look(submission_id: str = submission_id) -> SubmissionSeen | None:
                return look_at([submission_id]).get(submission_id)

            again, submission = confirmed(queue, submission_id, look)
            if again is not None:
                faults += _faults(queue, again, submission, now)
    return faults, len(jobs), jobs[-1]["_id"] if len(jobs) == limit else None


def _faults(
    queue: Queue, job: Document, submission: SubmissionSeen | None, now: Clock
) -> list[Fault]:
    wrong = what_strands(job, submission, languages=queue.languages, now=now(), thorough=True)
    remedy = Remedy.NONE if wrong is None else wrong.remedy
    found = [] if wrong is None else [(wrong.invariant, wrong.what)]
    try:
        found += [(one.invariant, one.detail) for one in check_document(job)]
    except (AttributeError, KeyError, TypeError) as error:
        found.append(("I3", f"its job cannot be read ({type(error).__name__}: {error})"))
    return [
        Fault(invariant=invariant, submission_id=job["_id"], what=what, remedy=remedy)
        for invariant, what in dict.fromkeys(found)
    ]
