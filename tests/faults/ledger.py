"""What users and homeworks must show, added up in plain Python from the submissions alone.

Shares no query with the code under test: four collections are read whole, and the pure scoring
rules are applied.
"""

from __future__ import annotations

from typing import Any

from pymongo.database import Database

from mongo.penalty import compile_penalty
from mongo.scoring import CountedSubmission, HomeworkRules, stand

Document = dict[str, Any]
JE, AC = 6, 0


def wrong_totals(database: Database[Document]) -> list[str]:
    """Return one line for each counter or standing that the submissions do not add up to.

    A homework whose recompute is due has none yet.
    """
    submissions = list(database["submissions"].find())
    wrong = []
    for user in database["users"].find():
        for name, value in counters(user["_id"], submissions).items():
            if user[name] != value:
                wrong.append(f"{user['_id']}.{name} is {user[name]}, not {value}")
    standings: dict[str, dict[str, Document]] = {}
    for kept in database["student_status"].find():
        standings.setdefault(kept["homework_id"], {})[kept["username"]] = kept["problems"]
    for homework in database["homeworks"].find({"recompute_due": False}):
        found = standings.get(homework["_id"], {})
        for username in sorted({*found, *homework["students"]}):
            expected = entries(homework, username, submissions)
            if found.get(username) != expected:
                wrong.append(
                    f"{homework['_id']}/{username} is {found.get(username)}, not {expected}"
                )
    return wrong


def counters(username: str, submissions: list[Document]) -> Document:
    counted = [one for one in submissions if one["username"] == username and one["counted"]]
    accepted = [one for one in counted if one["counted"]["status"] == AC]
    return {
        "submission": len(counted),
        "AC_submission": len(accepted),
        "AC_problem_ids": sorted({one["problem_id"] for one in accepted}),
    }


def entries(homework: Document, username: str, submissions: list[Document]) -> Document:
    if username not in homework["students"]:
        return {}
    rules = HomeworkRules(
        start=homework["start"], end=homework["end"], penalty=compile_penalty(homework["penalty"])
    )
    return {
        str(problem_id): stand(
            rules,
            [
                CountedSubmission(
                    submission_id=one["_id"],
                    submitted_at=one["submitted_at"],
                    status=one["counted"]["status"],
                    score=one["counted"]["score"],
                )
                for one in submissions
                if one["counted"] and (one["username"], one["problem_id"]) == (username, problem_id)
            ],
        ).to_document()
        for problem_id in homework["problem_ids"]
    }
