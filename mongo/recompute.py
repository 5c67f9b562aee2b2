"""Counters and standings, recomputed from the submissions alone.

Guarantees: I6. Every writer first reads the version of the document it will write, then what it
computes from, and writes only if that version is unchanged, else does all of it again. Results
are stored before anybody recomputes, so the later of two racers always sees the earlier's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pymongo.errors import DuplicateKeyError

from dispatch.contract import Verdict
from mongo import engine
from mongo.penalty import compile_penalty
from mongo.scoring import CountedSubmission, HomeworkRules, stand

TRIES_MAX = 200
"""Each lost race means that somebody else's recompute succeeded, so this is never reached by
landings that progress."""


class RecomputeContendedError(Exception):
    """Other writers won every race; the landing is to be repeated."""


# -- a user's counters ---------------------------------------------------------------------


def user_counters(username: str) -> dict[str, Any]:
    """Return the counters that the user's submissions add up to."""
    found = engine.submissions().aggregate(
        [
            {"$match": {"username": username, "counted.status": {"$gte": 0}}},
            {
                "$group": {
                    "_id": {"status": "$counted.status", "problem_id": "$problem_id"},
                    "count": {"$sum": 1},
                }
            },
        ]
    )
    judged = accepted = 0
    accepted_problems: set[int] = set()
    for group in found:
        judged += group["count"]
        if group["_id"]["status"] == Verdict.AC:
            accepted += group["count"]
            accepted_problems.add(group["_id"]["problem_id"])
    return {
        "submission": judged,
        "AC_submission": accepted,
        "AC_problem_ids": sorted(accepted_problems),
    }


def recompute_user(username: str) -> None:
    """Bring the user's counters up to date. A user who is gone has none.

    Raises:
        RecomputeContendedError: other writers won every race.
    """
    for _ in range(TRIES_MAX):
        user = engine.users().find_one({"_id": username}, {"version": 1})
        if user is None:
            return
        version = user.get("version", 0)
        counters = user_counters(username)
        written = engine.users().update_one(
            {"_id": username, "version": version},
            {"$set": {**counters, "version": version + 1}},
        )
        if written.matched_count:
            return
    raise RecomputeContendedError(f"the counters of {username!r}")


# -- standings -----------------------------------------------------------------------------


def status_id(homework_id: str, username: str) -> str:
    """Return the id of a student's standing in a homework. (A homework's id has no slash.)"""
    return f"{homework_id}/{username}"


def homework_ids(username: str, problem_id: int) -> list[str]:
    """Return the homeworks that contain both the student and the problem."""
    found = engine.homeworks().find({"students": username, "problem_ids": problem_id}, {"_id": 1})
    return [homework["_id"] for homework in found]


def recompute_standing(homework_id: str, username: str, problem_id: int | None = None) -> None:
    """Bring a student's standing in a homework up to date: at one problem, or at all.

    A student or a problem that the homework no longer contains loses the entry, but the document
    stays, with a raised version: so a landing in flight that still saw it cannot write it anew.

    Raises:
        RecomputeContendedError: other writers won every race.
    """
    key = status_id(homework_id, username)
    for _ in range(TRIES_MAX):
        kept = engine.student_statuses().find_one({"_id": key}, {"version": 1})
        homework = settings_for(homework_id, username)
        update = (
            _whole(homework, username)
            if problem_id is None or kept is None
            else _one_problem(homework, username, problem_id)
        )
        if _write_standing(key, homework_id, username, kept, update):
            return
    raise RecomputeContendedError(f"the standing of {username!r} in homework {homework_id!r}")


def standings(homework: dict[str, Any] | None, username: str) -> dict[str, Any]:
    """Return the student's entries, problem id (as text) to entry, from the submissions.

    `homework` is as `settings_for` reads it: its `students` holds at most this student.
    """
    if homework is None or username not in homework.get("students", ()):
        return {}
    rules = rules_of(homework)
    return {
        str(problem_id): stand(rules, _counted(username, problem_id)).to_document()
        for problem_id in homework["problem_ids"]
    }


