"""The domain's documents as plain values, so that two runs can be compared.

Left out is what says how often and when something was done, not what it led to: fences, versions,
the ids of jobs and blobs, the moment of a landing and who judged. A blob stands there by its
contents.
"""

from __future__ import annotations

import hashlib
from typing import Any

from pymongo.database import Database

Document = dict[str, Any]


def digest(database: Database[Document], *, jobs: bool = True) -> dict[str, dict[str, Any]]:
    """Return collection to id to what counts of it."""
    blobs = _blobs(database)
    found = {
        "users": _all(database, "users", _without("version")),
        "homeworks": _all(database, "homeworks", _without("version")),
        "student_status": _all(database, "student_status", _without("version")),
        "submissions": _all(database, "submissions", lambda kept: _submission(kept, blobs)),
    }
    if jobs:
        found["jobs"] = _all(
            database, "jobs", lambda job: {name: job.get(name) for name in ("state", "outcome")}
        )
    return found


def blob_names(database: Database[Document]) -> list[str]:
    """Return the names of all blobs, sorted: what is left over shows here."""
    return sorted(file["filename"] for file in database["blobs.files"].find())


def _all(database: Database[Document], name: str, pick: Any) -> dict[str, Any]:
    return {str(document["_id"]): pick(document) for document in database[name].find()}


def _without(*names: str) -> Any:
    return lambda document: {
        name: value for name, value in document.items() if name not in ("_id", *names)
    }


def _submission(submission: Document, blobs: dict[str, str]) -> Document:
    kept: Document = _without("fence", "job_id")(submission)
    kept["code_blob"] = _contents(submission["code_blob"], blobs)
    result = kept.get("result")
    if result is not None:
        result = {
            name: value
            for name, value in result.items()
            if name not in ("fence", "job_id", "judged_at", "judged_by")
        }
        if result["outputs_blob"] is not None:
            result["outputs_blob"] = _contents(result["outputs_blob"], blobs)
        kept["result"] = result
    return kept


def _contents(kept: str | bytes, blobs: dict[str, str]) -> str:
    """Return the digest of a blob, which a document names or holds."""
    if isinstance(kept, bytes):
        return hashlib.sha256(kept).hexdigest()
    return blobs.get(kept, "missing")


def _blobs(database: Database[Document]) -> dict[str, str]:
    contents: dict[str, Any] = {}
    for chunk in database["blobs.chunks"].find().sort([("files_id", 1), ("n", 1)]):
        contents.setdefault(chunk["files_id"], hashlib.sha256()).update(chunk["data"])
    found = {}
    for file in database["blobs.files"].find():
        if "data" in file:  # a small one is whole by itself
            contents[file["_id"]] = hashlib.sha256(file["data"])
        kept = contents.get(file["_id"])
        found[file["_id"]] = "empty" if kept is None else kept.hexdigest()
    return found
