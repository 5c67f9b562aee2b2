"""The in-process store: mongomock behind one lock, with GridFS.

Guarantees: single operations are atomic between the threads of this process (mongomock's own
find-and-modify is not). Nothing survives the process. It stands in where no `mongod` runs, for a
look around; nothing else is proven on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import mongomock
from mongomock.collection import Collection
from mongomock.gridfs import enable_gridfs_integration

_LOCK = threading.RLock()
_WRITES = (
    "bulk_write",
    "delete_many",
    "delete_one",
    "find_one_and_delete",
    "find_one_and_replace",
    "find_one_and_update",
    "insert_many",
    "insert_one",
    "replace_one",
    "update_many",
    "update_one",
)


def _serialised(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with _LOCK:
            return method(*args, **kwargs)

    locked._serialised = True  # type: ignore[attr-defined]
    return locked


def _with_unions(aggregate: Callable[..., Any]) -> Callable[..., Any]:
    """Add trailing `$unionWith` stages, which mongomock does not know, to its `aggregate`."""

    @wraps(aggregate)
    def united(self: Any, pipeline: list[dict[str, Any]], *args: Any, **kwargs: Any) -> Any:
        unions = [stage["$unionWith"] for stage in pipeline if "$unionWith" in stage]
        if not unions:
            return aggregate(self, pipeline, *args, **kwargs)
        documents = list(aggregate(self, pipeline[: -len(unions)], *args, **kwargs))
        for union in unions:
            documents += aggregate(self.database[union["coll"]], union["pipeline"])
        return iter(documents)

    united._serialised = True  # type: ignore[attr-defined]
    return united


def _create_indexes(self: Any, indexes: list[Any], *_: Any, **__: Any) -> list[str]:
    """Create each index with all its options: mongomock's own forgets what a partial one is of."""
    made = []
    for index in indexes:
        options = {name: value for name, value in index.document.items() if name != "key"}
        made.append(self.create_index(list(index.document["key"].items()), **options))
    return made


class SerialisedMongoClient(mongomock.MongoClient):  # type: ignore[type-arg]
    """A mongomock client whose collections' writes happen one at a time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name in _WRITES:
            method = getattr(Collection, name)
            if not getattr(method, "_serialised", False):
                setattr(Collection, name, _serialised(method))
        if not getattr(Collection.aggregate, "_serialised", False):
            setattr(Collection, "aggregate", _with_unions(Collection.aggregate))  # noqa: B010
        setattr(Collection, "create_indexes", _create_indexes)  # noqa: B010
        enable_gridfs_integration()  # type: ignore[no-untyped-call]
        super().__init__(*args, **kwargs)
