"""Counters and standings, recomputed from the submissions alone.

Guarantees: I6. Every writer first reads the version of the document it will write, then what it
computes from, and writes only if that version is unchanged, else does all of it again. Results
are stored before anybody recomputes, so the later of two racers always sees the earlier's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog

from mongo import engine, tally, unreadable
from mongo.bulk import upsert_each
from mongo.penalty import DEFAULT_PENALTY, Penalty, PenaltyError, compile_penalty
from mongo.scoring import CountedSubmission, HomeworkRules, stand

log = structlog.get_logger("mongo")

TRIES_MAX = 200
"""Each lost race means that somebody else's recompute succeeded, so this is never reached by
landings that progress."""
RECOMPUTE_LEASE = timedelta(seconds=10)
"""After a crash in the middle of a homework's recompute, a sweep takes it up this much later."""
BATCH = 500
"""How many students of a homework are recomputed at once. Bounds what is read into memory, and how
long the versions read first stay unwritten."""


class RecomputeContendedError(Exception):
    """Other writers won every race; the landing is to be repeated."""


# -- a user's counters ---------------------------------------------------------------------


def user_counters(username: str) -> dict[str, Any]:
    """Return the tally and the counters that all of the user's submissions add up to."""
    whole = tally.of_user(username)
    return {"tally": whole, **tally.counters(whole)}


def recompute_user(username: str) -> None:
    """Count all of the user's submissions anew. A user who is gone has no counters.

    Raises:
        RecomputeContendedError: other writers won every race.
    """
    for _ in range(TRIES_MAX):
        user = engine.users().find_one({"_id": username}, {"version": 1})
        if user is None:
            return
        counters = user_counters(username)
        if write_counters(username, user.get("version", 0), counters):
            return
    raise RecomputeContendedError(f"the counters of {username!r}")


def write_counters(username: str, version: int, values: dict[str, Any]) -> bool:
    """Write the counters, unless somebody else has since that version; tell whether it was."""
    written = engine.users().update_one(
        {"_id": username, "version": engine.stored(version)},
        {"$set": {**values, "version": version + 1}},
    )
    return written.matched_count == 1


# -- standings -----------------------------------------------------------------------------


def status_id(homework_id: str, username: str) -> str:
    """Return the id of a student's standing in a homework. (A homework's id has no slash.)"""
    return f"{homework_id}/{username}"


def recompute_standings(homework_id: str, usernames: Sequence[str]) -> None:
    """Bring the whole standings of some students in a homework up to date.

    Raises:
        RecomputeContendedError: other writers won every race.
    """
    left = list(usernames)
    for _ in range(TRIES_MAX):
        left = _try_standings(homework_id, left)
        if not left:
            return
    raise RecomputeContendedError(f"the standings of {len(left)} in homework {homework_id!r}")


def _try_standings(homework_id: str, usernames: Sequence[str]) -> list[str]:
    """Write the standings that nobody else writes meanwhile; return whose were lost."""
    keys = [status_id(homework_id, username) for username in usernames]
    found = engine.student_statuses().find({"_id": {"$in": keys}}, {"version": 1})
    versions = {kept["_id"]: kept.get("version", 0) for kept in found}
    fresh = standings(settings_for(homework_id, usernames), usernames)
    writes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (
            {"_id": key, "version": engine.stored(versions.get(key, 0))},
            {
                "$set": {
                    "homework_id": homework_id,
                    "username": username,
                    "problems": fresh[username],
                },
                # Raised even where nothing changes: a landing in flight that read settings of
                # before an edit must fail its write, or it would land by rules that are gone.
                "$inc": {"version": 1},
            },
        )
        for key, username in zip(keys, usernames, strict=True)
    ]
    return [usernames[index] for index in upsert_each(engine.student_statuses(), writes)]


