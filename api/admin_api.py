"""Administering: users, keys, problems, homeworks, rejudging, runners, the queue."""

from __future__ import annotations

import tempfile
from typing import Any

from flask import Blueprint, jsonify, request
from flask.typing import ResponseReturnValue
from pydantic import BaseModel

from api import body, doubts
from api.auth import require_admin
from api.errors import ProblemError, invalid
from api.front import release_held_problem
from api.queue_view import queue_view
from api.rejudge_schemas import RejudgeStarted
from api.schemas import (
    PROBLEM_ID_MAX,
    HomeworkAnswer,
    HomeworkBody,
    KeyAnswer,
    PauseBody,
    ProblemAnswer,
    ProblemBody,
    QueueAnswer,
    RejudgedAnswer,
    RunnerAnswer,
    Slug,
    TestdataAnswer,
    UserAnswer,
    UserBody,
    UserName,
)
from api.services import services
from api.spec import describe
from dispatch import books
from dispatch.books import RunnerEntry
from dispatch.contract import TaskSpec

TAG = "administering"
ADMIN = {403: ["forbidden"]}
TESTDATA_BYTES_MAX = 256 * 1024 * 1024
HOMEWORK_BYTES_MAX = 16 * 1024 * 1024
"""Twenty thousand students with long names."""
SPOOL_BYTES_MAX = 1024 * 1024
PIECE_BYTES = 256 * 1024
ZIP_TYPES = ("application/zip", "application/octet-stream")

admin = Blueprint("admin", __name__)


class _UserPath(BaseModel):
    name: UserName


class _HomeworkPath(BaseModel):
    homework_id: Slug


@admin.put("/users/<name>")
@describe(TAG, body=UserBody, answers={200: UserAnswer, 201: UserAnswer}, problems=ADMIN)
def put_user(name: str) -> ResponseReturnValue:
    """Create a user, or change one."""
    require_admin()
    wish = body.parse(UserBody)
    body.validated(_UserPath, {"name": name})
    created = services().judge.put_user(name, display_name=wish.display_name)
    return jsonify(services().judge.view_user(name)), 201 if created else 200


@admin.post("/users/<name>/keys")
@describe(TAG, answers={201: KeyAnswer}, problems={**ADMIN, 404: ["unknown_user"]})
def create_key(name: str) -> ResponseReturnValue:
    """Make a key for a user, shown this once."""
    require_admin()
    return jsonify({"key": services().judge.create_key(name)}), 201


@admin.put("/problems/<int:problem_id>")
@describe(
    TAG,
    body=ProblemBody,
    answers={200: ProblemAnswer, 201: ProblemAnswer},
    problems={**ADMIN, 409: ["edit_conflict"]},
)
def put_problem(problem_id: int) -> ResponseReturnValue:
    """Create or replace a problem's settings. Its test data stays."""
    require_admin()
    if problem_id > PROBLEM_ID_MAX:
        raise invalid(f"problem_id: must be at most {PROBLEM_ID_MAX}")
    wish = body.parse(ProblemBody)
    created = services().judge.put_problem(
        problem_id,
        name=wish.name,
        tasks=[TaskSpec(**task.model_dump()) for task in wish.tasks],
        allowed_languages=wish.allowed_languages,
    )
    services().wakeup.notify()
    return jsonify(services().judge.view_problem(problem_id)), 201 if created else 200


@admin.get("/problems/<int:problem_id>")
@describe(TAG, answers={200: ProblemAnswer}, problems={**ADMIN, 404: ["unknown_problem"]})
def read_problem(problem_id: int) -> ResponseReturnValue:
    """Return a problem's settings."""
    require_admin()
    return jsonify(services().judge.view_problem(_known_range(problem_id)))


