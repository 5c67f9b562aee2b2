"""Which indexes a start had to make for collections that were in use already.

Guarantees: reads only. An index that an operator dropped, or that a restored dump lacked, is told
apart from those of an empty database.
"""

from __future__ import annotations

from typing import Any

from pymongo.database import Database

Indexes = dict[str, frozenset[str]]
"""Collection to the names of its indexes."""


def in_use(database: Database[dict[str, Any]]) -> Indexes:
    """Return the indexes of all collections that hold anything."""
    return {
        name: frozenset(database[name].index_information())
        for name in sorted(database.list_collection_names())
        if not name.startswith("system.") and database[name].find_one({}, {"_id": 1}) is not None
    }


def made(before: Indexes, after: Indexes) -> list[tuple[str, str]]:
    """Return (collection, index) of those that `before` lacked in collections it had."""
    return [
        (collection, index)
        for collection, indexes in before.items()
        for index in sorted(after.get(collection, frozenset()) - indexes)
    ]
