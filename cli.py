"""Flask's command line: `flask --app app ...`, for those who run the service.

Guarantees: works on the database that the settings name (attaching to the embedded server if it
runs, starting it if not). Exit codes: 0 done, 1 something differs or is amiss, 2 wrong use or wrong
settings, 3 refused (there is no such thing, or its state does not allow it), 4 try again.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Sequence
from pathlib import Path

import click
from flask.cli import with_appcontext
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from api.schemas import UserName
from api.services import services
from commands.checking import check as check_command
from commands.exporting import export
from commands.queue import queue
from commands.rejudging import rejudge, rejudges
from commands.runners import runners
from commands.telling import (
    EXIT_DIFFERENCE,
    Checked,
    Command,
    Group,
    Unusable,
    console,
)
from dispatch.contract import TaskSpec
from mongo import check, user
from mongo.problem_package import PackageRefused, read_package

DIFFERENCES_SHOWN_MAX = 50
LOOK_AGAIN_S = 0.5
"""How long `recompute --check` waits between two looks at what differs."""


@click.command("import-problem", cls=Command)
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--id", "problem_id", type=click.IntRange(0, 2**31 - 1), required=True)
@click.option(
    "--allow-default-comparison",
    is_flag=True,
    help="Judge by comparing lines where the package brings a validator of its own.",
)
@with_appcontext
def import_problem(path: Path, problem_id: int, allow_default_comparison: bool) -> None:
    """Import the Kattis problem package at PATH, or replace the problem by it."""
    try:
        package = read_package(path, allow_default_comparison=allow_default_comparison)
    except PackageRefused as error:
        raise Unusable(str(error)) from None
    tasks = [
        TaskSpec(
            task_score=task.task_score,
            memory_limit_kib=task.memory_limit_kib,
            time_limit_ms=task.time_limit_ms,
            case_count=task.case_count,
        )
        for task in package.tasks
    ]
    sha256 = services().judge.put_package(
        problem_id,
        name=package.name,
        tasks=tasks,
        allowed_languages=[0, 1, 2],
        file=io.BytesIO(package.testdata_zip),
    )
    cases = sum(task.case_count for task in tasks)
    click.echo(
        f"problem {problem_id}: {package.name}, {len(tasks)} task(s), {cases} case(s), "
        f"test data {sha256[:12]}"
    )


keys = Group("keys", help="API keys.")


@keys.command("create")
@click.option("--admin", is_flag=True, help="An admin key.")
@click.option(
    "--user",
    "username",
    type=Checked("name", UserName),
    help="A key for this user, who is created if need be.",
)
@with_appcontext
def create_key(admin: bool, username: str | None) -> None:
    """Make a key and print it; it cannot be had again."""
    if admin == (username is not None):
        raise click.UsageError("give either --admin or --user NAME")
    now = services().now()
    if username is None:
        click.echo(user.create_admin_key(now=now))
        return
    services().judge.put_user(username, display_name=None)
    click.echo(user.create_key(username, now=now))


@click.command("recompute", cls=Command)
@click.option("--check", "mode", flag_value="check", help="Only report what differs.")
@click.option("--repair", "mode", flag_value="repair", help="Rebuild what differs.")
@click.option("--user", "username", help="Only this user.")
@click.option("--homework", "homework_id", help="Only this homework.")
@click.option("--problem", "problem_id", type=int, help="Only this problem.")
@with_appcontext
def recompute_command(
    mode: str | None, username: str | None, homework_id: str | None, problem_id: int | None
) -> None:
    """Compare every counter and standing with the submissions, and rebuild what differs.

    Safe while judging goes on: what differs is looked at again for a few seconds, until landings
    under way have ended. Stopped and started again, it loses nothing.
    """
    if mode is None:
        raise click.UsageError("give either --check or --repair")
    items = check.scope(username=username, homework_id=homework_id, problem_id=problem_id)
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("recompute", total=len(items))

        def advance() -> None:
            progress.advance(bar)

        if mode == "repair":
            found = check.repair(items, advance=advance)
        else:
            found = check.differences(
                items, advance=advance, pause=lambda: time.sleep(LOOK_AGAIN_S)
            )
    unfinished = check.under_way(found) if mode == "check" else set()
    differing = [one for one in found if one.homework_id not in unfinished]
    _show_differences(differing)
    for unfinished_id in sorted(unfinished):
        click.echo(f"homework {unfinished_id}: its recompute after an edit is still under way")
    stuck = check.stuck(homework_id, now=services().now())
    if mode == "repair":
        check.finish(stuck)
    for stuck_id in stuck:
        found_so = "recomputed" if mode == "repair" else "stuck, an edit's recompute does not end"
        click.echo(f"homework {stuck_id}: {found_so}")
    _show_summary(items, differing, "rebuilt" if mode == "repair" else "differ")
    if mode == "check" and (differing or stuck):
        raise SystemExit(EXIT_DIFFERENCE)


def _show_differences(differing: Sequence[check.Difference]) -> None:
    table = Table("what", "whose", "is", "should be")
    for one in differing[:DIFFERENCES_SHOWN_MAX]:
        table.add_row(
            one.what,
            one.whose,
            json.dumps(one.stored, default=str),
            json.dumps(one.recomputed, default=str),
        )
    if differing:
        console.print(table)
    if len(differing) > DIFFERENCES_SHOWN_MAX:
        click.echo(f"and {len(differing) - DIFFERENCES_SHOWN_MAX} more")


def _show_summary(
    items: Sequence[check.Item], differing: Sequence[check.Difference], verb: str
) -> None:
    table = Table("", "looked at", verb)
    for kind, standings in (("counters", False), ("standings", True)):
        looked_at = sum((item.homework_id is not None) is standings for item in items)
        owners = {one.whose for one in differing if (one.homework_id is not None) is standings}
        table.add_row(kind, str(looked_at), str(len(owners)))
    console.print(table)
    click.echo(f"{len(items)} looked at, {len(differing)} {verb}")


COMMANDS: tuple[click.Command, ...] = (
    import_problem,
    keys,
    rejudge,
    rejudges,
    recompute_command,
    check_command,
    runners,
    queue,
    export,
)
