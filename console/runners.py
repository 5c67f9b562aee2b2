"""The runners: who is there, what each holds and since when; revoking one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import abort, render_template
from flask.typing import ResponseReturnValue

from api.services import services
from console.blueprint import console
from console.notices import after
from dispatch import books
from dispatch.books import Held
from dispatch.runner import Runner


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerRow:
    """A runner as a page shows it."""

    runner: Runner
    alive: bool
    held: tuple[Held, ...]


def runner_rows() -> list[RunnerRow]:
    """Return the runners in force, those alive first."""
    queue, now = services().queue, services().now()
    held = books.held_jobs(queue)
    rows = [
        RunnerRow(
            runner=runner,
            alive=queue.runners.is_alive(runner, now=now),
            held=tuple(held.get(runner.runner_id, ())),
        )
        for runner in queue.runners.list(now=now)
    ]
    return sorted(rows, key=lambda row: not row.alive)


def runner_names() -> dict[str, str]:
    """Return runner id to name, of the runners in force."""
    found: list[Any] = services().queue.runners.list(now=services().now())
    return {runner.runner_id: runner.name for runner in found}


@console.get("/runners")
def runners() -> ResponseReturnValue:
    """Show the runners."""
    return render_template("console/runners.html", runners=runner_rows())


@console.post("/runners/<runner_id>/revoke")
def revoke(runner_id: str) -> ResponseReturnValue:
    """Refuse a runner's token from now on."""
    if not services().queue.runners.revoke(runner_id, now=services().now()):
        abort(404, "There is no such runner, or it is revoked already.")
    return after("revoked", "console.runners")
