"""Rejudging in bulk, taking a rejudge back, and moving a submission to the front of the queue."""

from __future__ import annotations

from typing import Any, Literal

from flask import Blueprint, jsonify, request
from flask.typing import ResponseReturnValue

from api import body
from api.auth import require_admin
from api.errors import ProblemError, invalid
from api.front import move_to_front
from api.rejudge_schemas import (
    CancelledAnswer,
    ItemPage,
    PageQuery,
    RejudgeAnswer,
    RejudgeBody,
    RejudgeListed,
    RejudgeModeBody,
    RejudgeStarted,
    StudentPage,
)
from api.schemas import PROBLEM_ID_MAX, RejudgedAnswer
from api.services import services
from api.spec import describe

TAG = "rejudging"
ADMIN = {403: ["forbidden"]}
UNKNOWN = {**ADMIN, 404: ["unknown_rejudge"]}
LISTED_MAX = 100

rejudging = Blueprint("rejudging", __name__)


@rejudging.post("/rejudges")
@describe(
    TAG,
    body=RejudgeBody,
    answers={202: RejudgeStarted},
    problems={**ADMIN, 404: ["unknown_homework"]},
)
def start() -> ResponseReturnValue:
    """Judge afresh what fits: behind fresh submissions, one job each. Nothing fits: total 0."""
    principal = require_admin()
    wish = body.parse(RejudgeBody)
    scope = wish.model_dump(exclude={"mode"}, exclude_none=True)
    if not scope:
        raise invalid("body: say which submissions, by at least one field besides mode")
    return _started(scope, wish.mode, principal.username)


@rejudging.post("/problems/<int:problem_id>/rejudge")
@describe(
    TAG,
    body=RejudgeModeBody,
    body_required=False,
    answers={202: RejudgeStarted},
    problems={**ADMIN, 404: ["unknown_problem"]},
)
def rejudge_problem(problem_id: int) -> ResponseReturnValue:
    """Judge all submissions to a problem afresh. The body may be left out."""
    principal = require_admin()
    mode = _mode()
    if problem_id > PROBLEM_ID_MAX:
        raise ProblemError(404, "unknown_problem", "there is no such problem")
    services().judge.require_problem(problem_id)
    return _started({"problem_id": problem_id}, mode, principal.username)


@rejudging.post("/homeworks/<homework_id>/rejudge")
@describe(
    TAG,
    body=RejudgeModeBody,
    body_required=False,
    answers={202: RejudgeStarted},
    problems={**ADMIN, 404: ["unknown_homework"]},
)
def rejudge_homework(homework_id: str) -> ResponseReturnValue:
    """Judge all submissions of a homework's students to its problems afresh."""
    principal = require_admin()
    return _started({"homework_id": homework_id}, _mode(), principal.username)


def _mode() -> Literal["replace", "preview"]:
    sent = request.content_length or request.headers.get("Transfer-Encoding")
    return body.parse(RejudgeModeBody).mode if sent else "replace"


def _started(
    scope: dict[str, Any], mode: Literal["replace", "preview"], username: str | None
) -> ResponseReturnValue:
    started = services().judge.start_rejudge(filter=scope, mode=mode, by=username or "admin")
    return jsonify(started), 202


@rejudging.get("/rejudges")
@describe(
    TAG,
    answers={200: list[RejudgeListed]},  # type: ignore[dict-item]
    problems=ADMIN,
)
def list_rejudges() -> ResponseReturnValue:
    """List the latest bulk rejudges, newest first."""
    require_admin()
    return jsonify([_progress(found) for found in services().judge.list_rejudges(LISTED_MAX)])


@rejudging.get("/rejudges/<rejudge_id>")
@describe(TAG, answers={200: RejudgeAnswer}, problems=UNKNOWN)
def read(rejudge_id: str) -> ResponseReturnValue:
    """Return how far a bulk rejudge is, why submissions were skipped, which verdicts change."""
    require_admin()
    return jsonify(_progress(services().judge.view_rejudge(rejudge_id)))


def _progress(view: dict[str, Any]) -> dict[str, Any]:
    return {**view, **view["counts"]}


