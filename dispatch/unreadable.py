"""Documents that are not as any version writes them: passed over, told of once each, counted.

Guarantees: one of them holds up nothing but what it is itself about; reading it changes nothing. (A
job that somebody waits for is judged afresh by `dispatch.repair`, if what is broken lets it.) What
is known of them is bounded, and every process comes to know it. A mended one is taken up again
within a tidying.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from pymongo import WriteConcern
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, PyMongoError

from dispatch.events import count

log = structlog.get_logger("dispatch")

KNOWN_MAX = 1_000
"""How many are known at once. Those beyond are passed over as well, but read every time."""
_TEXT_CHARS_MAX = 200

Document = dict[str, Any]
Reader = Callable[[Mapping[str, Any]], object]
"""Reads a document, or raises UnreadableDocument."""


class UnreadableDocument(ValueError):
    """A stored document is not as any version writes it; the message names the field."""


class Unreadable:
    """What is known of a database's unreadable documents; for any number of threads."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        # Losing a note in a failover costs nothing: the document is met again.
        self._notes = database.get_collection("unreadable_documents").with_options(
            write_concern=WriteConcern(1)
        )
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, Any]] = {}

    def met(self, collection: str, document_id: Any, why: str) -> None:
        """Note one: log and count it, unless somebody has."""
        key = f"{collection}/{document_id!r}"[:_TEXT_CHARS_MAX]
        with self._lock:
            if key in self._known or len(self._known) >= KNOWN_MAX:
                return
            self._known[key] = (collection, document_id)
        if self._is_news(key, collection, document_id, why[:_TEXT_CHARS_MAX]):
            count("document_unreadable")
            log.error("document_unreadable", document=key, why=why[:_TEXT_CHARS_MAX])

    def _is_news(self, key: str, collection: str, document_id: Any, why: str) -> bool:
        note = {"collection": collection, "document_id": document_id, "why": why}
        try:
            noted = self._notes.update_one({"_id": key}, {"$setOnInsert": note}, upsert=True)
        except DuplicateKeyError:
            return False  # another process came first
        except PyMongoError:
            return True  # it cannot be noted, but told
        return noted.upserted_id is not None

    def knows(self, collection: str, document_id: Any) -> bool:
        """Tell whether that document is a known one."""
        return f"{collection}/{document_id!r}"[:_TEXT_CHARS_MAX] in self._known

    def past(self, collection: str, wanted: Document) -> Document:
        """Return a filter that is as `wanted` and passes over the known ones.

        Else enough of them at the head of a bounded read would hide all that comes after.
        """
        known = [entry for of, entry in list(self._known.values()) if of == collection]
        return {"$and": [wanted, {"_id": {"$nin": known}}]} if known else wanted

    def count(self) -> int:
        """Return how many there are, counting to `KNOWN_MAX`."""
        return self._notes.count_documents({}, limit=KNOWN_MAX)

    def recheck(self, readers: Mapping[str, Reader]) -> None:
        """Learn what others met, and forget what has been mended or is gone.

        `readers`: collection to what reads its documents.
        """
        notes = list(self._notes.find().limit(KNOWN_MAX))
        known: dict[str, tuple[str, Any]] = {}
        for collection, reader in readers.items():
            ids = {
                note["_id"]: note["document_id"]
                for note in notes
                if note["collection"] == collection
            }
            still = self._still_unreadable(collection, list(ids.values()), reader) if ids else []
            known |= {key: (collection, of) for key, of in ids.items() if of in still}
        mended = [
            note["_id"]
            for note in notes
            if note["collection"] in readers and note["_id"] not in known
        ]
        if mended:
            self._notes.delete_many({"_id": {"$in": mended}})
        with self._lock:
            self._known = known

    def _still_unreadable(self, collection: str, ids: list[Any], reader: Reader) -> list[Any]:
        still = []
        for document in self._database[collection].find({"_id": {"$in": ids}}):
            try:
                reader(document)
            except UnreadableDocument:
                still.append(document["_id"])
        return still