@admin.put("/problems/<int:problem_id>/testdata")
@describe(
    TAG,
    sends=ZIP_TYPES,
    answers={200: TestdataAnswer, 201: TestdataAnswer},
    problems={
        **ADMIN,
        400: ["invalid_testdata"],
        404: ["unknown_problem"],
        409: ["edit_conflict"],
    },
)
def put_testdata(problem_id: int) -> ResponseReturnValue:
    """Store test data: a zip of `<task:02d><case:02d>.in/.out` that matches the tasks."""
    require_admin()
    services().judge.require_problem(_known_range(problem_id))
    if request.mimetype not in ZIP_TYPES:
        raise ProblemError(415, "unsupported_media_type", "Content-Type: must be application/zip")
    request.max_content_length = TESTDATA_BYTES_MAX
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES_MAX) as file:
        while piece := body.read_body(lambda: request.stream.read(PIECE_BYTES)):
            file.write(piece)
        created, sha256 = services().judge.put_testdata(problem_id, file)
    services().wakeup.notify()
    return jsonify({"sha256": sha256}), 201 if created else 200


def _known_range(problem_id: int) -> int:
    if problem_id > PROBLEM_ID_MAX:
        raise ProblemError(404, "unknown_problem", "there is no such problem")
    return problem_id


@admin.put("/homeworks/<homework_id>")
@describe(
    TAG,
    body=HomeworkBody,
    answers={200: HomeworkAnswer, 201: HomeworkAnswer},
    problems={**ADMIN, 409: ["edit_conflict"]},
)
def put_homework(homework_id: str) -> ResponseReturnValue:
    """Create or replace a homework, and recompute it."""
    require_admin()
    wish = body.parse(HomeworkBody, bytes_max=HOMEWORK_BYTES_MAX)
    body.validated(_HomeworkPath, {"homework_id": homework_id})
    created = services().judge.put_homework(
        homework_id,
        name=wish.name,
        start=wish.start,
        end=wish.end,
        penalty=wish.penalty,
        problem_ids=wish.problem_ids,
        students=wish.students,
    )
    view = services().judge.view_homework(homework_id, only=None)
    return jsonify(view), 201 if created else 200


@admin.post("/submissions/<submission_id>/rejudge")
@describe(TAG, answers={202: RejudgedAnswer}, problems={**ADMIN, 404: ["unknown_submission"]})
def rejudge(submission_id: str) -> ResponseReturnValue:
    """Have a submission judged afresh. A job that still waits is kept."""
    require_admin()
    job_id = services().judge.rejudge(submission_id)
    services().wakeup.notify()
    return jsonify({"job_id": job_id}), 202


@admin.get("/runners")
@describe(TAG, answers={200: list[RunnerAnswer]}, problems=ADMIN)  # type: ignore[dict-item]
def list_runners() -> ResponseReturnValue:
    """List the runners in force, from the service's own books."""
    require_admin()
    entries = books.runner_entries(services().queue, services().now)
    return jsonify([_runner(entry) for entry in entries])


def _runner(entry: RunnerEntry) -> dict[str, Any]:
    runner = entry.runner
    return {
        "runner_id": runner.runner_id,
        "name": runner.name,
        "last_seen": runner.last_seen,
        "alive": entry.alive,
        "active_jobs": [held.job.job_id for held in entry.held],
        "registered_at": runner.registered_at,
        "languages": runner.languages,
        "holds": [
            {
                "job_id": held.job.job_id,
                "submission_id": held.job.submission_id,
                "since": held.since,
            }
            for held in entry.held
        ],
        "done": entry.done,
        "judge_errors": entry.judge_errors,
        "aborts": entry.aborts,
        "resting": entry.resting,
        "drain": runner.drain and {"at": runner.drain.at, "by": runner.drain.by},
        "set_aside": runner.set_aside and {"at": runner.set_aside.at, "why": runner.set_aside.why},
        "checks": {
            "on_probation": entry.on_probation,
            "unproven": entry.unproven,
            "share": entry.check_share,
            "failed": _failed_check(entry),
        },
    }


