"""The runners on the command line: list them, ask one to drain, reinstate one, revoke one, have
judged afresh what one may have judged wrong."""

from __future__ import annotations

from typing import Any

import click
from flask.cli import with_appcontext

from api import doubts
from api.services import services
from commands.telling import (
    BY,
    Group,
    Refused,
    as_json_option,
    tell_done,
    tell_json,
    tell_rows,
)
from dispatch import books
from dispatch.books import RunnerEntry


@click.group("runners", cls=Group, invoke_without_command=True)
@as_json_option
@click.pass_context
@with_appcontext
def runners(context: click.Context, as_json: bool) -> None:
    """List the registered runners, what each holds and what it did in the last hour."""
    if context.invoked_subcommand is not None:
        return
    entries = books.runner_entries(services().queue, services().now)
    if as_json:
        tell_json([_whole(entry) for entry in entries])
    else:
        tell_rows([_row(entry) for entry in entries], as_json=False)


def _whole(entry: RunnerEntry) -> dict[str, Any]:
    return {
        "runner_id": entry.runner.runner_id,
        "name": entry.runner.name,
        "alive": entry.alive,
        "state": _state(entry),
        "last_seen": entry.runner.last_seen.isoformat(timespec="seconds"),
        "active_jobs": [held.job.job_id for held in entry.held],
        "done": entry.done,
        "aborts": entry.aborts,
        "judge_errors": entry.judge_errors,
        "on_probation": entry.on_probation,
        "check_share": entry.check_share,
        "doubtful": entry.doubtful and entry.doubtful.total,
    }


def _row(entry: RunnerEntry) -> dict[str, Any]:
    """Return what fits a terminal's width."""
    return {
        "runner_id": entry.runner.runner_id,
        "name": entry.runner.name,
        "state": _state(entry),
        "holds": len(entry.held),
        "done": entry.done,
        "back": entry.aborts,
        "JE": entry.judge_errors,
    }


def _state(entry: RunnerEntry) -> str:
    if entry.runner.set_aside is not None:
        return "set aside"
    if not entry.alive:
        return "not seen"
    if entry.runner.drain is not None:
        return "drains"
    if entry.resting:
        return "rests"
    return "on probation" if entry.on_probation else "alive"


@runners.command("drain")
@click.argument("runner_id")
@as_json_option
@with_appcontext
def drain(runner_id: str, as_json: bool) -> None:
    """Give a runner no more jobs; it ends by itself if it asks to be told."""
    queue, now = services().queue, services().now()
    _done(
        "asked to drain", runner_id, queue.runners.ask_to_drain(runner_id, by=BY, now=now), as_json
    )


@runners.command("reinstate")
@click.argument("runner_id")
@as_json_option
@with_appcontext
def reinstate(runner_id: str, as_json: bool) -> None:
    """Give a runner jobs again that drains, rests or is set aside."""
    queue, now = services().queue, services().now()
    _done("reinstated", runner_id, queue.runners.reinstate(runner_id, now=now), as_json)


@runners.command("rejudge")
@click.argument("runner_id")
@as_json_option
@with_appcontext
def rejudge(runner_id: str, as_json: bool) -> None:
    """Judge afresh what a runner judged since it last passed the check that it then failed.

    The service does it in the background, behind fresh submissions; see `rejudges`.
    """
    started = doubts.rejudge_doubtful(runner_id, by=BY)
    if as_json:
        tell_json(started)
    else:
        click.echo(f"{started['rejudge_id']}: {started['total']} submission(s)")


@runners.command("revoke")
@click.argument("runner_id")
@as_json_option
@with_appcontext
def revoke(runner_id: str, as_json: bool) -> None:
    """Refuse a runner's token from now on. Its leases end by themselves."""
    known = services().queue.runners.revoke(runner_id, now=services().now())
    _done("revoked", runner_id, known, as_json)


def _done(did: str, runner_id: str, known: bool, as_json: bool) -> None:
    if not known:
        raise Refused(f"there is no runner {runner_id}")
    tell_done(did, f"{runner_id}: {did}", as_json, runner_id=runner_id)
