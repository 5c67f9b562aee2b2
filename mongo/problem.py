"""Problems: their tasks, their test data, and when the two agree.

Guarantees: a problem moves from one ready revision to the next in one update, so nobody is ever
handed tasks of one revision with test data of another; replaced test data stays for a day, longer
than any link to it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import IO, Any

from mongoengine.errors import NotUniqueError
from pymongo import ReturnDocument

from dispatch.contract import HandedOut, TaskSpec
from mongo import archive, engine, storage, unreadable
from mongo.errors import ConflictError, InvalidError, NotFoundError

CHECKER = "default"
RETIRED_KEPT = timedelta(days=1)
TRIES_MAX = 20
SCORE_SUM = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemRules:
    """What a submission to a problem must keep to."""

    allowed_languages: tuple[int, ...]


def put_problem(
    problem_id: int, *, name: str, tasks: Sequence[TaskSpec], allowed_languages: Sequence[int]
) -> bool:
    """Create or replace a problem's settings; tell whether it was created.

    Its test data stays. Where it does not fit the new tasks, the problem is not ready and its
    jobs wait.

    Raises:
        InvalidError: `invalid_request`, the task scores do not sum to 100.
        ConflictError: `edit_conflict`, other edits won every race.
    """
    settings = _settings(name, tasks, allowed_languages)
    counts = [task.case_count for task in tasks]
    for _ in range(TRIES_MAX):
        problem = engine.problems().find_one({"_id": problem_id})
        if problem is None:
            try:
                engine.Problem(problem_id=problem_id, revision=1, **settings).save(
                    force_insert=True
                )
            except NotUniqueError:
                continue
            return True
        current = _current(problem)
        ready = current is not None and current["case_counts"] == counts
        if _update(problem, {**settings, "ready": ready}):
            return False
    raise ConflictError("edit_conflict", f"problem {problem_id} is being edited by others")


def put_package(
    problem_id: int,
    *,
    name: str,
    tasks: Sequence[TaskSpec],
    allowed_languages: Sequence[int],
    file: IO[bytes],
    now: datetime,
) -> str:
    """Create or replace a problem with its test data, in one update; return the data's SHA-256.

    So nobody is handed the new tasks with the old data, and a refused zip leaves all as it was.

    Raises:
        InvalidError: `invalid_request` or `invalid_testdata`.
        ConflictError: `edit_conflict`, other edits won every race.
    """
    settings = _settings(name, tasks, allowed_languages)
    counts = [task.case_count for task in tasks]
    file.seek(0)
    archive.check_testdata(file, counts)
    sha256 = _sha256(file)
    entry = _stored(problem_id, file, sha256, counts)
    for _ in range(TRIES_MAX):
        problem = engine.problems().find_one({"_id": problem_id})
        whole = {**settings, "ready": True}
        if problem is None:
            try:
                engine.Problem(problem_id=problem_id, revision=1, testdata=[entry], **whole).save(
                    force_insert=True
                )
            except NotUniqueError:
                continue
            return sha256
        kept, dropped = _retire(problem.get("testdata", []), now)
        if _update(problem, {**whole, "testdata": [*kept, entry]}):
            for old in dropped:
                storage.delete(old["blob_id"])
            return sha256
    storage.delete(entry["blob_id"])
    raise ConflictError("edit_conflict", f"problem {problem_id} is being edited by others")


def put_testdata(problem_id: int, file: IO[bytes], *, now: datetime) -> tuple[bool, str]:
    """Store test data for a problem; return (created, its SHA-256).

    `file` is a seekable zip of `<task:02d><case:02d>.in/.out`.

    Raises:
        NotFoundError: `unknown_problem`.
        InvalidError: `invalid_testdata`, the zip does not match the tasks.
        ConflictError: `edit_conflict`, the problem was edited while the zip was read.
    """
    for _ in range(TRIES_MAX):
        problem = _problem(problem_id)
        counts = [task["case_count"] for task in problem["tasks"]]
        file.seek(0)
        archive.check_testdata(file, counts)
        sha256 = _sha256(file)
        current = _current(problem)
        if current is not None and current["sha256"] == sha256:
            if _is_ready(problem) or _update(problem, {"ready": True}):
                return False, sha256
            continue
        entry = _stored(problem_id, file, sha256, counts)
        kept, dropped = _retire(problem.get("testdata", []), now)
        if _update(problem, {"testdata": [*kept, entry], "ready": True}):
            for old in dropped:
                storage.delete(old["blob_id"])
            return current is None, sha256
        storage.delete(entry["blob_id"])
    raise ConflictError("edit_conflict", f"problem {problem_id} is being edited by others")


def _settings(
    name: str, tasks: Sequence[TaskSpec], allowed_languages: Sequence[int]
) -> dict[str, Any]:
    if sum(task.task_score for task in tasks) != SCORE_SUM:
        raise InvalidError("invalid_request", f"tasks: the task scores must sum to {SCORE_SUM}")
    return {
        "name": name,
        "tasks": [_task_document(task) for task in tasks],
        "allowed_languages": sorted(set(allowed_languages)),
        "checker": CHECKER,
    }


def _stored(
    problem_id: int, file: IO[bytes], sha256: str, case_counts: Sequence[int]
) -> dict[str, Any]:
    """Store a test-data zip; return its entry for the problem."""
    file.seek(0)
    return {
        "sha256": sha256,
        "blob_id": storage.put(file, name=f"testdata/{problem_id}", sha256=sha256),
        "case_counts": list(case_counts),
        "size_bytes": file.seek(0, os.SEEK_END),
    }


def _retire(
    entries: Sequence[dict[str, Any]], now: datetime
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split what was there into (kept for a while, dropped now)."""
    retired = [{**entry, "replaced_at": entry.get("replaced_at", now)} for entry in entries]
    kept = [entry for entry in retired if entry["replaced_at"] > now - RETIRED_KEPT]
    return kept, [entry for entry in retired if entry["replaced_at"] <= now - RETIRED_KEPT]


