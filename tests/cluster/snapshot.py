"""What is read of the database after chaos, and how what is wrong in it is named."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.database import Database

Document = dict[str, Any]

COLLECTIONS = ("submissions", "jobs", "users", "homeworks", "student_status")
BULK = ("rejudges", "rejudge_items")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is not as it must be."""

    name: str
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name} {self.subject}: {self.detail}"


def finding(name: str, subject: str, detail: str) -> Finding:
    return Finding(name=name, subject=subject, detail=detail)


@dataclass(kw_only=True)
class Snapshot:
    """The database after peace, whole collections at once. `blobs`: the ids that are there.

    `at`: when it was read, in seconds since the epoch.
    """

    submissions: list[Document] = field(default_factory=list)
    jobs: list[Document] = field(default_factory=list)
    users: list[Document] = field(default_factory=list)
    homeworks: list[Document] = field(default_factory=list)
    student_status: list[Document] = field(default_factory=list)
    rejudges: list[Document] = field(default_factory=list)
    rejudge_items: list[Document] = field(default_factory=list)
    blobs: set[str] = field(default_factory=set)
    at: float = 0.0

    @classmethod
    def of(cls, database: Database[Document]) -> Snapshot:
        kept = {name: list(database[name].find()) for name in (*COLLECTIONS, *BULK)}
        blobs = {file["_id"] for file in database["blobs.files"].find({}, {"_id": 1})}
        return cls(**kept, blobs=blobs, at=time.time())


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Some submissions, whose jobs may be gone when they have been done for `after_s`.

    The service keeps jobs for a day at least. So what is done is made to look older; of a share of
    the submissions alone, so that the others' histories are there to be checked.
    """

    after_s: float
    last_digits: str = "27"

    def may_take(self, submission_id: str, done_at: float, now: float) -> bool:
        """Tell whether the job of that submission, done at that time, may be gone by now."""
        return submission_id[-1] in self.last_digits and now - done_at >= self.after_s

    def age(self, database: Database[Document], now: datetime) -> int:
        """Make jobs that have been done for so long look two days older; return how many."""
        old = {
            "_id": {"$regex": f"[{self.last_digits}]$"},
            "state": "done",
            "done_at": {
                "$lt": now - timedelta(seconds=self.after_s),
                "$gt": now - timedelta(days=1),
            },
        }
        days = timedelta(days=2)
        return database["jobs"].update_many(old, {"$set": {"done_at": now - days}}).modified_count


def epoch_s(moment: datetime) -> float:
    """Return a stored moment in seconds since the epoch."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
