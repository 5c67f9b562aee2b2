"""Submitting and reading."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeVar, assert_never

import structlog
from flask import Blueprint, Response, jsonify, request, url_for
from flask.typing import ResponseReturnValue
from werkzeug.datastructures import FileStorage, MultiDict

from api import body, waiting
from api.auth import require_principal
from api.errors import ProblemError, forbidden, invalid
from api.ports import Principal
from api.schemas import (
    PROBLEM_ID_MAX,
    HomeworkAnswer,
    SubmissionAnswer,
    SubmissionPage,
    SubmissionsQuery,
    SubmitDocumented,
    SubmitForm,
    SubmittedAnswer,
    UserAnswer,
    WaitQuery,
    status_of,
)
from api.services import services
from api.spec import describe
from dispatch.contract import Verdict
from dispatch.outlook import PLACES_MAX, Cause, Outlook, outlook
from dispatch.records import Job
from dispatch.states import State

TAG = "submissions"
UNKNOWN = {404: ["unknown_submission"]}
SUBMIT_BYTES_MAX = 4 * 1024 * 1024
FORM_FIELD_BYTES_MAX = 2 * 1024 * 1024
LOGGED_CHARS_MAX = 100

T = TypeVar("T")

log = structlog.get_logger("api")
submissions = Blueprint("submissions", __name__)


@submissions.post("/submissions")
@describe(
    TAG,
    form=SubmitDocumented,
    answers={201: SubmittedAnswer},
    problems={
        403: ["forbidden", "language_not_allowed", "homework_not_started"],
        404: ["unknown_problem", "unknown_user"],
        409: ["duplicate_submission"],
    },
)
def submit() -> ResponseReturnValue:
    """Take a program in. Checks in this order: 401, 404, 400, 403, 409."""
    principal = require_principal()
    submission_id: str | None = None
    try:
        form, files = _parts()
        submission_id = form.get("submission_id")
        problem_id = _problem_id(form.get("problem_id"))
        try:
            fields, sent = _checked(form, files)
            program = services().judge.pack_code(int(fields.language), sent)
            username = _on_behalf_of(principal, fields.username)
        except Exception:
            # A problem that is not there is told first. (A form that is right has its submit look.)
            services().judge.require_problem(problem_id)
            raise
        taken_in = services().judge.submit(
            submission_id=fields.submission_id,
            username=username,
            problem_id=problem_id,
            language=int(fields.language),
            code_zip=program,
            may_be_early=principal.admin,
        )
    except Exception as refusal:
        log.info(
            "submit_refused",
            reason=getattr(refusal, "reason", type(refusal).__name__),
            # Whatever was sent as one.
            submission_id=submission_id and submission_id[:LOGGED_CHARS_MAX],
            caller="admin" if principal.admin else principal.username,
        )
        raise
    services().feed.submitted(taken_in.submission_id, int(fields.language))
    answer = {
        "submission_id": taken_in.submission_id,
        "job_id": taken_in.job_id,
        "status": Verdict.PENDING.value,
        "verdict": Verdict.PENDING.name,
    }
    location = url_for("submissions.read", submission_id=taken_in.submission_id)
    return jsonify(answer), 201, {"Location": location}


def _parts() -> tuple[MultiDict[str, str], MultiDict[str, FileStorage]]:
    """Return the form's fields and files as they came."""
    request.max_content_length = SUBMIT_BYTES_MAX
    request.max_form_memory_size = FORM_FIELD_BYTES_MAX
    if request.mimetype != "multipart/form-data":
        raise ProblemError(
            415, "unsupported_media_type", "Content-Type: must be multipart/form-data"
        )
    return body.read_body(lambda: (request.form, request.files))


def _checked(
    form: MultiDict[str, str], files: MultiDict[str, FileStorage]
) -> tuple[SubmitForm, bytes]:
    """Return the fields, each once, and the code, sent as a file or as a field."""
    fields = _each_once(form)
    sent = _each_once(files)
    for name in sent:
        if name != "code":
            raise invalid(f"{name[:100]!a}: is not a file of this form")
    text = fields.pop("code", None)
    if text is not None and "code" in sent:
        raise invalid("code: is given more than once")
    fields.pop("problem_id", None)
    known = body.validated(SubmitForm, fields)
    if "code" in sent:
        return known, body.read_body(sent["code"].read)
    if text is None:
        raise invalid("code: is missing")
    return known, text.encode("utf-8", "surrogatepass")