def _failed_check(entry: RunnerEntry) -> dict[str, Any] | None:
    doubt, found = entry.runner.checks.doubt, entry.doubtful
    if doubt is None or found is None:
        return None
    return {
        "program_id": doubt.program_id,
        "language": doubt.language,
        "answer": doubt.answer,
        "at": doubt.at,
        "since": doubt.since,
        "until": doubt.until,
        "total": found.total,
        "submission_ids": found.submission_ids,
    }


@admin.delete("/runners/<rn>")
@describe(TAG, answers={204: None}, problems={**ADMIN, 404: ["unknown_runner"]})
def revoke_runner(rn: str) -> ResponseReturnValue:
    """Refuse a runner's token from now on. Its leases end by themselves."""
    require_admin()
    if not services().queue.runners.revoke(rn, now=services().now()):
        raise _unknown_runner(rn)
    return "", 204


def _unknown_runner(rn: str) -> ProblemError:
    return ProblemError(404, "unknown_runner", f"there is no runner {rn[:100]!r}")


@admin.post("/runners/<rn>/drain")
@describe(TAG, answers={204: None}, problems={**ADMIN, 404: ["unknown_runner"]})
def drain_runner(rn: str) -> ResponseReturnValue:
    """Give a runner no more jobs. One that asks in its heartbeats is told, and ends."""
    principal = require_admin()
    asked = services().queue.runners.ask_to_drain(
        rn, by=principal.username or "admin", now=services().now()
    )
    if not asked:
        raise _unknown_runner(rn)
    return "", 204


@admin.post("/runners/<rn>/reinstate")
@describe(TAG, answers={204: None}, problems={**ADMIN, 404: ["unknown_runner"]})
def reinstate_runner(rn: str) -> ResponseReturnValue:
    """Give a runner jobs again that was asked to drain, or set aside, or rests."""
    require_admin()
    if not services().queue.runners.reinstate(rn, now=services().now()):
        raise _unknown_runner(rn)
    services().wakeup.notify()
    return "", 204


@admin.post("/runners/<rn>/rejudge")
@describe(
    TAG,
    answers={202: RejudgeStarted},
    problems={**ADMIN, 404: ["unknown_runner"], 409: ["nothing_doubtful"]},
)
def rejudge_doubtful(rn: str) -> ResponseReturnValue:
    """Judge afresh what a runner judged since it last passed the check that it then failed."""
    principal = require_admin()
    started = doubts.rejudge_doubtful(rn, by=principal.username or "admin")
    return jsonify(started), 202


@admin.get("/queue")
@describe(TAG, answers={200: QueueAnswer}, problems=ADMIN)
def read_queue() -> ResponseReturnValue:
    """Return the queue's depth, its oldest job's age, its throughput, and whether it is paused."""
    require_admin()
    return jsonify(queue_view(services().queue, services().now()))


@admin.post("/queue/pause")
@describe(TAG, body=PauseBody, answers={204: None}, problems=ADMIN)
def pause_queue() -> ResponseReturnValue:
    """Hand out nothing until resumed. What is leased goes on."""
    principal = require_admin()
    wish = body.parse(PauseBody)
    services().queue.control.pause(
        by=principal.username or "admin", why=wish.why, now=services().now()
    )
    return "", 204


@admin.post("/problems/<int:problem_id>/release")
@describe(TAG, answers={204: None}, problems={**ADMIN, 409: ["not_held"]})
def release_problem(problem_id: int) -> ResponseReturnValue:
    """Hand out the jobs of a held problem again."""
    principal = require_admin()
    release_held_problem(problem_id, by=principal.username or "admin")
    return "", 204


@admin.post("/queue/resume")
@describe(TAG, answers={204: None}, problems=ADMIN)
def resume_queue() -> ResponseReturnValue:
    """Hand out jobs again."""
    require_admin()
    services().queue.control.resume()
    services().wakeup.notify()
    return "", 204
