"""The queue's switches: paused or not, by whom and why; which rejudges and problems are held.

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
class HeldProblem:
    """Why a problem's jobs wait: runners cannot prepare them.

    Only with the test data it names. `probe_at`: when one of them is handed out to see whether
    that is still so.
    """

    problem_id: int
    testdata_sha256: str
    since: datetime
    why: str
    probe_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Switches:
    """All that a claim has to mind, read at once."""

    paused: Pause | None
    held_rejudges: tuple[str, ...]
    held_problems: Mapping[int, HeldProblem]


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

    def hold_problem(self, held: HeldProblem) -> bool:
        """Hand out no jobs of that problem but probes; tell whether this was news."""
        field = f"held_problems.{held.problem_id}"
        document = {
            "testdata_sha256": held.testdata_sha256,
            "since": held.since,
            "why": held.why,
            "probe_at": held.probe_at,
        }
        self._control.update_one({"_id": QUEUE}, {"$setOnInsert": {"_id": QUEUE}}, upsert=True)
        changed = self._control.update_one(
            {"_id": QUEUE, f"{field}.testdata_sha256": {"$ne": held.testdata_sha256}},
            {"$set": {field: document}},
        )
        return changed.modified_count == 1

    def take_probe(self, held: HeldProblem, *, next_at: datetime) -> bool:
        """Take the right to hand out one job of a held problem; of many that ask one gets it."""
        field = f"held_problems.{held.problem_id}"
        changed = self._control.update_one(
            {
                "_id": QUEUE,
                f"{field}.probe_at": held.probe_at,
                f"{field}.testdata_sha256": held.testdata_sha256,
            },
            {"$set": {f"{field}.probe_at": next_at}},
        )
        return changed.modified_count == 1

    def release_problem(self, problem_id: int, testdata_sha256: str | None = None) -> bool:
        """Hand out the problem's jobs again; tell whether it was held.

        `testdata_sha256`: only if it was held for that test data.
        """
        field = f"held_problems.{problem_id}"
        held: dict[str, Any] = {field: {"$exists": True}}
        if testdata_sha256 is not None:
            held = {f"{field}.testdata_sha256": testdata_sha256}
        changed = self._control.update_one({"_id": QUEUE, **held}, {"$unset": {field: ""}})
        return changed.modified_count == 1

    def read(self) -> Switches:
        """Return the switches as they stand."""
        return switches(self._control.find_one({"_id": QUEUE}) or {})


def switches(document: Mapping[str, Any]) -> Switches:
    """Read the switches off their document."""
    paused = document.get("paused")
    return Switches(
        paused=None if paused is None else Pause(**paused),
        held_rejudges=tuple(document.get("held_rejudges", ())),
        held_problems={
            int(problem_id): HeldProblem(problem_id=int(problem_id), **held)
            for problem_id, held in document.get("held_problems", {}).items()
        },
    )
