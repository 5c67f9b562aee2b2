"""The queue's switch: paused or not, by whom and why.

Guarantees: one document; without it the queue runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo.database import Database

from dispatch.indexes import DURABLE

QUEUE = "queue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """Why nothing is handed out."""

    by: str
    why: str
    at: datetime


class ControlStore:
    """The `dispatch_control` collection."""

    def __init__(self, database: Database[dict[str, Any]]) -> None:
        self._control = database.get_collection("dispatch_control").with_options(
            write_concern=DURABLE
        )

    def pause(self, *, by: str, why: str, now: datetime) -> None:
        """Hand out nothing until `resume`. Repeating it replaces the note."""
        self._control.update_one(
            {"_id": QUEUE}, {"$set": {"paused": {"by": by, "why": why, "at": now}}}, upsert=True
        )

    def resume(self) -> None:
        """Hand out jobs again."""
        self._control.update_one({"_id": QUEUE}, {"$unset": {"paused": ""}})

    def paused(self) -> Pause | None:
        """Return the pause in force, or None."""
        document = self._control.find_one({"_id": QUEUE})
        paused = document.get("paused") if document else None
        return None if paused is None else Pause(**paused)
