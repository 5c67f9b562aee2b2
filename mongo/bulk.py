"""Many guarded writes in one round trip.

Guarantees: each write is judged by its own guard; those that lost are told by their place in the
list, and the others stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, DuplicateKeyError

Document = dict[str, Any]

DUPLICATE_KEY = 11000


def upsert_each(collection: Any, writes: Sequence[tuple[Document, Document]]) -> list[int]:
    """Apply (filter, update) pairs; return the indexes of those that lost.

    `collection` is pymongo's, or the in-process store's.

    A filter names an `_id` and a guard. Where it matches nothing the update tries to insert: that
    succeeds if the `_id` is free, and otherwise fails on it, which is how a lost race is told
    apart without asking again. (A bulk write counts its matches, but does not say whose.)

    Raises:
        BulkWriteError: a write failed for any other reason.
    """
    if not isinstance(collection, Collection):
        return _one_by_one(collection, writes)
    if not writes:
        return []
    operations = [UpdateOne(filter_, update, upsert=True) for filter_, update in writes]
    try:
        collection.bulk_write(operations, ordered=False)
    except BulkWriteError as error:
        failures = error.details["writeErrors"]
        if error.details.get("writeConcernErrors") or any(
            failure["code"] != DUPLICATE_KEY for failure in failures
        ):
            raise
        return [failure["index"] for failure in failures]
    return []


def _one_by_one(collection: Any, writes: Sequence[tuple[Document, Document]]) -> list[int]:
    """Do the same on the in-process store, which has no bulk writes with updates."""
    lost = []
    for index, (filter_, update) in enumerate(writes):
        try:
            collection.update_one(filter_, update, upsert=True)
        except DuplicateKeyError:
            lost.append(index)
    return lost