def _each_once(values: MultiDict[str, T]) -> dict[str, T]:
    for name, given in values.lists():
        if name is None:
            raise invalid("body: a part of the form has no name")
        if len(given) > 1:
            raise invalid(f"{name[:100]!a}: is given more than once")
    return values.to_dict()


def _problem_id(text: str | None) -> int:
    if text is None:
        raise invalid("problem_id: is missing")
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise invalid("problem_id: must be a whole number")
    problem_id = int(text)
    if problem_id > PROBLEM_ID_MAX:
        raise ProblemError(404, "unknown_problem", f"there is no problem {problem_id}")
    return problem_id


def _on_behalf_of(principal: Principal, username: str | None) -> str:
    if principal.admin:
        if username is None:
            raise invalid("username: is required with an admin key")
        return username
    if principal.username is None or username not in (None, principal.username):
        raise forbidden("username: only an admin may submit for somebody else")
    return principal.username


@submissions.get("/submissions/<submission_id>")
@describe(TAG, query=WaitQuery, answers={200: SubmissionAnswer}, problems=UNKNOWN)
def read(submission_id: str) -> ResponseReturnValue:
    """Return a submission; with `wait`, hold the answer until there is a verdict."""
    principal = require_principal()
    query = body.parse_query(WaitQuery)
    _require_readable(principal, submission_id)

    def judged() -> int | None:
        status = services().judge.verdict_of(submission_id)
        return None if status == Verdict.PENDING else status

    if query.wait > 0:
        waiting.hold_for_verdict(judged, query.wait, submission_id)
    view = services().judge.view_submission(submission_id)
    job = services().queue.jobs.get(submission_id)
    view["waits_because"] = waits_because(view, job)
    view["job"] = None if job is None else _job(job, show_runners=principal.admin)
    return jsonify(view)


def _require_readable(principal: Principal, submission_id: str) -> None:
    """Let nobody learn of other people's submissions, not even that they exist."""
    owner = services().judge.owner_of(submission_id)
    if not principal.admin and owner != principal.username:
        raise ProblemError(
            404, "unknown_submission", f"there is no submission {submission_id[:100]!r}"
        )


def waits_because(view: dict[str, Any], job: Job | None) -> str | None:
    """Say in one sentence why a submission has no verdict yet; None if it has one."""
    if view["status"] != Verdict.PENDING:
        return None
    if job is None:
        if services().queue.jobs.unreadable.knows("jobs", view["submission_id"]):
            return "Its job cannot be read; it waits for an admin."
        return "It is being put into the queue."
    if job.given_up:
        return "Its judging got lost. An admin has to have it judged again."
    if job.state is State.DONE:
        return "Its judging got lost. It is about to be judged again."
    if job.state is not State.PENDING:
        return "It is being judged."
    ready = services().judge.is_ready(job.problem_id)
    return _sentence(outlook(services().queue, job, problem_ready=ready, now=services().now))


def _moment(at: datetime | None) -> str:
    return "some time" if at is None else f"{at:%H:%M:%S} UTC"


def _sentence(found: Outlook) -> str:
    match found.cause:
        case Cause.PAUSED:
            return "The queue is paused."
        case Cause.NOT_READY:
            return "The problem's tasks and test data do not agree yet."
        case Cause.PROBLEM_HELD:
            return f"Its problem is on hold until {_moment(found.until)} or longer. {found.why}"
        case Cause.PAUSES:
            return f"A runner could not judge it. It is handed out again at {_moment(found.until)}."
        case Cause.REJUDGE_HELD:
            return "The rejudge it belongs to is on hold."
        case Cause.NO_RUNNER_ALIVE:
            return "No runner is alive."
        case Cause.NO_RUNNER_FOR_LANGUAGE:
            return "No runner that is alive takes its language."
        case Cause.RUNNERS_ON_PROBATION:
            return "The runners that take its language have yet to pass a check."
        case Cause.RUNNERS_KEPT_BACK:
            return "The runners that take its language are set aside or drain."
        case Cause.IN_LINE if found.ahead == 0:
            return "It is the next in line for a free runner."
        case Cause.IN_LINE if found.ahead >= PLACES_MAX:
            return f"At least {PLACES_MAX} others are before it in line."
        case Cause.IN_LINE:
            return f"It is number {found.ahead + 1} in line."
        case _:
            assert_never(found.cause)


