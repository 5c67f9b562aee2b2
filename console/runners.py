"""The runners: what each holds and did lately; draining, reinstating and revoking one."""

from __future__ import annotations

from typing import Any

from flask import abort, render_template
from flask.typing import ResponseReturnValue

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
    if not services().queue.runners.reinstate(runner_id):
        abort(404, UNKNOWN)
    services().wakeup.notify()
    return after("reinstated", "console.runners")
