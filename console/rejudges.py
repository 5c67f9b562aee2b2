"""Bulk rejudges: starting one, watching it, and deciding what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from flask import render_template, request
from flask.typing import ResponseReturnValue
from pydantic import BaseModel, BeforeValidator, ConfigDict

from api import body
from api.errors import invalid
from api.schemas import Name, ProblemId, Slug, UserName
from api.services import services
from console.blueprint import console
from console.notices import actor, after

LISTED_MAX = 50
ITEMS_MAX = 100
STUDENTS_MAX = 50
SETTLED = ("skipped", "cancelled", "done")
"""Counts of submissions with which a rejudge has nothing left to do."""
Action = Literal["hold", "release", "cancel", "apply", "discard"]


def _utc(value: Any) -> Any:
    """Read what a `datetime-local` field sends, which carries no zone; the form says UTC."""
    if not isinstance(value, str):
        return value
    try:
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError("must be a time as in 2026-01-31T23:59") from None


Moment = Annotated[datetime, BeforeValidator(_utc)]


class Wish(BaseModel):
    """Which submissions to judge anew; what is None does not restrict them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    problem_id: ProblemId | None = None
    homework_id: Slug | None = None
    username: UserName | None = None
    verdict: Literal["AC", "WA", "CE", "TLE", "MLE", "RE", "JE", "OLE"] | None = None
    runner_id: Name | None = None
    since: Moment | None = None
    until: Moment | None = None


@console.get("/rejudges")
def rejudges() -> ResponseReturnValue:
    """List the bulk rejudges, newest first, with the form that starts one."""
    found = services().judge.list_rejudges(LISTED_MAX)
    rows = [{**row, "settled": _settled(row)} for row in found]
    return render_template("console/rejudges.html", rows=rows, limit=LISTED_MAX)


@console.post("/rejudges")
def start_rejudge() -> ResponseReturnValue:
    """Start a bulk rejudge of what the form says."""
    judge = services().judge
    given = {name: value.strip() for name, value in request.form.items()}
    mode: Literal["replace", "preview"] = "preview" if given.get("mode") == "preview" else "replace"
    filled = {name: given[name] for name in Wish.model_fields if given.get(name)}
    wish = body.validated(Wish, filled).model_dump(exclude_none=True)
    if not wish:
        raise invalid("Say which submissions: fill in at least one of the fields.")
    made = judge.start_rejudge(filter=wish, mode=mode, by=actor())
    services().wakeup.notify()
    return after("rejudges", "console.rejudge_report", rejudge_id=made["rejudge_id"])


@console.get("/rejudges/<rejudge_id>")
def rejudge_report(rejudge_id: str) -> ResponseReturnValue:
    """Show how far a bulk rejudge is and what it changes."""
    judge = services().judge
    view = judge.view_rejudge(rejudge_id)
    items, cursor = judge.rejudge_items(
        rejudge_id, after=request.args.get("after") or None, limit=ITEMS_MAX
    )
    return render_template(
        "console/rejudge.html", view=view, settled=_settled(view), items=items, cursor=cursor
    )


@console.get("/rejudges/<rejudge_id>/students")
def rejudge_students(rejudge_id: str) -> ResponseReturnValue:
    """Show what a bulk rejudge changes for each student; first, for how many."""
    judge = services().judge
    cursor = request.args.get("after") or None
    students, following = judge.rejudge_students(rejudge_id, after=cursor, limit=STUDENTS_MAX)
    return render_template(
        "console/rejudge_students.html",
        view=judge.view_rejudge(rejudge_id),
        # Looks at every student: once is enough for somebody who turns pages.
        totals=None if cursor else judge.rejudge_totals(rejudge_id),
        students=students,
        cursor=following,
    )


@console.post("/rejudges/<rejudge_id>/<any(hold, release, cancel, apply, discard):action>")
def act_on_rejudge(rejudge_id: str, action: Action) -> ResponseReturnValue:
    """Hold, release, cancel, apply or discard a bulk rejudge."""
    judge = services().judge
    match action:
        case "hold":
            judge.hold_rejudge(rejudge_id)
        case "release":
            judge.release_rejudge(rejudge_id)
        case "cancel":
            judge.cancel_rejudge(rejudge_id)
        case "apply":
            judge.apply_rejudge(rejudge_id)
        case "discard":
            judge.discard_rejudge(rejudge_id)
    services().wakeup.notify()
    return after(f"rejudge_{action}", "console.rejudge_report", rejudge_id=rejudge_id)


def _settled(view: Mapping[str, Any]) -> int:
    """Return how many of a rejudge's submissions need nothing more."""
    counts = view["counts"]
    return sum(counts.get(name, 0) for name in SETTLED)
