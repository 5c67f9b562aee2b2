"""Documents that are not as any version writes them: passed over where many are read, told of once.

Guarantees: bounded; the documents stay as they are. One of them stops what is done with it itself,
and nothing that is done with others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import structlog
from prometheus_client import Counter

log = structlog.get_logger("mongo")

T = TypeVar("T")
Document = dict[str, Any]

KNOWN_MAX = 1_000
"""How many this process remembers having told of. Those beyond are passed over in silence."""
COUNT = Counter(
    "domain_unreadable_total", "Documents met that cannot be read, by collection.", ["collection"]
)

SUBMISSION: Mapping[str, type] = {
    "username": str,
    "problem_id": int,
    "language": int,
    "submitted_at": datetime,
    "status": int,
}
HOMEWORK: Mapping[str, type] = {
    "name": str,
    "problem_ids": list,
    "start": datetime,
    "end": datetime,
}

_known: set[str] = set()
_lock = threading.Lock()


def met(collection: str, document: Mapping[str, Any], why: str) -> None:
    """Log and count one, unless that has been done."""
    key = f"{collection}/{document.get('_id')!r}"[:200]
    with _lock:
        if key in _known or len(_known) >= KNOWN_MAX:
            return
        _known.add(key)
    COUNT.labels(collection=collection).inc()
    log.error("document_unreadable", document=key, why=why[:200])


def has(collection: str, document: Mapping[str, Any], fields: Mapping[str, type]) -> bool:
    """Tell whether a document has these fields, of these types; note one that has not."""
    for name, wanted in fields.items():
        value = document.get(name)
        if not _is_a(value, wanted):
            met(collection, document, f"{name} is a {type(value).__name__}")
            return False
    return True


def each(collection: str, documents: Iterable[Document], read: Callable[[Document], T]) -> list[T]:
    """Read documents, those left out, and noted, that cannot be read."""
    made = []
    for document in documents:
        try:
            made.append(read(document))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            met(collection, document, f"{type(error).__name__}: {error}")
    return made


def _is_a(value: Any, wanted: type) -> bool:
    if wanted is int:
        # A shell may have written a whole number as a float.
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and abs(value) < 2**62 and value == int(value)
    return isinstance(value, wanted)