def rules_of(homework: dict[str, Any]) -> HomeworkRules:
    """Return the scoring rules of a homework document."""
    return HomeworkRules(
        start=homework["start"], end=homework["end"], penalty=compile_penalty(homework["penalty"])
    )


def settings_for(homework_id: str, username: str) -> dict[str, Any] | None:
    """Read a homework without the other thousands of students."""
    return engine.homeworks().find_one(
        {"_id": homework_id},
        {
            "start": 1,
            "end": 1,
            "penalty": 1,
            "problem_ids": 1,
            "students": {"$elemMatch": {"$eq": username}},
        },
    )


def _counted(username: str, problem_id: int) -> list[CountedSubmission]:
    found = engine.submissions().find(
        {"username": username, "problem_id": problem_id, "counted.status": {"$gte": 0}},
        {"submitted_at": 1, "counted": 1},
    )
    return [
        CountedSubmission(
            submission_id=submission["_id"],
            submitted_at=submission["submitted_at"],
            status=submission["counted"]["status"],
            score=submission["counted"]["score"],
        )
        for submission in found
    ]


def _whole(homework: dict[str, Any] | None, username: str) -> dict[str, Any]:
    return {"$set": {"problems": standings(homework, username)}}


def _one_problem(homework: dict[str, Any] | None, username: str, problem_id: int) -> dict[str, Any]:
    field = f"problems.{problem_id}"
    if (
        homework is None
        or username not in homework.get("students", ())
        or problem_id not in homework["problem_ids"]
    ):
        return {"$unset": {field: ""}}
    standing = stand(rules_of(homework), _counted(username, problem_id))
    return {"$set": {field: standing.to_document()}}


def _write_standing(
    key: str,
    homework_id: str,
    username: str,
    kept: dict[str, Any] | None,
    update: dict[str, Any],
) -> bool:
    """Write if the version is still what `kept` says; tell whether it was."""
    if kept is None:
        document = {
            "_id": key,
            "homework_id": homework_id,
            "username": username,
            "version": 1,
            **update["$set"],
        }
        try:
            engine.student_statuses().insert_one(document)
        except DuplicateKeyError:
            return False
        return True
    version = kept.get("version", 0)
    changed = {**update, "$inc": {"version": 1}}
    return (
        engine.student_statuses()
        .update_one({"_id": key, "version": version}, changed)
        .matched_count
        == 1
    )


# -- a whole homework ----------------------------------------------------------------------


def recompute_homework(
    homework_id: str, *, progress: Callable[[int, int], None] | None = None
) -> None:
    """Bring every standing of a homework up to date and clear its `recompute_due`.

    Those who left are included. If the homework is edited meanwhile, the mark stays for the edit.
    """
    homework = engine.homeworks().find_one(
        {"_id": homework_id}, {"students": 1, "departed": 1, "version": 1}
    )
    if homework is None:
        return
    everybody = _everybody(homework_id, homework)
    for number, username in enumerate(everybody, start=1):
        recompute_standing(homework_id, username)
        if progress is not None:
            progress(number, len(everybody))
    engine.homeworks().update_one(
        {"_id": homework_id, "version": homework["version"]},
        {"$set": {"departed": [], "recompute_due": False}},
    )


def _everybody(homework_id: str, homework: dict[str, Any]) -> Sequence[str]:
    known = engine.student_statuses().find({"homework_id": homework_id}, {"username": 1})
    return sorted(
        {
            *homework.get("students", ()),
            *homework.get("departed", ()),
            *(status["username"] for status in known),
        }
    )


def homeworks_due(limit: int) -> Iterator[str]:
    """Yield the ids of homeworks whose recompute has not finished."""
    for homework in engine.homeworks().find({"recompute_due": True}, {"_id": 1}).limit(limit):
        yield homework["_id"]
