"""Blobs: code, test data and outputs, in GridFS, or, where small, in the document they belong to.

Guarantees: a blob's id is never used twice, so a half-written one harms nobody; a blob is there
in full or not at all for readers (its file document is written last, and a small blob is nothing
but its file document).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

import gridfs
import mongoengine
from gridfs.errors import NoFile
from pymongo import ASCENDING
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern
from ulid import ULID

BUCKET = "blobs"
READ_BYTES = 255 * 1024
SMALL_BYTES_MAX = 64 * 1024
"""A blob up to this size is kept in its file document: one write instead of two and two looks."""
INLINE_BYTES_MAX = 16 * 1024
"""What is not larger is kept by its owner's document itself: no write of its own, nothing to sweep.
Most programs and what they print are; the lists of submissions leave it out."""
NEVER_INLINE = -1
SMALL_PREFIX = "bs_"
LARGE_PREFIX = "bl_"

Document = dict[str, Any]
Kept = str | bytes
"""What a document holds of a blob: its id, or itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a blob stands in the order of names and ages."""

    name: str
    stored_at: datetime
    blob_id: str


def _files() -> gridfs.GridFS:
    return gridfs.GridFS(_newest(), BUCKET)


def _newest() -> Database[Document]:
    """Return the database as the primary has it: a blob never changes, and whoever reads one was
    referred to it."""
    newest: Database[Document] = mongoengine.get_db().with_options(
        read_concern=ReadConcern("local")
    )
    return newest


def _file_documents() -> Collection[Document]:
    documents: Collection[Document] = mongoengine.get_db()[f"{BUCKET}.files"]
    return documents


def create_indexes() -> None:
    """Create GridFS's own indexes, and the one that finds an owner's blobs."""
    database = mongoengine.get_db()
    database[f"{BUCKET}.chunks"].create_index(
        [("files_id", ASCENDING), ("n", ASCENDING)], unique=True
    )
    # Also GridFS's own lookup by name: a blob's name is its kind and owner.
    _file_documents().create_index([("filename", ASCENDING), ("uploadDate", ASCENDING)])


def keep(data: bytes, *, name: str, **metadata: Any) -> Kept:
    """Return what the owner's document is to hold of `data`: itself, or the id it is stored under.

    `name` and `metadata` are as for `put`.
    """
    return data if len(data) <= INLINE_BYTES_MAX else put(data, name=name, **metadata)


def put(data: bytes | IO[bytes], *, name: str, **metadata: Any) -> str:
    """Store a blob and return its id. `name` is its kind and owner, as in `code/<submission>`."""
    if isinstance(data, bytes) and len(data) <= SMALL_BYTES_MAX:
        return _put_small(data, name, metadata)
    blob_id = f"{LARGE_PREFIX}{ULID()}"
    _files().put(data, _id=blob_id, filename=name, metadata=metadata)
    return blob_id


def _put_small(data: bytes, name: str, metadata: Document) -> str:
    blob_id = f"{SMALL_PREFIX}{ULID()}"
    _file_documents().insert_one(
        {
            "_id": blob_id,
            "filename": name,
            "metadata": metadata,
            "length": len(data),
            "uploadDate": datetime.now(UTC),
            "data": data,
        }
    )
    return blob_id


def _is_small(blob_id: str) -> bool:
    return blob_id.startswith(SMALL_PREFIX)


def _read_small(blob_id: str) -> bytes | None:
    kept = _newest()[f"{BUCKET}.files"].find_one({"_id": blob_id}, {"data": 1})
    return None if kept is None else bytes(kept["data"])


def read(kept: Kept) -> bytes | None:
    """Return a blob's bytes, or None if there is none."""
    if isinstance(kept, bytes):
        return kept
    if _is_small(kept):
        return _read_small(kept)
    try:
        data: bytes = _files().get(kept).read()
    except NoFile:
        return None
    return data


def stream(blob_id: str) -> Iterator[bytes] | None:
    """Return a blob's bytes in pieces, or None if there is none."""
    if _is_small(blob_id):
        data = _read_small(blob_id)
        return None if data is None else iter((data,))
    try:
        blob = _files().get(blob_id)
    except NoFile:
        return None
    return iter(lambda: blob.read(READ_BYTES), b"")


def delete(kept: Kept) -> None:
    """Remove a blob; removing one that is not there is fine, or one that its document keeps."""
    if isinstance(kept, bytes):
        return
    if _is_small(kept):
        _file_documents().delete_one({"_id": kept})
    else:
        _files().delete(kept)


def existing(blob_ids: Sequence[str]) -> set[str]:
    """Return those of these blobs that there are."""
    found = _file_documents().find({"_id": {"$in": list(blob_ids)}}, {"_id": 1})
    return {file["_id"] for file in found} if blob_ids else set()


def named(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (id, metadata) of the blobs of that name."""
    return [
        (file["_id"], file.get("metadata") or {})
        for file in _file_documents().find({"filename": name}, {"metadata": 1})
    ]


def older_than(prefix: str, moment: datetime, *, after: Place | None, limit: int) -> list[Place]:
    """Return up to `limit` blobs whose name starts with `prefix`, by name and age, with their ids.

    `after`: where the page before ended.
    """
    begin: dict[str, Any] = {"filename": {"$gte": prefix, "$lt": prefix + "\U0010ffff"}}
    if after is not None and after.name >= prefix:
        begin["filename"]["$gte"] = after.name
        begin["$or"] = [
            {"filename": {"$gt": after.name}},
            {"uploadDate": {"$gt": after.stored_at}},
        ]
    found = _file_documents().find(
        {"$and": [begin, {"uploadDate": {"$lt": moment}}]}, {"filename": 1, "uploadDate": 1}
    )
    # The order of the index: the page is read, not sorted.
    page = found.sort([("filename", 1), ("uploadDate", 1)]).limit(limit)
    return [
        Place(name=file["filename"], stored_at=file["uploadDate"], blob_id=file["_id"])
        for file in page
    ]