@rejudging.get("/rejudges/<rejudge_id>/items")
@describe(TAG, query=PageQuery, answers={200: ItemPage}, problems=UNKNOWN)
def read_items(rejudge_id: str) -> ResponseReturnValue:
    """List its submissions with verdict and score before and after."""
    require_admin()
    query = _page_query()
    items, cursor = services().judge.rejudge_items(
        rejudge_id, after=query.cursor, limit=query.limit
    )
    return jsonify({"items": items, "next_cursor": cursor})


@rejudging.get("/rejudges/<rejudge_id>/students")
@describe(TAG, query=PageQuery, answers={200: StudentPage}, problems=UNKNOWN)
def read_students(rejudge_id: str) -> ResponseReturnValue:
    """List the students with their standings before and after: who gains, loses, crosses 60.

    The first page says over all of them how many do.
    """
    require_admin()
    query = _page_query()
    students, cursor = services().judge.rejudge_students(
        rejudge_id, after=query.cursor, limit=query.limit
    )
    totals = None if query.cursor else services().judge.rejudge_totals(rejudge_id)
    return jsonify({"totals": totals, "students": students, "next_cursor": cursor})


def _page_query() -> PageQuery:
    limit = request.args.get("limit")
    if limit is not None and not (limit.isascii() and limit.isdigit()):
        raise invalid("limit: must be a whole number")
    return body.parse_query(PageQuery)


@rejudging.post("/rejudges/<rejudge_id>/pause")
@describe(TAG, answers={204: None}, problems={**UNKNOWN, 409: ["rejudge_over"]})
def pause(rejudge_id: str) -> ResponseReturnValue:
    """Have nothing more of it claimed until it is resumed."""
    require_admin()
    services().judge.hold_rejudge(rejudge_id)
    return "", 204


@rejudging.post("/rejudges/<rejudge_id>/resume")
@describe(TAG, answers={204: None}, problems=UNKNOWN)
def resume(rejudge_id: str) -> ResponseReturnValue:
    """Have it claimed again."""
    require_admin()
    services().judge.release_rejudge(rejudge_id)
    services().wakeup.notify()
    return "", 204


@rejudging.post("/rejudges/<rejudge_id>/cancel")
@describe(TAG, answers={202: None}, problems={**UNKNOWN, 409: ["rejudge_over"]})
def cancel(rejudge_id: str) -> ResponseReturnValue:
    """Have what was not yet claimed keep its old result."""
    require_admin()
    services().judge.cancel_rejudge(rejudge_id)
    return "", 202


@rejudging.post("/rejudges/<rejudge_id>/apply")
@describe(TAG, answers={202: None}, problems={**UNKNOWN, 409: ["not_ready"]})
def apply(rejudge_id: str) -> ResponseReturnValue:
    """Have a preview's verdicts count."""
    require_admin()
    services().judge.apply_rejudge(rejudge_id)
    return "", 202


@rejudging.post("/rejudges/<rejudge_id>/discard")
@describe(TAG, answers={202: None}, problems={**UNKNOWN, 409: ["not_ready"]})
def discard(rejudge_id: str) -> ResponseReturnValue:
    """Drop a preview's verdicts."""
    require_admin()
    services().judge.discard_rejudge(rejudge_id)
    return "", 202


@rejudging.post("/submissions/<submission_id>/cancel")
@describe(
    TAG,
    answers={200: CancelledAnswer},
    problems={**ADMIN, 404: ["unknown_submission"], 409: ["nothing_to_cancel"]},
)
def cancel_submission(submission_id: str) -> ResponseReturnValue:
    """Take back a rejudge that has not landed; the earlier result stands."""
    require_admin()
    services().judge.cancel_submission(submission_id)
    services().wakeup.notify()
    view = services().judge.view_submission(submission_id)
    return jsonify({name: view[name] for name in ("submission_id", "status", "verdict")})


@rejudging.post("/submissions/<submission_id>/front")
@describe(
    TAG,
    answers={200: RejudgedAnswer},
    problems={**ADMIN, 404: ["unknown_submission"], 409: ["not_waiting"]},
)
def front(submission_id: str) -> ResponseReturnValue:
    """Have a waiting submission judged next."""
    require_admin()
    return jsonify({"job_id": move_to_front(submission_id)})
