"""Standings and lists in pieces: for exports of any length, and for pages of a long table.

Guarantees: memory is bounded by one piece, whatever the number of rows; no database cursor stays
open while a slow client reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dispatch.contract import Verdict
from mongo import engine, submission, unreadable
from mongo.errors import NotFoundError

Document = dict[str, Any]

PIECE_ROWS = 500


def submissions(
    *, username: str | None, problem_id: int | None, status: int | None
) -> Iterator[Document]:
    """Yield the submissions that fit, newest first, as `list_submissions` shows them.

    Those handed in meanwhile are newer than where the list began, and are not in it.
    """
    before: str | None = None
    while True:
        page, before = submission.list_submissions(
            username=username,
            problem_id=problem_id,
            status=status,
            limit=PIECE_ROWS,
            before=before,
            # A list of grades that lacks one must not look whole.
            leave_out_unreadable=False,
        )
        yield from page
        if before is None:
            return


def homeworks(limit: int) -> list[Document]:
    """Return the homeworks without their students, the latest end first, at most `limit`."""
    found = engine.homeworks().aggregate(
        [
            {"$sort": {"end": -1, "_id": 1}},
            {"$limit": limit},
            {
                "$project": {
                    "name": 1,
                    "start": 1,
                    "end": 1,
                    "problem_ids": 1,
                    "student_count": {
                        "$size": {"$cond": [{"$isArray": "$students"}, "$students", []]}
                    },
                }
            },
        ]
    )
    return [
        {"homework_id": homework.pop("_id"), **homework}
        for homework in found
        if unreadable.has("homeworks", homework, unreadable.HOMEWORK)
    ]


def homework_settings(homework_id: str) -> Document:
    """Return a homework without its standings.

    Raises:
        NotFoundError: `unknown_homework`.
    """
    homework = engine.homeworks().find_one({"_id": homework_id})
    if homework is None:
        raise NotFoundError("unknown_homework", f"there is no homework {homework_id!r}")
    return {
        "homework_id": homework_id,
        "name": homework["name"],
        "start": homework["start"],
        "end": homework["end"],
        "penalty": homework["penalty"],
        "problem_ids": homework["problem_ids"],
        "students": homework["students"],
        "recomputing": bool(homework.get("recompute_due")),
    }


def standings(homework_id: str, students: Sequence[str]) -> Iterator[Document]:
    """Yield `{username, total, problems}` for each of `students`, in their order.

    `problems` maps a problem's id (as text) to its entry, with the verdict's name beside its code.
    """
    for start in range(0, len(students), PIECE_ROWS):
        piece = students[start : start + PIECE_ROWS]
        found = engine.student_statuses().find(
            {"homework_id": homework_id, "username": {"$in": list(piece)}}
        )
        problems = {status["username"]: status.get("problems", {}) for status in found}
        for username in piece:
            yield _standing(username, problems.get(username, {}))


def _standing(username: str, problems: Document) -> Document:
    return {
        "username": username,
        "total": sum(entry["score"] for entry in problems.values()),
        "problems": {
            problem_id: {**entry, "verdict": _name(entry["problemStatus"])}
            for problem_id, entry in problems.items()
        },
    }


def _name(status: int | None) -> str | None:
    return None if status is None else Verdict(status).name
