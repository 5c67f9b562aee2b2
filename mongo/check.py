"""Compares every stored counter and standing with a recompute from the submissions.

Guarantees: may run while judging goes on. A difference is reported only if its document did not
change while it was looked at, and only if it is still there after a few more looks: a landing
under way has by then written what follows from its result. (What a killed one left unwritten is
reported until the lease's end, when the job is judged again.) Repairing writes under the same
guards as a landing, one document at a time, so that it may be stopped and started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from mongo import engine, recompute

TRIES_MAX = 20
STUCK_AFTER = timedelta(minutes=2)
"""For how long a homework may be due for a recompute: longer than one takes."""
LOOKS_MAX = 6
"""How often what differs is looked at before it is reported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One thing to look at: a user's counters (`homework_id` None), or a standing."""

    username: str
    homework_id: str | None
    problem_id: int | None = None
    """The one problem of the standing to look at; None for all."""


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


def scope(
    *,
    username: str | None = None,
    homework_id: str | None = None,
    problem_id: int | None = None,
) -> list[Item]:
    """Return what there is to look at: everything, or what belongs to all that is given.

    Counters belong to their user, and to the problems that the user handed something in for.
    """
    items: list[Item] = []
    if homework_id is None:
        items += [Item(username=name, homework_id=None) for name in _users(username, problem_id)]
    filter_: dict[str, Any] = {} if homework_id is None else {"_id": homework_id}
    for homework in engine.homeworks().find(filter_, {"students": 1, "problem_ids": 1}):
        known = engine.student_statuses().find(
            {"homework_id": homework["_id"]},
            {"username": 1} if problem_id is None else {"username": 1, f"problems.{problem_id}": 1},
        )
        everybody = {kept["username"] for kept in known if problem_id is None or kept["problems"]}
        if problem_id is None or problem_id in homework["problem_ids"]:
            everybody.update(homework["students"])
        items += [
            Item(username=student, homework_id=homework["_id"], problem_id=problem_id)
            for student in sorted(everybody)
            if username in (None, student)
        ]
    return items


def _users(username: str | None, problem_id: int | None) -> Iterator[str]:
    filter_: dict[str, Any] = {} if username is None else {"_id": username}
    if problem_id is not None:
        involved = engine.submissions().distinct("username", {"problem_id": problem_id})
        filter_ = {"$and": [filter_, {"_id": {"$in": involved}}]}
    for user in engine.users().find(filter_, {"_id": 1}):
        yield user["_id"]


def differences(
    items: Sequence[Item],
    *,
    advance: Callable[[], None],
    pause: Callable[[], None] | None = None,
) -> list[Difference]:
    """Return what differs among `items`; `advance` is called once for each.

    With `pause`, what differs is looked at a few times more, with a `pause()` before each.
    """
    suspects = [item for item in items if _look_and(advance, item)]
    for _ in range(LOOKS_MAX - 1 if pause is not None else 0):
        if not suspects or pause is None:
            break
        pause()
        suspects = [item for item in suspects if _look(item)]
    return [difference for item in suspects for difference in _look(item)]


def repair(items: Iterable[Item], *, advance: Callable[[], None]) -> list[Difference]:
    """Rebuild what differs among `items` as it is found; return what differed.

    Raises:
        RecomputeContendedError: other writers won every race for one of them; start again.
    """
    found: list[Difference] = []
    for item in items:
        different = _look_and(advance, item)
        if different and item.homework_id is None:
            recompute.recompute_user(item.username)
        elif different and item.homework_id is not None:
            recompute.recompute_standings(item.homework_id, [item.username])
        found += different
    return found


def under_way(found: Iterable[Difference]) -> set[str]:
    """Return those homeworks of the differences whose own recompute has not finished yet."""
    concerned = {difference.homework_id for difference in found} - {None}
    due = engine.homeworks().find(
        {"_id": {"$in": sorted(filter(None, concerned))}, "recompute_due": True}, {"_id": 1}
    )
    return {homework["_id"] for homework in due}


def stuck(homework_id: str | None, *, now: datetime) -> list[str]:
    """Return the homeworks whose recompute has been due for longer than any takes, in order.

    The sweeps have gone over them and over: each try fails, or nobody polls. `homework_id`: look
    at this one alone.
    """
    due: dict[str, Any] = {
        "recompute_due": True,
        # Absent where an older version edited it.
        "recompute_asked_at": {"$not": {"$gt": now - STUCK_AFTER}},
    }
    if homework_id is not None:
        due["_id"] = homework_id
    return [found["_id"] for found in engine.homeworks().find(due, {"_id": 1}).sort("_id", 1)]


def finish(homework_ids: Iterable[str]) -> None:
    """Recompute homeworks that are stuck.

    Raises:
        RecomputeContendedError: other writers won every race; start again.
    """
    for homework_id in homework_ids:
        recompute.recompute_homework(homework_id)


def _look_and(advance: Callable[[], None], item: Item) -> list[Difference]:
    found = _look(item)
    advance()
    return found


def _look(item: Item) -> list[Difference]:
    return _counters(item) if item.homework_id is None else _standing(item, item.homework_id)


def _counters(item: Item) -> list[Difference]:
    def stored() -> dict[str, Any]:
        return engine.users().find_one({"_id": item.username}) or {}

    def compare(user: dict[str, Any]) -> list[Difference]:
        counters = recompute.user_counters(item.username)
        return [
            _difference(item, field, user.get(field), counters[field])
            for field in counters
            if user
            and user.get(field) != counters[field]
            # Made by the first landing, or by a repair.
            and not (field == "tally" and user.get("tally") is None)
        ]

    return _stable(stored, compare)


def _standing(item: Item, homework_id: str) -> list[Difference]:
    def stored() -> dict[str, Any]:
        key = recompute.status_id(homework_id, item.username)
        return engine.student_statuses().find_one({"_id": key}) or {}

    def compare(status: dict[str, Any]) -> list[Difference]:
        homework = recompute.settings_for(homework_id, [item.username])
        fresh = recompute.standings(homework, [item.username])[item.username]
        kept = status.get("problems", {})
        return [
            _difference(item, f"problem {problem_id}", kept.get(problem_id), fresh.get(problem_id))
            for problem_id in sorted({*kept, *fresh})
            if kept.get(problem_id) != fresh.get(problem_id)
            and (item.problem_id is None or str(item.problem_id) == problem_id)
        ]

    return _stable(stored, compare)


def _stable(
    stored: Callable[[], dict[str, Any]],
    compare: Callable[[dict[str, Any]], list[Difference]],
) -> list[Difference]:
    """Compare until the document did not change meanwhile, or nothing differs.

    What changed under every try is being written by landings, and left to them.
    """
    for _ in range(TRIES_MAX):
        before = stored()
        found = compare(before)
        if not found or stored() == before:
            return found
    return []


def _difference(item: Item, what: str, stored: Any, recomputed: Any) -> Difference:
    return Difference(
        what=what,
        username=item.username,
        homework_id=item.homework_id,
        stored=stored,
        recomputed=recomputed,
    )
