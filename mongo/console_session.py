"""Who is signed in at the console: sessions kept on the server.

Guarantees: a session's token is random, made anew at every sign-in, and only its SHA-256 is kept;
a session ends when it is signed out of, when it expires, or at the very next look after its admin
key was removed. Neither the browser nor this collection ever holds the key itself.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pymongo.collection import Collection

from mongo import engine

SESSION_TTL = timedelta(hours=12)
MARK_CHARS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleSession:
    """One sign-in. `key_mark`: the start of the key's hash, which tells keys apart."""

    key_mark: str
    expires_at: datetime


def create_indexes() -> None:
    """Create what is missing. Safe to repeat."""
    # Forgets sessions that are over; whether one is over is decided by its own time, not by this.
    _sessions().create_index("expires_at", name="expired", expireAfterSeconds=0)


def start(key: str, *, now: datetime) -> str | None:
    """Sign in with an admin key; return the new session's token, or None if it is no such key."""
    key_sha256 = _digest(key)
    if not _in_force(key_sha256):
        return None
    token = secrets.token_urlsafe(32)
    _sessions().insert_one(
        {"_id": _digest(token), "key_sha256": key_sha256, "expires_at": now + SESSION_TTL}
    )
    return token


def find(token: str, *, now: datetime) -> ConsoleSession | None:
    """Return the session in force under `token`, or None."""
    kept = engine.newest(_sessions()).find_one({"_id": _digest(token), "expires_at": {"$gt": now}})
    if kept is None or not _in_force(kept["key_sha256"]):
        return None
    return ConsoleSession(key_mark=kept["key_sha256"][:MARK_CHARS], expires_at=kept["expires_at"])


def end(token: str) -> None:
    """Sign out: the token means nothing from now on."""
    _sessions().delete_one({"_id": _digest(token)})


def _in_force(key_sha256: str) -> bool:
    keys = engine.newest(engine.ApiKey._get_collection())
    return keys.find_one({"_id": key_sha256, "admin": True}, {"_id": 1}) is not None


def _sessions() -> Collection[dict[str, Any]]:
    collection: Collection[dict[str, Any]] = engine.users().database["console_sessions"]
    return collection


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8")).hexdigest()
