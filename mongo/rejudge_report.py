"""What a bulk rejudge changes for each student: verdicts, scores, and standings with penalties.

Guarantees: reads only. Both sides of a standing come from the same pure rule and the same other
submissions; only the rejudged ones differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dispatch.contract import Verdict
from mongo import engine
from mongo.recompute import counted_submissions, rules_of
from mongo.rejudge_items import DONE, items, verdict_name
from mongo.scoring import CountedSubmission, stand

Document = dict[str, Any]

PASS_PERCENT = 60
OVERTAKEN = "overtaken"


def page(rejudge_id: str, *, after: str | None, limit: int) -> tuple[list[Document], str | None]:
    """Return some students, by name, with what changes for them, and the next page's cursor."""
    names = [
        group["_id"]
        for group in items().aggregate(
            [
                {
                    "$match": {
                        "rejudge": rejudge_id,
                        "state": DONE,
                        "username": {"$gt": after or ""},
                    }
                },
                {"$group": {"_id": "$username"}},
                {"$sort": {"_id": 1}},
                {"$limit": limit + 1},
            ]
        )
    ]
    rows = [_student(rejudge_id, name) for name in names[:limit]]
    return rows, names[limit - 1] if len(names) > limit else None


def _student(rejudge_id: str, username: str) -> Document:
    judged = list(
        items()
        .find({"rejudge": rejudge_id, "state": DONE, "username": username}, {"result": 0})
        .sort("_id", 1)
    )
    homeworks = list(
        engine.homeworks()
        .find(
            {
                "students": username,
                "problem_ids": {"$in": sorted({item["problem_id"] for item in judged})},
            },
            {"start": 1, "end": 1, "penalty": 1, "problem_ids": 1},
        )
        .sort("_id", 1)
    )
    rows = [_homework(homework, username, judged) for homework in homeworks]
    pairs = [(row["total_before"], row["total_after"]) for row in rows] or [
        (item["before"]["score"] if item["before"] else 0, item["after"]["score"])
        for item in judged
    ]
    return {
        "username": username,
        "gains": any(is_ > was for was, is_ in pairs),
        "loses": any(is_ < was for was, is_ in pairs),
        "submissions": [_submission(item) for item in judged],
        "homeworks": rows,
    }


def _submission(item: Mapping[str, Any]) -> Document:
    was = item["before"] or {}
    return {
        "submission_id": item["submission"],
        "problem_id": item["problem_id"],
        "verdict_before": verdict_name(was.get("status")),
        "verdict_after": verdict_name(item["after"]["status"]),
        "score_before": was.get("score", 0),
        "score_after": item["after"]["score"],
        "decided": item.get("decided"),
    }


def _homework(homework: Document, username: str, judged: Sequence[Mapping[str, Any]]) -> Document:
    """Return a homework's standings before and after; `crosses_60`: "up", "down" or None.

    What crosses is the percentage of all points: the total over the number of problems.
    """
    problem_ids = homework["problem_ids"]
    counted = counted_submissions([username], problem_ids)
    problems = {}
    for problem_id in problem_ids:
        standing = counted.get((username, problem_id), [])
        of_problem = [item for item in judged if item["problem_id"] == problem_id]
        rules = rules_of(homework)
        problems[str(problem_id)] = {
            "before": stand(rules, _with(standing, of_problem, _was)).to_document(),
            "after": stand(rules, _with(standing, of_problem, _will_be)).to_document(),
        }
    was, is_ = (
        sum(problem[side]["score"] for problem in problems.values()) for side in ("before", "after")
    )
    passes = PASS_PERCENT * len(problem_ids)
    crosses = None if (was >= passes) == (is_ >= passes) else "up" if is_ > was else "down"
    return {
        "homework_id": homework["_id"],
        "total_before": was,
        "total_after": is_,
        "crosses_60": crosses,
        "problems": problems,
    }


def _was(item: Mapping[str, Any]) -> Document | None:
    counted: Document | None = (item["before"] or {}).get("counted")
    return counted


def _will_be(item: Mapping[str, Any]) -> Document | None:
    """Return what counts afterwards: a judge error never takes a real result's place."""
    counted = _was(item)
    real = counted is not None and counted["status"] != Verdict.JE
    after: Document = item["after"]
    return counted if real and after["status"] == Verdict.JE else after


def _with(
    counted: Sequence[CountedSubmission], judged: Sequence[Mapping[str, Any]], side: Any
) -> list[CountedSubmission]:
    """Return the submissions as they count on one side of the rejudge."""
    changed = {
        item["submission"]: side(item) for item in judged if item.get("decided") != OVERTAKEN
    }
    result = []
    for entry in counted:
        value = changed.get(entry.submission_id, {"status": entry.status, "score": entry.score})
        if value is not None:
            result.append(replace(entry, status=value["status"], score=value["score"]))
    return result