def _job(job: Job, *, show_runners: bool) -> dict[str, Any]:
    hidden = () if show_runners else ("runner_id", "from_runner", "note")
    return {
        "job_id": job.job_id,
        "state": job.state.value,
        "attempts": job.attempts,
        "fence": job.fence,
        "leased_by": job.leased_by if show_runners else None,
        "lease_deadline": job.lease_deadline,
        "queued_at": job.queued_at,
        "not_before": job.not_before,
        "history": [
            {name: value for name, value in entry.items() if name not in hidden}
            for entry in job.history
        ],
    }


@submissions.get("/submissions")
@describe(
    TAG,
    query=SubmissionsQuery,
    answers={200: SubmissionPage},
    problems={403: ["forbidden"]},
)
def list_submissions() -> ResponseReturnValue:
    """List submissions, newest first. A student sees the student's own."""
    principal = require_principal()
    values = dict(request.args)
    for number in ("problem_id", "limit"):
        text = values.get(number)
        if text is not None and not (text.isascii() and text.isdigit()):
            raise invalid(f"{number}: must be a whole number")
    query = body.parse_query(SubmissionsQuery)
    username = query.username if principal.admin else principal.username
    if not principal.admin and query.username not in (None, principal.username):
        raise forbidden("username: a student sees the student's own submissions only")
    page, cursor = services().judge.list_submissions(
        username=username,
        problem_id=query.problem_id,
        status=None if query.verdict is None else status_of(query.verdict),
        limit=query.limit,
        before=query.cursor,
    )
    for submission in page:
        del submission["tasks"], submission["testdata_sha256"]
    return jsonify({"submissions": page, "next_cursor": cursor})


@submissions.get("/submissions/<submission_id>/code")
@describe(TAG, answers={200: None}, streams="application/zip", problems=UNKNOWN)
def read_code(submission_id: str) -> ResponseReturnValue:
    """Send a submission's code, as a zip."""
    _require_readable(require_principal(), submission_id)
    return _attachment(
        services().judge.read_code(submission_id), f"{submission_id}.zip", "application/zip"
    )


@submissions.get(
    "/submissions/<submission_id>/outputs/<int:task>/<int:case>/<any(stdout, stderr):stream>"
)
@describe(
    TAG,
    answers={200: None},
    streams="text/plain",
    problems={404: ["unknown_submission", "unknown_output"]},
)
def read_output(
    submission_id: str, task: int, case: int, stream: Literal["stdout", "stderr"]
) -> ResponseReturnValue:
    """Send what a case printed."""
    _require_readable(require_principal(), submission_id)
    data = services().judge.read_output(submission_id, task, case, stream)
    name = f"{submission_id}-{task}-{case}-{stream}.txt"
    return _attachment(data, name, "text/plain; charset=utf-8")


def _attachment(data: bytes, name: str, content_type: str) -> Response:
    """Return data that a browser saves instead of showing."""
    response = Response(data, content_type=content_type)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


@submissions.get("/users/<name>")
@describe(TAG, answers={200: UserAnswer}, problems={403: ["forbidden"], 404: ["unknown_user"]})
def read_user(name: str) -> ResponseReturnValue:
    """Return a user's counters."""
    principal = require_principal()
    if not principal.admin and name != principal.username:
        raise forbidden("a student sees the student's own counters only")
    return jsonify(services().judge.view_user(name))


@submissions.get("/homeworks/<homework_id>")
@describe(TAG, answers={200: HomeworkAnswer}, problems={404: ["unknown_homework"]})
def read_homework(homework_id: str) -> ResponseReturnValue:
    """Return a homework with its standings; a student sees the student's own entry."""
    principal = require_principal()
    only = None if principal.admin else principal.username
    return jsonify(services().judge.view_homework(homework_id, only=only))
