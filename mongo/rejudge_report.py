"""What a bulk rejudge changes for each student: verdicts, scores, and standings with penalties.

Guarantees: reads only. Both sides of a standing come from the same pure rule and the same other
submissions; only the rejudged ones differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dispatch.contract import Verdict
from mongo import engine
from mongo.recompute import counted_submissions, rules_of
from mongo.rejudge_items import DONE, items, verdict_name
from mongo.scoring import CountedSubmission, stand

Document = dict[str, Any]

Counted = Mapping[tuple[str, int], Sequence[CountedSubmission]]
"""(User name, problem id) to the submissions that count."""

PASS_PERCENT = 60
BATCH_STUDENTS = 200
OVERTAKEN = "overtaken"


def page(rejudge_id: str, *, after: str | None, limit: int) -> tuple[list[Document], str | None]:
    """Return some students, by name, with what changes for them, and the next page's cursor."""
    names = _names(rejudge_id, after or "")[: limit + 1]
    rows = _students(rejudge_id, names[:limit])
    return rows, names[limit - 1] if len(names) > limit else None


def totals(rejudge_id: str) -> dict[str, int]:
    """Return over all students how many gain, lose and cross 60 percent up or down somewhere.

    And over all submissions how many change their verdict or score, those aside that were judged
    by another road. Looks at every student.
    """
    names = _names(rejudge_id, "")
    told = dict.fromkeys(
        ("students", "gain", "lose", "cross_60_up", "cross_60_down", "submissions_changed"), 0
    )
    for start in range(0, len(names), BATCH_STUDENTS):
        for row in _students(rejudge_id, names[start : start + BATCH_STUDENTS]):
            crosses = {homework["crosses_60"] for homework in row["homeworks"]}
            told["students"] += 1
            told["gain"] += row["gains"]
            told["lose"] += row["loses"]
            told["cross_60_up"] += "up" in crosses
            told["cross_60_down"] += "down" in crosses
            told["submissions_changed"] += sum(map(_changed, row["submissions"]))
    return told


def _changed(row: Mapping[str, Any]) -> bool:
    return row["decided"] != OVERTAKEN and any(
        row[f"{what}_before"] != row[f"{what}_after"] for what in ("verdict", "score")
    )


def _names(rejudge_id: str, after: str) -> list[str]:
    """Return all students after `after` who have a verdict in the rejudge, by name."""
    fitting = {"rejudge": rejudge_id, "state": DONE, "username": {"$gt": after}}
    found = items().aggregate(
        [{"$match": fitting}, {"$group": {"_id": "$username"}}, {"$sort": {"_id": 1}}]
    )
    return [group["_id"] for group in found]


def _students(rejudge_id: str, names: Sequence[str]) -> list[Document]:
    """Return what changes for each of `names`, in their order, read in a few queries for all."""
    judged: dict[str, list[Document]] = {name: [] for name in names}
    for item in (
        items()
        .find(
            {"rejudge": rejudge_id, "state": DONE, "username": {"$in": list(names)}}, {"result": 0}
        )
        .sort("_id", 1)
    ):
        judged[item["username"]].append(item)
    problem_ids = sorted({item["problem_id"] for found in judged.values() for item in found})
    homeworks = _homeworks(names, problem_ids)
    counted = counted_submissions(
        names, sorted({one for homework in homeworks for one in homework["problem_ids"]})
    )
    return [_student(name, judged[name], homeworks, counted) for name in names]


def _homeworks(names: Sequence[str], problem_ids: Sequence[int]) -> list[Document]:
    """Return the homeworks with any of the problems; of their students only those in `names`."""
    found = engine.homeworks().aggregate(
        [
            {
                "$match": {
                    "students": {"$in": list(names)},
                    "problem_ids": {"$in": list(problem_ids)},
                }
            },
            {"$sort": {"_id": 1}},
            {
                "$project": {
                    "start": 1,
                    "end": 1,
                    "penalty": 1,
                    "problem_ids": 1,
                    "students": {"$setIntersection": ["$students", list(names)]},
                }
            },
        ]
    )
    return [{**one, "rules": rules_of(one), "students": set(one["students"])} for one in found]


def _student(
    username: str,
    judged: Sequence[Document],
    homeworks: Sequence[Document],
    counted: Counted,
) -> Document:
    concerned = {item["problem_id"] for item in judged}
    rows = [
        _homework(homework, username, judged, counted)
        for homework in homeworks
        if username in homework["students"] and concerned.intersection(homework["problem_ids"])
    ]
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


def _homework(
    homework: Document,
    username: str,
    judged: Sequence[Mapping[str, Any]],
    counted: Counted,
) -> Document:
    """Return a homework's standings before and after; `crosses_60`: "up", "down" or None.

    What crosses is the percentage of all points: the total over the number of problems.
    """
    problem_ids = homework["problem_ids"]
    problems = {}
    for problem_id in problem_ids:
        standing = counted.get((username, problem_id), [])
        of_problem = [item for item in judged if item["problem_id"] == problem_id]
        problems[str(problem_id)] = {
            "before": stand(homework["rules"], _with(standing, of_problem, _was)).to_document(),
            "after": stand(homework["rules"], _with(standing, of_problem, _will_be)).to_document(),
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
            result.append(entry._replace(status=value["status"], score=value["score"]))
    return result
