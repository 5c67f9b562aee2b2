"""The queue's switches: paused or not, by whom and why; which bulk rejudges are held.

Guarantees: one document; without it the queue runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo.database import Database

from dispatch.concerns import DURABLE, MAJORITY

COLLECTION = "dispatch_control"
QUEUE = "queue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """Why nothing is handed out."""

    by: str
    why: str
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Switches:
    """All that a claim has to mind, read at once."""

    paused: Pause | None
    held_rejudges: tuple[str, ...]


class ControlStore:
    """The `dispatch_control` collection."""

    def __init__(self, database: Database[dict[str, Any]]) -> None:
        self._control = database.get_collection(COLLECTION).with_options(
            write_concern=DURABLE, read_concern=MAJORITY
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
        return self.read().paused

    def hold_rejudge(self, rejudge_id: str) -> None:
        """Hand out none of that bulk rejudge's waiting jobs until it is released."""
        self._control.update_one(
            {"_id": QUEUE}, {"$addToSet": {"held_rejudges": rejudge_id}}, upsert=True
        )

    def release_rejudge(self, rejudge_id: str) -> None:
        """Hand out that bulk rejudge's jobs again."""
        self._control.update_one({"_id": QUEUE}, {"$pull": {"held_rejudges": rejudge_id}})

    def read(self) -> Switches:
        """Return the switches as they stand."""
        return switches(self._control.find_one({"_id": QUEUE}) or {})


def switches(document: Mapping[str, Any]) -> Switches:
    """Read the switches off their document."""
    paused = document.get("paused")
    return Switches(
        paused=None if paused is None else Pause(**paused),
        held_rejudges=tuple(document.get("held_rejudges", ())),
    )
