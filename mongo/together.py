"""Several reads in one round trip.

Guarantees: what is named first is read first, so that a version which guards a write is never
newer than what is read after it. (The stages of an aggregation pull from one another: a lookup runs
when the document with all that was looked up before has come out, on the same snapshot of the data
or a later one.) The in-process store, which knows no such lookups, is asked one by one, in the same
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo.collection import Collection

Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One read: of what `filter` finds in a collection, the `fields`."""

    collection: Any
    filter: Document
    fields: Document = field(default_factory=lambda: {"_id": 1})


def read(first: Look, *others: Look) -> tuple[Document | None, list[list[Document]]]:
    """Return the one document of `first` (None: there is none), and what each of `others` finds."""
    if isinstance(first.collection, Collection):
        found = next(iter(first.collection.aggregate(pipeline(first, others))), None)
        if found is not None:
            return found, [found.pop(f"look{number}") for number in range(len(others))]
    return first.collection.find_one(first.filter, first.fields), [_find(look) for look in others]


def pipeline(first: Look, others: Sequence[Look]) -> list[Document]:
    """Return the aggregation that reads all of them, in their order."""
    return [
        {"$match": first.filter},
        {"$limit": 1},
        {"$project": first.fields},
        *(
            {
                "$lookup": {
                    "from": look.collection.name,
                    "pipeline": [{"$match": look.filter}, {"$project": look.fields}],
                    "as": f"look{number}",
                }
            }
            for number, look in enumerate(others)
        ),
    ]


def _find(look: Look) -> list[Document]:
    return list(look.collection.find(look.filter, look.fields))
