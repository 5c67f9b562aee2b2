"""Users and API keys.

Guarantees: only a key's SHA-256 is kept; a key is shown once, when it is made.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mongoengine.errors import NotUniqueError

from mongo import engine
from mongo.errors import NotFoundError

USER_PREFIX = "uk_"
ADMIN_PREFIX = "ak_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """Who is asking. `username` is None for an admin key, which is nobody in particular."""

    admin: bool
    username: str | None


def put_user(name: str, *, display_name: str | None) -> bool:
    """Create the user or change the display name; tell whether it was created.

    Raises:
        NotUniqueError: it is being created at this moment, and a failover may take that back.
    """
    created = _ensure_user(name)
    if display_name is not None:
        engine.User.objects(name=name).update_one(set__display_name=display_name)
    return created


def _ensure_user(name: str) -> bool:
    try:
        engine.User(name=name).save(force_insert=True)
    except NotUniqueError:
        # Said also of a user whom a majority never got, and whom a failover takes back.
        if engine.users().find_one({"_id": name}, {"_id": 1}) is None:
            raise
        return False
    return True


def view_user(name: str) -> dict[str, Any]:
    """Return the user with the counters.

    Raises:
        NotFoundError: `unknown_user`.
    """
    user = engine.User.objects(name=name).first()
    if user is None:
        raise unknown(name)
    return {
        "username": user.name,
        "display_name": user.display_name,
        "submission": user.submission,
        "AC_submission": user.AC_submission,
        "AC_problem_ids": list(user.AC_problem_ids),
    }


def require_user(name: str) -> None:
    """Raise NotFoundError unless there is such a user."""
    if engine.users().find_one({"_id": name}, {"_id": 1}) is None:
        raise unknown(name)


def unknown(name: str) -> NotFoundError:
    """Return what to raise where there is no such user."""
    return NotFoundError("unknown_user", f"there is no user {name!r}")


def create_key(username: str, *, now: datetime) -> str:
    """Make a key for a user and return it.

    Raises:
        NotFoundError: `unknown_user`.
    """
    require_user(username)
    return _new_key(USER_PREFIX, admin=False, username=username, now=now)


def create_admin_key(*, now: datetime) -> str:
    """Make an admin key and return it."""
    return _new_key(ADMIN_PREFIX, admin=True, username=None, now=now)


def ensure_admin_key(key: str, *, now: datetime) -> None:
    """Accept `key` (from the settings) as an admin key from now on."""
    try:
        _keep_key(key, admin=True, username=None, now=now)
    except NotUniqueError:
        return  # kept by an earlier start


def _new_key(prefix: str, *, admin: bool, username: str | None, now: datetime) -> str:
    key = prefix + secrets.token_urlsafe(32)
    _keep_key(key, admin=admin, username=username, now=now)
    return key


def _keep_key(key: str, *, admin: bool, username: str | None, now: datetime) -> None:
    engine.ApiKey(sha256=_digest(key), admin=admin, username=username, created_at=now).save(
        force_insert=True
    )


def principal(key: str) -> Principal | None:
    """Return who `key` belongs to, or None.

    Looked up by its hash: what a guesser can learn from timing is about hashes, not keys.
    """
    # The newest state: a key that was made a moment ago is known, one that was removed is refused.
    kept = engine.newest(engine.ApiKey._get_collection()).find_one({"_id": _digest(key)})
    if kept is None:
        return None
    return Principal(admin=kept.get("admin", False), username=kept.get("username"))


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8")).hexdigest()
