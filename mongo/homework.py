"""Homeworks: their settings, and the standings assembled on reading.

Guarantees: an edit marks the homework `recompute_due` in the same write, so that a crash before
its recompute is finished by a sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mongoengine.errors import NotUniqueError

from mongo import engine, problem, recompute
from mongo.errors import ConflictError, InvalidError, NotFoundError
from mongo.penalty import PenaltyError, compile_penalty

TRIES_MAX = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class HomeworkSettings:
    """What a teacher sets. Times with zone."""

    name: str
    start: datetime
    end: datetime
    penalty: str
    problem_ids: tuple[int, ...]
    students: tuple[str, ...]


def put_homework(homework_id: str, settings: HomeworkSettings, *, now: datetime) -> bool:
    """Create or replace a homework and recompute it; tell whether it was created.

    Raises:
        InvalidError: `invalid_request`, the message names the field.
        ConflictError: `edit_conflict`, other edits won every race.
    """
    _check(settings)
    with engine.in_order():
        created = _save(homework_id, settings, now)
        recompute.recompute_homework(homework_id)
        return created


def _check(settings: HomeworkSettings) -> None:
    if settings.end < settings.start:
        raise InvalidError("invalid_request", "end: lies before start")
    try:
        compile_penalty(settings.penalty)
    except PenaltyError as error:
        raise InvalidError("invalid_request", f"penalty: {error}") from None
    for field, values in (("problem_ids", settings.problem_ids), ("students", settings.students)):
        if len(set(values)) != len(values):
            raise InvalidError("invalid_request", f"{field}: an entry is there twice")
    unknown = problem.unknown_problems(settings.problem_ids)
    if unknown:
        raise InvalidError("invalid_request", f"problem_ids: there is no problem {unknown[0]}")
    stranger = _unknown_student(settings.students)
    if stranger is not None:
        raise InvalidError("invalid_request", f"students: there is no user {stranger!r}")


def _unknown_student(students: Sequence[str]) -> str | None:
    found = engine.users().find({"_id": {"$in": list(students)}}, {"_id": 1})
    known = {user["_id"] for user in found}
    return next((student for student in students if student not in known), None)


def _save(homework_id: str, settings: HomeworkSettings, now: datetime) -> bool:
    values = {
        "name": settings.name,
        "start": settings.start,
        "end": settings.end,
        "penalty": settings.penalty,
        "problem_ids": list(settings.problem_ids),
        "students": list(settings.students),
        "recompute_due": True,
        "recompute_asked_at": now,
        # We are at it ourselves.
        "recompute_until": now + recompute.RECOMPUTE_LEASE,
    }
    for _ in range(TRIES_MAX):
        before = engine.homeworks().find_one(
            {"_id": homework_id}, {"students": 1, "departed": 1, "version": 1}
        )
        if before is None:
            try:
                engine.Homework(homework_id=homework_id, version=1, **values).save(
                    force_insert=True
                )
            except NotUniqueError:
                continue
            return True
        # Those who leave are remembered until their standings are emptied.
        departed = {*before.get("departed", ()), *before["students"]} - set(settings.students)
        changed = engine.homeworks().update_one(
            {"_id": homework_id, "version": engine.stored(before.get("version", 0))},
            {"$set": {**values, "departed": sorted(departed)}, "$inc": {"version": 1}},
        )
        if changed.matched_count:
            return False
    raise ConflictError("edit_conflict", f"homework {homework_id} is being edited by others")


def view_homework(homework_id: str, *, only: str | None) -> dict[str, Any]:
    """Return a homework with its standings; of student `only` alone, if given.

    Raises:
        NotFoundError: `unknown_homework`, there is none, or `only` is not one of its students.
    """
    homework = engine.homeworks().find_one({"_id": homework_id})
    if homework is None or (only is not None and only not in homework["students"]):
        raise NotFoundError("unknown_homework", f"there is no homework {homework_id!r}")
    students = homework["students"] if only is None else [only]
    kept = engine.student_statuses().find(
        {"homework_id": homework_id, **({} if only is None else {"username": only})}
    )
    problems = {status["username"]: status.get("problems", {}) for status in kept}
    return {
        "homework_id": homework_id,
        "name": homework["name"],
        "start": homework["start"],
        "end": homework["end"],
        "penalty": homework["penalty"],
        "problem_ids": homework["problem_ids"],
        "students": students,
        "recomputing": bool(homework.get("recompute_due")),
        "student_status": {student: problems.get(student, {}) for student in students},
    }
