"""Blobs: code, test data and outputs, in GridFS.

Guarantees: a blob's id is never used twice, so a half-written one harms nobody; a blob is there
in full or not at all for readers (its file document is written last).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any

import gridfs
import mongoengine
from gridfs.errors import NoFile
from pymongo import ASCENDING
from ulid import ULID

BUCKET = "blobs"
READ_BYTES = 255 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a blob stands in the order of names and ages."""

    name: str
    stored_at: datetime
    blob_id: str


def _files() -> gridfs.GridFS:
    return gridfs.GridFS(mongoengine.get_db(), BUCKET)


def create_indexes() -> None:
    """Create GridFS's own indexes, and the one that finds an owner's blobs."""
    database = mongoengine.get_db()
    database[f"{BUCKET}.chunks"].create_index(
        [("files_id", ASCENDING), ("n", ASCENDING)], unique=True
    )
    # Also GridFS's own lookup by name: a blob's name is its kind and owner.
    database[f"{BUCKET}.files"].create_index([("filename", ASCENDING), ("uploadDate", ASCENDING)])


def put(data: bytes | IO[bytes], *, name: str, **metadata: Any) -> str:
    """Store a blob and return its id. `name` is its kind and owner, as in `code/<submission>`."""
    blob_id = f"bl_{ULID()}"
    _files().put(data, _id=blob_id, filename=name, metadata=metadata)
    return blob_id


def read(blob_id: str) -> bytes | None:
    """Return a blob's bytes, or None if there is none."""
    try:
        data: bytes = _files().get(blob_id).read()
    except NoFile:
        return None
    return data


def stream(blob_id: str) -> Iterator[bytes] | None:
    """Return a blob's bytes in pieces, or None if there is none."""
    try:
        blob = _files().get(blob_id)
    except NoFile:
        return None
    return iter(lambda: blob.read(READ_BYTES), b"")


def delete(blob_id: str) -> None:
    """Remove a blob; removing one that is not there is fine."""
    _files().delete(blob_id)


def named(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (id, metadata) of the blobs of that name."""
    files = mongoengine.get_db()[f"{BUCKET}.files"]
    return [
        (file["_id"], file.get("metadata") or {})
        for file in files.find({"filename": name}, {"metadata": 1})
    ]


def older_than(prefix: str, moment: datetime, *, after: Place | None, limit: int) -> list[Place]:
    """Return up to `limit` blobs whose name starts with `prefix`, by name and age, with their ids.

    `after`: where the page before ended.
    """
    files = mongoengine.get_db()[f"{BUCKET}.files"]
    begin: dict[str, Any] = {"filename": {"$gte": prefix, "$lt": prefix + "\U0010ffff"}}
    if after is not None and after.name >= prefix:
        begin["filename"]["$gte"] = after.name
        begin["$or"] = [
            {"filename": {"$gt": after.name}},
            {"uploadDate": {"$gt": after.stored_at}},
        ]
    found = files.find(
        {"$and": [begin, {"uploadDate": {"$lt": moment}}]}, {"filename": 1, "uploadDate": 1}
    )
    # The order of the index: the page is read, not sorted.
    page = found.sort([("filename", 1), ("uploadDate", 1)]).limit(limit)
    return [
        Place(name=file["filename"], stored_at=file["uploadDate"], blob_id=file["_id"])
        for file in page
    ]
