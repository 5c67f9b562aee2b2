"""Which submissions a bulk rejudge is about."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dispatch.contract import Verdict
from mongo import engine
from mongo.errors import InvalidError, NotFoundError

FIELDS = (
    "problem_id",
    "homework_id",
    "username",
    "verdict",
    "runner_id",
    "since",
    "until",
    "judged_since",
    "judged_until",
)


def query(filter_: Mapping[str, Any], *, handed_in_by: datetime) -> dict[str, Any]:
    """Return the filter on submissions; what is handed in after `handed_in_by` is left out.

    `problem_id`, `homework_id`, `username`, `verdict` (the last landed one), `runner_id` (that
    judged it), `since`, `until` (when handed in), `judged_since`, `judged_until` (when that result
    landed). What is not given does not restrict.

    Raises:
        InvalidError: `invalid_request`: nothing restricts, or something unknown is given.
        NotFoundError: `unknown_homework`.
    """
    given = {name: value for name, value in filter_.items() if value is not None}
    unknown = given.keys() - set(FIELDS)
    if unknown or not given:
        raise InvalidError("invalid_request", f"filter: give at least one of {', '.join(FIELDS)}")
    parts: list[dict[str, Any]] = [{"submitted_at": {"$lte": handed_in_by}}]
    if "homework_id" in given:
        parts.append(_of_homework(given["homework_id"]))
    parts.extend({name: given[name]} for name in ("problem_id", "username") if name in given)
    if "verdict" in given:
        parts.append({"result.status": Verdict[given["verdict"]].value})
    if "runner_id" in given:
        parts.append({"result.judged_by": given["runner_id"]})
    if "since" in given:
        parts.append({"submitted_at": {"$gte": given["since"]}})
    if "until" in given:
        parts.append({"submitted_at": {"$lte": given["until"]}})
    if "judged_since" in given:
        parts.append({"result.judged_at": {"$gte": given["judged_since"]}})
    if "judged_until" in given:
        parts.append({"result.judged_at": {"$lte": given["judged_until"]}})
    return {"$and": parts}


def _of_homework(homework_id: str) -> dict[str, Any]:
    homework = engine.homeworks().find_one({"_id": homework_id})
    if homework is None:
        raise NotFoundError("unknown_homework", f"there is no homework {homework_id!r}")
    return {
        "problem_id": {"$in": homework["problem_ids"]},
        "username": {"$in": homework["students"]},
        # What came in before the start does not belong to it.
        "submitted_at": {"$gte": homework["start"]},
    }
