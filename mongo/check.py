"""Compares every stored counter and standing with a recompute from the submissions.

Guarantees: reports a difference only if it is still there on a second look under an unchanged
version, so that judging may go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mongo import engine, recompute

TRIES_MAX = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One thing to look at: a user's counters (`homework_id` None), or a standing."""

    username: str
    homework_id: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A stored value that the submissions do not add up to."""

    what: str
    username: str
    homework_id: str | None
    stored: Any
    recomputed: Any

    @property
    def whose(self) -> str:
        """The user, and the homework if it is a standing."""
        return self.username if self.homework_id is None else f"{self.homework_id}/{self.username}"


def scope(*, username: str | None = None, homework_id: str | None = None) -> list[Item]:
    """Return what there is to look at: everything, or what belongs to the user or homework."""
    items: list[Item] = []
    if homework_id is None:
        names = engine.users().find({} if username is None else {"_id": username}, {"_id": 1})
        items += [Item(username=user["_id"], homework_id=None) for user in names]
    filter_ = {} if homework_id is None else {"_id": homework_id}
    for homework in engine.homeworks().find(filter_, {"students": 1}):
        known = engine.student_statuses().find({"homework_id": homework["_id"]}, {"username": 1})
        everybody = {*homework["students"], *(status["username"] for status in known)}
        items += [
            Item(username=student, homework_id=homework["_id"])
            for student in sorted(everybody)
            if username in (None, student)
        ]
    return items


def differences(items: Sequence[Item], *, advance: Callable[[], None]) -> list[Difference]:
    """Return what differs among `items`; `advance` is called once for each."""
    found: list[Difference] = []
    for item in items:
        look = _counters if item.homework_id is None else _standing
        found += look(item)
        advance()
    return found


def _counters(item: Item) -> list[Difference]:
    def stored() -> dict[str, Any]:
        return engine.users().find_one({"_id": item.username}) or {}

    def compare(user: dict[str, Any]) -> list[Difference]:
        counters = recompute.user_counters(item.username)
        return [
            _difference(item, field, user.get(field), counters[field])
            for field in counters
            if user and user.get(field) != counters[field]
        ]

    return _stable(stored, compare)


def _standing(item: Item) -> list[Difference]:
    homework_id = item.homework_id or ""

    def stored() -> dict[str, Any]:
        key = recompute.status_id(homework_id, item.username)
        return engine.student_statuses().find_one({"_id": key}) or {}

    def compare(status: dict[str, Any]) -> list[Difference]:
        fresh = recompute.standings(
            recompute.settings_for(homework_id, item.username), item.username
        )
        kept = status.get("problems", {})
        return [
            _difference(item, f"problem {problem_id}", kept.get(problem_id), fresh.get(problem_id))
            for problem_id in sorted({*kept, *fresh})
            if kept.get(problem_id) != fresh.get(problem_id)
        ]

    return _stable(stored, compare)


def _stable(
    stored: Callable[[], dict[str, Any]],
    compare: Callable[[dict[str, Any]], list[Difference]],
) -> list[Difference]:
    """Compare until the document did not change meanwhile, or nothing differs."""
    found: list[Difference] = []
    for _ in range(TRIES_MAX):
        before = stored()
        found = compare(before)
        if not found or stored() == before:
            return found
    return found


def _difference(item: Item, what: str, stored: Any, recomputed: Any) -> Difference:
    return Difference(
        what=what,
        username=item.username,
        homework_id=item.homework_id,
        stored=stored,
        recomputed=recomputed,
    )