def hand_out(problem_id: int) -> HandedOut | None:
    """Return what a runner needs to judge the problem now, or None while it is not ready."""
    problem = engine.problems().find_one({"_id": problem_id})
    # One that cannot be read is not ready: its jobs wait, the others go on.
    found = unreadable.each("problems", [] if problem is None else [problem], _handed_out)
    return found[0] if found else None


def _handed_out(problem: dict[str, Any]) -> HandedOut | None:
    current = _current(problem)
    if current is None or not _is_ready(problem):
        return None
    handed_out = HandedOut(
        tasks=tuple(TaskSpec(**task) for task in problem["tasks"]),
        testdata_sha256=current["sha256"],
        checker=problem.get("checker", CHECKER),
    )
    numbers = [number for task in problem["tasks"] for number in task.values()]
    texts = [handed_out.testdata_sha256, handed_out.checker]
    if not all(isinstance(number, int) for number in numbers):
        raise TypeError("tasks: not all of it are whole numbers")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("sha256 or checker: is not a text")
    return handed_out


def open_testdata(problem_id: int, sha256: str) -> Iterator[bytes] | None:
    """Return the problem's test data of that hash, current or lately replaced, or None."""
    # The newest state: the hash says what is in it, and a runner may come for what is new.
    problem = engine.newest(engine.problems()).find_one({"_id": problem_id}, {"testdata": 1})
    for entry in reversed((problem or {}).get("testdata", [])):
        if entry["sha256"] == sha256:
            return storage.stream(entry["blob_id"])
    return None


def rules(problem_id: int) -> ProblemRules:
    """Return what a submission must keep to.

    Raises:
        NotFoundError: `unknown_problem`.
    """
    problem = _problem(problem_id)
    return ProblemRules(allowed_languages=tuple(problem["allowed_languages"]))


def view_problem(problem_id: int) -> dict[str, Any]:
    """Return the problem's settings.

    Raises:
        NotFoundError: `unknown_problem`.
    """
    problem = _problem(problem_id)
    current = _current(problem)
    return {
        "problem_id": problem["_id"],
        "name": problem["name"],
        "tasks": problem["tasks"],
        "allowed_languages": problem["allowed_languages"],
        "ready": _is_ready(problem),
        "testdata_sha256": current["sha256"] if current else None,
    }


def unknown_problems(problem_ids: Sequence[int]) -> list[int]:
    """Return those of `problem_ids` that do not exist."""
    found = engine.problems().find({"_id": {"$in": list(problem_ids)}}, {"_id": 1})
    known = {problem["_id"] for problem in found}
    return [problem_id for problem_id in problem_ids if problem_id not in known]


def is_ready(problem_id: int) -> bool:
    """Tell whether the problem's tasks and test data agree."""
    fields = {"ready": 1, "tasks.case_count": 1, "testdata.case_counts": 1}
    problem = engine.problems().find_one({"_id": problem_id}, fields)
    return any(unreadable.each("problems", [] if problem is None else [problem], _is_ready))


def _is_ready(problem: dict[str, Any]) -> bool:
    """Tell whether the problem can be judged; an older version's document does not say."""
    ready: bool | None = problem.get("ready")
    if ready is not None:
        return ready
    current = _current(problem)
    counts = [task["case_count"] for task in problem.get("tasks", ())]
    return current is not None and current.get("case_counts") == counts


def _update(problem: dict[str, Any], changes: dict[str, Any]) -> bool:
    """Change the problem if nobody has since it was read."""
    changed = engine.problems().find_one_and_update(
        {"_id": problem["_id"], "revision": engine.stored(problem.get("revision", 0))},
        {"$set": changes, "$inc": {"revision": 1}},
        return_document=ReturnDocument.AFTER,
    )
    return changed is not None


def _problem(problem_id: int) -> dict[str, Any]:
    problem = engine.problems().find_one({"_id": problem_id})
    if problem is None:
        raise NotFoundError("unknown_problem", f"there is no problem {problem_id}")
    return problem


def _current(problem: dict[str, Any]) -> dict[str, Any] | None:
    entries = problem.get("testdata") or []
    return entries[-1] if entries else None


def _task_document(task: TaskSpec) -> dict[str, int]:
    return {
        "task_score": task.task_score,
        "memory_limit_kib": task.memory_limit_kib,
        "time_limit_ms": task.time_limit_ms,
        "case_count": task.case_count,
    }


def _sha256(file: IO[bytes]) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
