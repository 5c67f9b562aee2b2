"""What follows from a landing: the user's counters, and the standings at the problem.

Guarantees: I6. As in `mongo.recompute`, versions are read before what is computed from them, and a
write whose version is gone does all of it again. One operation reads, one writes the counters, one
the standings of all homeworks, however long the user's history is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mongo import engine, recompute, tally, together, unreadable
from mongo.bulk import upsert_each
from mongo.scoring import CountedSubmission, stand
from mongo.together import Look


@dataclass(frozen=True, kw_only=True, slots=True)
class Basis:
    """What a landing's recompute needs to know, read in the order of its fields.

    `user` is None where the user is gone. `homeworks` are those that contain both the student and
    the problem. `statuses` are those of all judged submissions to the problem: also of those that
    cannot be read as a whole, which `counted` leaves out.
    """

    user: dict[str, Any] | None
    versions: dict[str, int]
    homeworks: list[dict[str, Any]]
    statuses: list[int]
    counted: list[CountedSubmission]


def basis(username: str, problem_id: int) -> Basis:
    """Read the versions of what will be written, then what it is computed from."""
    user, (standings, homeworks, submissions) = together.read(
        Look(
            collection=engine.users(),
            filter={"_id": username},
            fields={"version": 1, "tally": 1},
        ),
        Look(
            collection=engine.student_statuses(),
            filter={"username": username},
            fields={"version": 1},
        ),
        Look(
            collection=engine.homeworks(),
            filter={"students": username, "problem_ids": problem_id},
            fields={"start": 1, "end": 1, "penalty": 1},
        ),
        Look(
            collection=engine.submissions(),
            filter=recompute.judged([username], [problem_id]),
            fields=recompute.COUNTED_FIELDS,
        ),
    )
    return Basis(
        user=user,
        versions={kept["_id"]: kept.get("version", 0) for kept in standings},
        homeworks=[
            homework
            for homework in homeworks
            # One that cannot be read has no standings to bring up to date.
            if unreadable.has("homeworks", homework, {"start": datetime, "end": datetime})
        ],
        statuses=[submission["counted"]["status"] for submission in submissions],
        counted=recompute.all_counted(submissions),
    )


def recompute_landed(username: str, problem_id: int) -> None:
    """Bring the user's counters, and the standings at one problem, up to date.

    Raises:
        RecomputeContendedError: other writers won every race.
    """
    counters_due, done = True, set[str]()
    for _ in range(recompute.TRIES_MAX):
        read = basis(username, problem_id)
        if counters_due:
            counters_due = not _write_counters(username, problem_id, read)
        left = [homework for homework in read.homeworks if homework["_id"] not in done]
        done |= _write_standings(username, problem_id, read, left)
        if not counters_due and all(homework["_id"] in done for homework in left):
            return
    raise recompute.RecomputeContendedError(f"the counters and standings of {username!r}")


def _write_counters(username: str, problem_id: int, read: Basis) -> bool:
    """Write the counters unless somebody else has meanwhile; a user who is gone has none."""
    if read.user is None:
        return True
    values = _counters(username, problem_id, read.user, read.statuses)
    return recompute.write_counters(username, read.user.get("version", 0), values)


def _counters(
    username: str,
    problem_id: int,
    user: dict[str, Any],
    statuses: Sequence[int],
) -> dict[str, Any]:
    """Return what to set: the problem's entry in the tally alone, where there is a tally."""
    before = user.get("tally")
    if before is None:
        return recompute.user_counters(username)
    others = {key: kept for key, kept in before.items() if key != str(problem_id)}
    entry = tally.of_problem(statuses)
    if entry is None:
        return {"tally": others, **tally.counters(others)}
    whole = {**others, str(problem_id): entry}
    return {f"tally.{problem_id}": entry, **tally.counters(whole)}


def _write_standings(
    username: str, problem_id: int, read: Basis, homeworks: Sequence[dict[str, Any]]
) -> set[str]:
    """Write the entries that nobody else writes meanwhile; return the homeworks that have theirs.

    A student whom the homework has no standing of yet gets a whole one.
    """
    known = [
        homework
        for homework in homeworks
        if recompute.status_id(homework["_id"], username) in read.versions
    ]
    lost = upsert_each(
        engine.student_statuses(),
        [_entry(homework, username, problem_id, read) for homework in known],
    )
    for homework in homeworks:
        if homework not in known:
            recompute.recompute_standings(homework["_id"], [username])
    return {homework["_id"] for homework in homeworks} - {known[index]["_id"] for index in lost}


def _entry(
    homework: dict[str, Any], username: str, problem_id: int, read: Basis
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the guarded write of one entry, as filter and update."""
    key = recompute.status_id(homework["_id"], username)
    standing = stand(recompute.rules_of(homework), read.counted)
    return (
        {"_id": key, "version": engine.stored(read.versions[key])},
        {"$set": {f"problems.{problem_id}": standing.to_document()}, "$inc": {"version": 1}},
    )
