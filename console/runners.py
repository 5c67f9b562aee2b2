"""The runners: what each holds and did lately; draining, reinstating and revoking one, and having
judged afresh what one may have judged wrong."""

from __future__ import annotations

from typing import Any

from flask import abort, render_template
from flask.typing import ResponseReturnValue

from api import doubts
from api.errors import ProblemError
from api.services import services
from console.blueprint import console
from console.notices import actor, after
from dispatch import books
from dispatch.books import RunnerEntry

UNKNOWN = "There is no such runner, or it is revoked already."


def runner_entries() -> list[RunnerEntry]:
    """Return the runners in force, those alive first."""
    entries = books.runner_entries(services().queue, services().now)
    return sorted(entries, key=lambda entry: not entry.alive)


def runner_names() -> dict[str, str]:
    """Return runner id to name, of the runners in force."""
    found: list[Any] = services().queue.runners.list(now=services().now())
    return {runner.runner_id: runner.name for runner in found}


@console.get("/runners")
def runners() -> ResponseReturnValue:
    """Show the runners."""
    return render_template("console/runners.html", runners=runner_entries())


@console.post("/runners/<runner_id>/revoke")
def revoke(runner_id: str) -> ResponseReturnValue:
    """Refuse a runner's token from now on."""
    if not services().queue.runners.revoke(runner_id, now=services().now()):
        abort(404, UNKNOWN)
    return after("revoked", "console.runners")


@console.post("/runners/<runner_id>/drain")
def drain(runner_id: str) -> ResponseReturnValue:
    """Give the runner no more jobs, and tell it to end."""
    queue, now = services().queue, services().now()
    if not queue.runners.ask_to_drain(runner_id, by=actor(), now=now):
        abort(404, UNKNOWN)
    return after("asked-to-drain", "console.runners")


@console.post("/runners/<runner_id>/reinstate")
def reinstate(runner_id: str) -> ResponseReturnValue:
    """Give the runner jobs again."""
    if not services().queue.runners.reinstate(runner_id, now=services().now()):
        abort(404, UNKNOWN)
    services().wakeup.notify()
    return after("reinstated", "console.runners")


@console.post("/runners/<runner_id>/rejudge")
def rejudge_doubtful(runner_id: str) -> ResponseReturnValue:
    """Have what the runner judged since it last passed the check it failed judged afresh."""
    try:
        started = doubts.rejudge_doubtful(runner_id, by=actor())
    except ProblemError as error:
        abort(error.status, error.detail)
    return after("rejudges", "console.rejudge_report", rejudge_id=started["rejudge_id"])
