"""The queue on the command line: look, pause, resume, move one to the front, take one back."""

from __future__ import annotations

import click
from flask.cli import with_appcontext

from api import front as fronts
from api.queue_view import queue_view
from api.schemas import Name
from api.services import services
from commands.telling import (
    BY,
    Checked,
    Group,
    as_json_option,
    tell_done,
    tell_json,
    tell_rows,
)


@click.group("queue", cls=Group, invoke_without_command=True)
@as_json_option
@click.pass_context
@with_appcontext
def queue(context: click.Context, as_json: bool) -> None:
    """Show how many jobs wait, are leased and are landing, or change what is handed out."""
    if context.invoked_subcommand is not None:
        return
    view = queue_view(services().queue, services().now())
    if as_json:
        tell_json(view)
        return
    tell_rows(view["depth"], as_json=False)
    if view["oldest_pending_age_s"] is not None:
        click.echo(f"the oldest has waited for {view['oldest_pending_age_s']:.0f} s")
    rates = (
        f"{rate:g} ({name.removesuffix('_min').replace('_', ' ')} min)"
        for name, rate in view["landed_per_min"].items()
    )
    click.echo(f"landed per minute: {', '.join(rates)}")
    if view["unreadable"]:
        click.echo(f"cannot be read, and are passed over: {view['unreadable']} (see the log)")
    for held in view["held_problems"]:
        click.echo(
            f"problem {held['problem_id']} is on hold"
            f" since {held['since']:%H:%M:%S}Z: {held['why']}"
        )
    paused = view["paused"]
    if paused is not None:
        at = f"{paused['at']:%Y-%m-%d %H:%M:%S}Z"
        click.echo(f"paused by {paused['by']} at {at}: {paused['why']}")


@queue.command("pause")
@click.option("--why", type=Checked("text", Name), required=True, help="What everybody is told.")
@as_json_option
@with_appcontext
def pause(why: str, as_json: bool) -> None:
    """Hand out nothing until resumed. What is leased goes on."""
    services().queue.control.pause(by=BY, why=why, now=services().now())
    tell_done("paused", "paused", as_json)


@queue.command("resume")
@as_json_option
@with_appcontext
def resume(as_json: bool) -> None:
    """Hand out jobs again."""
    services().queue.control.resume()
    tell_done("resumed", "resumed", as_json)


@queue.command("release")
@click.argument("problem_id", type=int)
@as_json_option
@with_appcontext
def release(problem_id: int, as_json: bool) -> None:
    """Hand out the jobs of a held problem again."""
    fronts.release_held_problem(problem_id, by=BY)
    tell_done("released", f"problem {problem_id}: released", as_json, problem_id=str(problem_id))


@queue.command("front")
@click.argument("submission_id")
@as_json_option
@with_appcontext
def front(submission_id: str, as_json: bool) -> None:
    """Have a waiting submission judged next."""
    job_id = fronts.move_to_front(submission_id)
    tell_done(
        "moved", f"{submission_id}: next", as_json, submission_id=submission_id, job_id=job_id
    )


@queue.command("cancel")
@click.argument("submission_id")
@as_json_option
@with_appcontext
def cancel(submission_id: str, as_json: bool) -> None:
    """Take back a rejudge that has not landed; the earlier result stands."""
    services().judge.cancel_submission(submission_id)
    verdict = services().judge.view_submission(submission_id)["verdict"]
    tell_done(
        "cancelled",
        f"{submission_id}: {verdict}",
        as_json,
        submission_id=submission_id,
        verdict=verdict,
    )
