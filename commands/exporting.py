"""Exports on the command line: the same text as the API sends, into a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Literal

import click
from flask.cli import with_appcontext

from api.export_api import SubmissionsFilter, standings_text, submissions_text
from api.schemas import UserName
from commands.telling import Checked, Group
from dispatch.contract import Verdict

Form = Literal["csv", "jsonl"]
VERDICTS = [verdict.name for verdict in Verdict]

as_json_option = click.option(
    "--json", "form", flag_value="jsonl", help="One JSON object a line instead of CSV."
)
bom_option = click.option(
    "--bom", is_flag=True, help="Begin a CSV with the mark by which spreadsheets know UTF-8."
)


@click.group("export", cls=Group)
def export() -> None:
    """Write submissions or standings to standard output."""


@export.command("submissions")
@click.option("--user", "username", type=Checked("name", UserName), help="Of this user.")
@click.option("--problem", "problem_id", type=click.IntRange(0, 2**31 - 1), help="To this problem.")
@click.option("--verdict", type=click.Choice(VERDICTS), help="With this verdict.")
@as_json_option
@bom_option
@with_appcontext
def submissions(
    username: str | None, problem_id: int | None, verdict: str | None, form: str | None, bom: bool
) -> None:
    """Submissions, newest first, with the filters of the list."""
    wanted = SubmissionsFilter.model_validate(
        {"username": username, "problem_id": problem_id, "verdict": verdict}
    )
    _write(submissions_text(_form(form, bom), wanted, bom=bom))


@export.command("standings")
@click.argument("homework_id")
@as_json_option
@bom_option
@with_appcontext
def standings(homework_id: str, form: str | None, bom: bool) -> None:
    """A homework's standings, one row per student."""
    _write(standings_text(_form(form, bom), homework_id, bom=bom))


def _form(form: str | None, bom: bool) -> Form:
    if form is None:
        return "csv"
    if bom:
        raise click.UsageError("--bom is for a CSV")
    return "jsonl"


def _write(text: Iterable[str]) -> None:
    """Write pieces as they are: a CSV's line ends are its own, its text is UTF-8."""
    for piece in text:
        sys.stdout.buffer.write(piece.encode("utf-8"))
    sys.stdout.buffer.flush()
