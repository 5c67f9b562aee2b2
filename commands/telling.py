"""How commands tell what they found and why they refuse.

Guarantees: text from others is printed as text; an exit code says what a script has to know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError
from pymongo.errors import PyMongoError
from rich.console import Console
from rich.table import Table

from api.errors import ProblemError
from dispatch.job import Contended
from mongo.errors import DomainError, InvalidError
from mongo.recompute import RecomputeContendedError

# Names may hold what would be markup.
console = Console(markup=False, highlight=False, emoji=False)
EXIT_DIFFERENCE = 1
EXIT_CODES = (
    ("0", "done"),
    ("1", "something differs (recompute --check), or is amiss (check)"),
    ("2", "wrong use, a wrong setting, or what was given cannot be used"),
    ("3", "refused: there is no such thing, or its state does not allow it"),
    ("4", "the database did not answer, or others were at it: try again"),
)


class Unusable(click.ClickException):
    """What was given cannot be used; the message says why."""

    exit_code = 2


class Refused(click.ClickException):
    """The service refuses: it is not there, or its state does not allow it."""

    exit_code = 3


class TryAgain(click.ClickException):
    """Nothing is wrong with the wish; the database was away or busy."""

    exit_code = 4


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what the service raises into exit codes and one line.

    Raises:
        click.ClickException: in place of the domain's, the API's and the database's errors.
    """
    try:
        yield
    except InvalidError as error:
        raise Unusable(error.detail) from None
    except (DomainError, ProblemError) as error:
        raise Refused(error.detail) from None
    except (Contended, RecomputeContendedError, PyMongoError) as error:
        raise TryAgain(" ".join(str(error).split())) from None


class _Told(click.Command):
    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        with refusals():
            return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say in the help what the exit codes mean."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl(EXIT_CODES)


class Command(_Told):
    """A command whose refusals are told."""


class Group(_Told, click.Group):
    """A group of such commands."""

    command_class = Command


class Checked(click.ParamType[Any]):
    """A parameter held to the rule of the API's field."""

    def __init__(self, name: str, rule: Any) -> None:
        self.name = name
        self._rule = TypeAdapter(rule)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as the API would take it."""
        try:
            return self._rule.validate_python(value)
        except ValidationError as error:
            why = error.errors()[0]["msg"].removeprefix("Value error, ")
            return self.fail(why, param, ctx)


BY = "the command line"
"""How the books name whoever works here."""

as_json_option = click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")


def tell_json(value: Any) -> None:
    """Print a value as one line of JSON, times as the API writes them."""
    click.echo(json.dumps(value, default=_encoded))


def tell_done(did: str, told: str, as_json: bool, **also: str) -> None:
    """Say that something was done: `told` for people, `did` and `also` for programs."""
    if as_json:
        tell_json({"did": did, **also})
    else:
        click.echo(told)


def tell_rows(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows of one form as a table, or as JSON."""
    if as_json:
        tell_json(rows)
    elif not rows:
        click.echo("none")
    else:
        table = Table()
        for index, name in enumerate(rows[0]):
            # Folded, not cut, and ids in one piece: they are there to be copied.
            table.add_column(name.replace("_", " "), overflow="fold", no_wrap=index == 0)
        for row in rows:
            table.add_row(*map(_cell, row.values()))
        console.print(table)


def tell_fields(fields: Mapping[str, Any]) -> None:
    """Print a thing's fields, one a line."""
    table = Table("", "", show_header=False)
    for name, value in fields.items():
        table.add_row(name.replace("_", " "), _cell(value))
    console.print(table)


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        case list():
            return ", ".join(map(_cell, value))
        case dict():
            return ", ".join(f"{name} {_cell(inner)}" for name, inner in value.items())
        case _:
            return str(value)


def _encoded(value: Any) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"{type(value).__name__} is not told as JSON")
    at = value.astimezone(UTC).isoformat(timespec="milliseconds")
    return at.replace("+00:00", "Z")
