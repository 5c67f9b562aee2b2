"""Rejudges on the command line: start them, look, decide."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click
from flask.cli import with_appcontext

from api.schemas import Moment, Name, Slug, UserName
from api.services import services
from commands.telling import (
    Checked,
    Command,
    Group,
    as_json_option,
    tell_fields,
    tell_json,
    tell_rows,
)
from dispatch.contract import Verdict

VERDICTS = [verdict.name for verdict in Verdict if verdict != Verdict.PENDING]
LISTED_MAX = 50
PAGE_MAX = 200
BY = "the command line"


@click.command("rejudge", cls=Command)
@click.argument("submission_ids", nargs=-1)
@click.option("--problem", "problem_id", type=click.IntRange(0, 2**31 - 1), help="In bulk.")
@click.option(
    "--homework", "homework_id", type=Checked("id", Slug), help="Its students, its problems."
)
@click.option("--user", "username", type=Checked("name", UserName), help="Of this user.")
@click.option("--verdict", type=click.Choice(VERDICTS), help="With this verdict.")
@click.option("--runner", "runner_id", type=Checked("id", Name), help="Judged by this runner.")
@click.option("--since", type=Checked("time", Moment), help="Handed in then or later (RFC 3339).")
@click.option("--until", type=Checked("time", Moment), help="Handed in then or before (RFC 3339).")
@click.option("--preview", is_flag=True, help="Keep the new verdicts aside until applied.")
@as_json_option
@with_appcontext
def rejudge(submission_ids: tuple[str, ...], preview: bool, as_json: bool, **scope: Any) -> None:
    """Have submissions judged afresh: the named ones, or in bulk what all the options say.

    In bulk the service does it in the background, behind fresh submissions; see `rejudges`.
    Exits with 0 also where nothing fits.
    """
    wish = {name: value for name, value in scope.items() if value is not None}
    if bool(submission_ids) == bool(wish) or (submission_ids and preview):
        raise click.UsageError("give either submissions, or options that choose them")
    if submission_ids:
        _each(submission_ids, as_json)
        return
    started = services().judge.start_rejudge(
        filter=wish, mode="preview" if preview else "replace", by=BY
    )
    if as_json:
        tell_json(started)
    else:
        click.echo(f"{started['rejudge_id']}: {started['total']} submission(s)")


def _each(submission_ids: Sequence[str], as_json: bool) -> None:
    rejudged = {}
    for submission_id in submission_ids:
        rejudged[submission_id] = services().judge.rejudge(submission_id)
        if not as_json:
            click.echo(f"{submission_id}: {rejudged[submission_id]}")
    if as_json:
        tell_json(rejudged)


@click.group("rejudges", cls=Group, invoke_without_command=True)
@as_json_option
@click.pass_context
@with_appcontext
def rejudges(context: click.Context, as_json: bool) -> None:
    """List the latest bulk rejudges, or do something with one."""
    if context.invoked_subcommand is not None:
        return
    found = [_told(view) for view in services().judge.list_rejudges(LISTED_MAX)]
    if as_json:
        tell_json(found)
    else:
        tell_rows([_line(row) for row in found], as_json=False)


def _line(row: dict[str, Any]) -> dict[str, Any]:
    settled = row["done"] + row["skipped"] + row["cancelled"]
    return {
        "rejudge_id": row["rejudge_id"],
        "which": row["filter"],
        "mode": row["mode"],
        "state": "paused" if row["held"] else row["state"],
        "settled": f"{settled} of {row['total']}",
    }


def _told(view: dict[str, Any]) -> dict[str, Any]:
    shown = ("rejudge_id", "mode", "state", "held", "by", "created_at", "filter", "total")
    return {**{name: view[name] for name in shown}, **view["counts"]}


@rejudges.command("show")
@click.argument("rejudge_id")
@as_json_option
@with_appcontext
def show(rejudge_id: str, as_json: bool) -> None:
    """Show how far one is and what it changes, over all its students."""
    view = services().judge.view_rejudge(rejudge_id)
    totals = services().judge.rejudge_totals(rejudge_id)
    report = {"changes": view["changes"], "reasons": view["reasons"], "totals": totals}
    if as_json:
        tell_json({**_told(view), **report})
        return
    tell_fields({**_told(view), **totals})
    for name in ("changes", "reasons"):
        if report[name]:
            tell_rows(report[name], as_json=False)


@rejudges.command("items")
@click.argument("rejudge_id")
@as_json_option
@with_appcontext
def items(rejudge_id: str, as_json: bool) -> None:
    """List its submissions with verdict and score before and after."""
    found = _all_pages(services().judge.rejudge_items, rejudge_id)
    if as_json:
        tell_json(found)
    else:
        tell_rows([_item_line(item) for item in found], as_json=False)


def _item_line(item: dict[str, Any]) -> dict[str, Any]:
    landed = item["verdict_after"] is not None
    return {
        "submission_id": item["submission_id"],
        "student": item["username"],
        "state": item["state"],
        "before": f"{item['verdict_before']} {item['score_before']}",
        "after": f"{item['verdict_after']} {item['score_after']}" if landed else "",
        "reason": item["reason"],
    }


@rejudges.command("students")
@click.argument("rejudge_id")
@as_json_option
@with_appcontext
def students(rejudge_id: str, as_json: bool) -> None:
    """List its students: who gains, who loses, who crosses 60 percent."""
    found = _all_pages(services().judge.rejudge_students, rejudge_id)
    if as_json:
        tell_json(found)
        return
    tell_rows([row for student in found for row in _student_rows(student)], as_json=False)


def _student_rows(student: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "student": student["username"],
            "gains": "yes" if student["gains"] else "",
            "loses": "yes" if student["loses"] else "",
            **{
                name: homework.get(name)
                for name in ("homework_id", "total_before", "total_after", "crosses_60")
            },
        }
        for homework in student["homeworks"] or [{}]
    ]


def _all_pages(
    read: Callable[..., tuple[list[dict[str, Any]], str | None]], rejudge_id: str
) -> list[dict[str, Any]]:
    found, cursor = read(rejudge_id, after=None, limit=PAGE_MAX)
    while cursor is not None:
        page, cursor = read(rejudge_id, after=cursor, limit=PAGE_MAX)
        found += page
    return found


def _decision(name: str, help_: str, decide: Callable[[str], None], told: str) -> None:
    """Add a command that decides on a rejudge."""

    @functools.wraps(decide)
    def command(rejudge_id: str, as_json: bool) -> None:
        decide(rejudge_id)
        if as_json:
            tell_json({"rejudge_id": rejudge_id, "did": name})
        else:
            click.echo(f"{rejudge_id}: {told}")

    with_options = as_json_option(with_appcontext(command))
    rejudges.command(name, help=help_)(click.argument("rejudge_id")(with_options))


_decision(
    "pause",
    "Have nothing more of it claimed until it is resumed.",
    lambda rejudge_id: services().judge.hold_rejudge(rejudge_id),
    "paused",
)
_decision(
    "resume",
    "Have it claimed again.",
    lambda rejudge_id: services().judge.release_rejudge(rejudge_id),
    "resumed",
)
_decision(
    "cancel",
    "Have what has not been claimed keep its old result.",
    lambda rejudge_id: services().judge.cancel_rejudge(rejudge_id),
    "is being cancelled",
)
_decision(
    "apply",
    "Have a preview's verdicts count.",
    lambda rejudge_id: services().judge.apply_rejudge(rejudge_id),
    "is being applied",
)
_decision(
    "discard",
    "Drop a preview's verdicts.",
    lambda rejudge_id: services().judge.discard_rejudge(rejudge_id),
    "is being discarded",
)