def standings(
    homework: dict[str, Any] | None, usernames: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return each student's entries, problem id (as text) to entry, from the submissions.

    `homework` is as `settings_for` reads it for these students; who is none of its students has
    no entries.
    """
    if homework is None:
        return {username: {} for username in usernames}
    students = set(homework.get("students", ())).intersection(usernames)
    counted = counted_submissions(sorted(students), homework["problem_ids"])
    rules = rules_of(homework)
    return {
        username: {
            str(problem_id): stand(rules, counted.get((username, problem_id), ())).to_document()
            for problem_id in homework["problem_ids"]
        }
        if username in students
        else {}
        for username in usernames
    }


def rules_of(homework: dict[str, Any]) -> HomeworkRules:
    """Return the scoring rules of a homework document."""
    return HomeworkRules(start=homework["start"], end=homework["end"], penalty=_penalty(homework))


def _penalty(homework: dict[str, Any]) -> Penalty:
    """Return the homework's penalty; one that cannot be read forfeits what is late, as the default.

    (It was checked when the homework was saved; what else got there must not stop a landing.)
    """
    text = homework.get("penalty")
    try:
        if not isinstance(text, str):
            raise PenaltyError("is no text")
        return compile_penalty(text)
    except PenaltyError as error:
        log.error("penalty_unreadable", homework_id=homework["_id"], why=str(error))
        return compile_penalty(DEFAULT_PENALTY)


def settings_for(homework_id: str, usernames: Sequence[str]) -> dict[str, Any] | None:
    """Read a homework; for one student without the other thousands."""
    students: Any = 1
    if len(usernames) == 1:
        # Not `$elemMatch`: the in-process store takes no plain values there.
        the_one = {"$eq": ["$$student", {"$literal": usernames[0]}]}
        students = {"$filter": {"input": "$students", "as": "student", "cond": the_one}}
    fields = {"start": 1, "end": 1, "penalty": 1, "problem_ids": 1, "students": students}
    found = engine.homeworks().aggregate([{"$match": {"_id": homework_id}}, {"$project": fields}])
    return next(iter(found), None)


def counted_submissions(
    usernames: Sequence[str], problem_ids: Sequence[int]
) -> dict[tuple[str, int], list[CountedSubmission]]:
    """Return (username, problem id) to the judged submissions."""
    found = engine.submissions().find(
        judged(usernames, problem_ids), {"username": 1, "problem_id": 1, **COUNTED_FIELDS}
    )
    counted: dict[tuple[str, int], list[CountedSubmission]] = {}
    for submission in found:
        counted.setdefault((submission["username"], submission["problem_id"]), []).extend(
            all_counted([submission])
        )
    return counted


COUNTED_FIELDS = {"submitted_at": 1, "counted.status": 1, "counted.score": 1}
"""All in the index that finds them: no submission is fetched."""


def judged(usernames: Sequence[str], problem_ids: Sequence[int]) -> dict[str, Any]:
    """Return the filter of these students' judged submissions to these problems."""
    return {
        "username": {"$in": list(usernames)},
        "problem_id": {"$in": list(problem_ids)},
        "counted.status": {"$gte": 0},
    }


def all_counted(submissions: Iterable[dict[str, Any]]) -> list[CountedSubmission]:
    """Read the `COUNTED_FIELDS` of submissions, those left out that have not got them."""
    return unreadable.each("submissions", submissions, _as_counted)


def _as_counted(submission: dict[str, Any]) -> CountedSubmission:
    submitted_at, counted = submission["submitted_at"], submission["counted"]
    types = ((submitted_at, datetime), (counted["score"], (int, float)))
    if not all(isinstance(value, wanted) for value, wanted in types):
        raise TypeError("submitted_at or counted.score is of another type")
    return CountedSubmission(
        submission_id=submission["_id"],
        submitted_at=submitted_at,
        status=counted["status"],
        score=counted["score"],
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
    for start in range(0, len(everybody), BATCH):
        batch = everybody[start : start + BATCH]
        recompute_standings(homework_id, batch)
        if progress is not None:
            progress(start + len(batch), len(everybody))
    engine.homeworks().update_one(
        {"_id": homework_id, "version": engine.stored(homework.get("version", 0))},
        {
            "$set": {"departed": [], "recompute_due": False},
            "$unset": dict.fromkeys(("recompute_until", "recompute_asked_at"), ""),
        },
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


def claim_recompute(homework_id: str, *, now: datetime) -> bool:
    """Take the recompute of a homework that is due for a while; tell whether it was free.

    Only spares others the work: two recomputes at once do no harm.
    """
    return (
        engine.homeworks()
        .update_one(
            {"_id": homework_id, "recompute_due": True, "recompute_until": {"$not": {"$gt": now}}},
            {"$set": {"recompute_until": now + RECOMPUTE_LEASE}},
        )
        .matched_count
        == 1
    )


def homeworks_due(*, after: str, limit: int, now: datetime) -> Iterator[str]:
    """Yield the ids, above `after`, of homeworks whose recompute has not finished.

    Not those that somebody is at (`claim_recompute`).
    """
    due = engine.homeworks().find(
        {
            "recompute_due": True,
            "recompute_until": {"$not": {"$gt": now}},
            "_id": {"$gt": after},
        },
        {"_id": 1},
    )
    for homework in due.sort("_id", 1).limit(limit):
        yield homework["_id"]
