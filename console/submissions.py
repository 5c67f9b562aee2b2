"""Submissions: lists with filters, judge errors, one submission with all there is to know of it."""

from __future__ import annotations

from typing import Any

from flask import render_template, request
from flask.typing import ResponseReturnValue

from api import body
from api.errors import invalid
from api.export_api import SubmissionsCsvQuery, SubmissionsFilter, submissions_export
from api.front import move_to_front
from api.schemas import SubmissionsQuery, status_of
from api.services import services
from api.submission_api import waits_because
from console.blueprint import console
from console.notices import after
from console.outputs import read_source
from console.runners import runner_names
from dispatch.contract import Verdict
from dispatch.states import State

NOT_FILTERS = ("did",)
PAGE_ROWS = 50


def _wanted() -> dict[str, Any]:
    """Return the query's filters; what a form left empty is not one."""
    values = {
        name: value for name, value in request.args.items() if value and name not in NOT_FILTERS
    }
    problem_id = values.get("problem_id")
    if problem_id is not None and not (problem_id.isascii() and problem_id.isdigit()):
        raise invalid("problem_id: must be a whole number")
    return values


@console.get("/submissions")
def submissions() -> ResponseReturnValue:
    """List submissions, newest first."""
    query = body.validated(SubmissionsQuery, {"limit": PAGE_ROWS, **_wanted()})
    page, cursor = services().judge.list_submissions(
        username=query.username,
        problem_id=query.problem_id,
        status=None if query.verdict is None else status_of(query.verdict),
        limit=query.limit,
        before=query.cursor,
    )
    filters = query.model_dump(include={"username", "problem_id", "verdict"}, exclude_none=True)
    return render_template(
        "console/submissions.html", page=page, cursor=cursor, query=query, filters=filters
    )


@console.get("/submissions.csv")
def submissions_csv() -> ResponseReturnValue:
    """Save the list as CSV, with the mark by which spreadsheets know UTF-8."""
    return submissions_export("csv", body.validated(SubmissionsCsvQuery, _wanted()), bom=True)


@console.get("/submissions.jsonl")
def submissions_jsonl() -> ResponseReturnValue:
    """Save the list as JSON lines."""
    return submissions_export("jsonl", body.validated(SubmissionsFilter, _wanted()))


@console.get("/judge-errors")
def judge_errors() -> ResponseReturnValue:
    """List what ended in a judge error, newest first."""
    query = body.validated(SubmissionsQuery, {"limit": PAGE_ROWS, **_wanted()})
    page, cursor = services().judge.list_submissions(
        username=None,
        problem_id=None,
        status=Verdict.JE.value,
        limit=query.limit,
        before=query.cursor,
    )
    return render_template("console/judge_errors.html", page=page, cursor=cursor)


@console.get("/submissions/<submission_id>")
def submission(submission_id: str) -> ResponseReturnValue:
    """Show one submission: its result, its cases, its code, and what happened to its job."""
    view = services().judge.view_submission(submission_id)
    job = services().queue.jobs.get(submission_id)
    return render_template(
        "console/submission.html",
        view=view,
        pending=view["status"] == Verdict.PENDING,
        job=job,
        waits_because=waits_because(view, job),
        waits=job is not None and job.state is State.PENDING,
        can_cancel=services().judge.can_cancel_submission(submission_id),
        names=runner_names(),
        source=read_source(submission_id),
    )


@console.post("/submissions/<submission_id>/rejudge")
def rejudge(submission_id: str) -> ResponseReturnValue:
    """Have a submission judged afresh; go back to the page that the button is on."""
    services().judge.rejudge(submission_id)
    services().wakeup.notify()
    if request.form.get("back") == "judge-errors":
        return after("rejudge", "console.judge_errors")
    return after("rejudge", "console.submission", submission_id=submission_id)


@console.post("/submissions/<submission_id>/cancel")
def cancel(submission_id: str) -> ResponseReturnValue:
    """Take the submission's rejudge back; its earlier result stands."""
    services().judge.cancel_submission(submission_id)
    services().wakeup.notify()
    return after("cancelled", "console.submission", submission_id=submission_id)


@console.post("/submissions/<submission_id>/front")
def front(submission_id: str) -> ResponseReturnValue:
    """Have a waiting submission judged next; go back to the page that the button is on."""
    move_to_front(submission_id)
    if request.form.get("back") == "queue":
        return after("front", "console.queue")
    return after("front", "console.submission", submission_id=submission_id)
