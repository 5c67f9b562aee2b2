"""All that a claim has to look at, in one request to the database.

Guarantees: reads only. What it returns may be over by the time it is acted on; the claim's own
write decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from dispatch import control
from dispatch.control import Switches
from dispatch.queue import Queue
from dispatch.records import Job
from dispatch.store import (
    LINE_ORDER,
    ORPHANS_ORDER,
    Document,
    in_force,
    orphaned,
    taken_under,
    waiting,
)

_PART = "part"
_CANDIDATE = {"history": 0, "handed_out": 0, "replaced_ids": 0}
"""A claim needs none of these of a job, and they are most of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Glance:
    """What a runner may find: its own job under this wish, orphans, the head of the line.

    `held`: how many leases in force it has, counted where that number is bounded.
    """

    taken: Job | None
    held: int
    switches: Switches
    orphans: Collection[Job]
    pending: Collection[Job]


class _Lazily(Collection[Job]):
    """Jobs that are made of their documents when somebody comes to them: few claims go far."""

    def __init__(
        self, documents: Sequence[Document], read: Callable[[Document], Job | None]
    ) -> None:
        self._documents = documents
        self._read = read

    def __len__(self) -> int:
        return len(self._documents)

    def __iter__(self) -> Iterator[Job]:
        return (job for job in map(self._read, self._documents) if job is not None)

    def __contains__(self, job: object) -> bool:
        return any(job == one for one in self)


def glance(
    queue: Queue,
    *,
    runner_id: str,
    claim_id: str | None,
    languages: Sequence[int],
    now: datetime,
    limit: int,
) -> Glance:
    """Look once for `runner_id`. `pending` minds neither a pause nor what is held."""
    jobs, past, read = queue.jobs.newest, queue.jobs.past_unreadable, queue.jobs.read
    parts: list[list[Document]] = [
        _part("orphans", past(orphaned(now, queue.rules, languages)), ORPHANS_ORDER, limit),
        _part("pending", past(waiting(now, languages)), LINE_ORDER, limit),
    ]
    if queue.rules.max_concurrent_jobs is not None:
        parts.append([{"$match": in_force(runner_id, now)}, {"$count": "held"}, _named("held")])
    if claim_id is not None:
        parts.append([{"$match": taken_under(runner_id, claim_id)}, _named("taken")])
    unions = [(jobs.name, part) for part in parts[1:]]
    unions.append((control.COLLECTION, [{"$match": {"_id": control.QUEUE}}, _named("switches")]))
    found: dict[str, list[Document]] = {}
    for document in jobs.aggregate(
        [
            *parts[0],
            *({"$unionWith": {"coll": name, "pipeline": part}} for name, part in unions),
        ]
    ):
        found.setdefault(document[_PART], []).append(document)
    taken = next(iter(found.get("taken", [])), None)
    return Glance(
        taken=read(taken),
        held=next((one["held"] for one in found.get("held", [])), 0),
        switches=control.switches(next(iter(found.get("switches", [])), {})),
        orphans=_Lazily(found.get("orphans", []), read),
        pending=_Lazily(found.get("pending", []), read),
    )


def _part(
    name: str, matching: Document, order: list[tuple[str, int]], limit: int
) -> list[Document]:
    return [
        {"$match": matching},
        {"$sort": dict(order)},
        {"$limit": limit},
        {"$project": _CANDIDATE},
        _named(name),
    ]


def _named(name: str) -> Document:
    return {"$addFields": {_PART: {"$literal": name}}}
