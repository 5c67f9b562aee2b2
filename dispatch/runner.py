"""Runner identities: registered, recognised, revoked, forgotten.

Guarantees: only the SHA-256 of a token is kept; tokens are compared in constant time; a revoked
runner is refused from the next call on; an identity unseen for seven days does not count, whether
or not the database's TTL monitor has come by.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pymongo import IndexModel, WriteConcern
from pymongo.database import Database
from ulid import ULID

from dispatch.indexes import DURABLE

TOKEN_PREFIX = "rk_"  # noqa: S105 - what tokens start with, not a token
UNSEEN_MAX = timedelta(days=7)
TOUCH_EVERY = timedelta(seconds=5)
"""`last_seen` is written at most this often: polls stay reads."""

INDEXES = [
    # Forgets identities that are not seen any more.
    IndexModel(
        [("last_seen", 1)], name="unseen", expireAfterSeconds=int(UNSEEN_MAX.total_seconds())
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Runner:
    """A registered runner. `languages` None: every language."""

    runner_id: str
    name: str
    languages: tuple[int, ...] | None
    registered_at: datetime
    last_seen: datetime


class RunnerStore:
    """The `runners` collection."""

    def __init__(self, database: Database[dict[str, Any]], *, alive_s: float = 60) -> None:
        runners = database.get_collection("runners")
        self._runners = runners.with_options(write_concern=DURABLE)
        # Losing a `last_seen` in a failover costs nothing, waiting for a majority on every beat
        # would.
        self._soft = runners.with_options(write_concern=WriteConcern(1))
        self._alive = timedelta(seconds=alive_s)

    def create_indexes(self) -> None:
        """Create what is missing. Safe to repeat."""
        self._runners.create_indexes(INDEXES)

    def register(
        self, *, name: str, languages: tuple[int, ...] | None, now: datetime
    ) -> tuple[Runner, str]:
        """Register a runner; return it and its token, which is not kept and cannot be had again."""
        runner_id = f"rn_{ULID()}"
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        self._runners.insert_one(
            {
                "_id": runner_id,
                "name": name,
                "languages": None if languages is None else list(languages),
                "token_sha256": _digest(token),
                "registered_at": now,
                "last_seen": now,
            }
        )
        return (
            Runner(
                runner_id=runner_id,
                name=name,
                languages=languages,
                registered_at=now,
                last_seen=now,
            ),
            token,
        )

    def verify(self, runner_id: str, token: str, *, now: datetime) -> Runner | None:
        """Return the runner that `token` belongs to, or None: wrong, revoked or forgotten."""
        document = self._runners.find_one({"_id": runner_id})
        kept = document["token_sha256"] if document else ""
        if not hmac.compare_digest(kept, _digest(token)) or document is None:
            return None
        last_seen = document.get("last_seen")
        if document.get("revoked_at") is not None or not _is_kept(last_seen, now):
            return None
        if last_seen is None or last_seen <= now - TOUCH_EVERY:
            self._soft.update_one({"_id": runner_id}, {"$max": {"last_seen": now}})
        return _runner({**document, "last_seen": last_seen or now})

    def revoke(self, runner_id: str, *, now: datetime) -> bool:
        """Refuse the runner's token from now on; its leases end by themselves. Tell if known."""
        return (
            self._runners.update_one(
                {"_id": runner_id, "revoked_at": None}, {"$set": {"revoked_at": now}}
            ).matched_count
            == 1
        )

    def is_revoked(self, runner_id: str) -> bool:
        """Tell whether the runner is revoked or unknown."""
        return self._runners.find_one({"_id": runner_id, "revoked_at": None}, {"_id": 1}) is None

    def list(self, *, now: datetime) -> list[Runner]:
        """Return the runners in force, the longest registered first."""
        found = self._runners.find(
            {"revoked_at": None, "last_seen": {"$gt": now - UNSEEN_MAX}}
        ).sort("_id", 1)
        return [_runner(document) for document in found]

    def is_alive(self, runner: Runner, *, now: datetime) -> bool:
        """Tell whether it was seen lately. For people and preferences; leases never ask."""
        return runner.last_seen > now - self._alive

    def other_alive(self, but: Sequence[str], language: int, *, now: datetime) -> bool:
        """Tell whether a runner not in `but` that can judge `language` was seen lately."""
        other = self._runners.find_one(
            {
                "_id": {"$nin": list(but)},
                "revoked_at": None,
                "last_seen": {"$gt": now - self._alive},
                "$or": [{"languages": None}, {"languages": language}],
            },
            {"_id": 1},
        )
        return other is not None


def _is_kept(last_seen: datetime | None, now: datetime) -> bool:
    """Tell whether an identity counts; one whose document does not say was kept until now."""
    return last_seen is None or last_seen > now - UNSEEN_MAX


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8")).hexdigest()


def _runner(document: dict[str, Any]) -> Runner:
    languages = document.get("languages")
    return Runner(
        runner_id=document["_id"],
        name=document["name"],
        languages=None if languages is None else tuple(languages),
        registered_at=document.get("registered_at", document["last_seen"]),
        last_seen=document["last_seen"],
    )
