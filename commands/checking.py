"""The whole database against what must always be true, on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click
from flask.cli import with_appcontext
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from api.services import services
from commands.telling import EXIT_DIFFERENCE, Command, as_json_option, console, tell_json
from mongo import inspection
from mongo.inspection import Finding, Inspector, Step
from mongo.judge import Judge

FINDINGS_KEPT_MAX = 1_000
"""How many findings are shown; all are counted. Bounds the memory, whatever is amiss."""


@click.command("check", cls=Command)
@click.option("--repair", is_flag=True, help="Put right what is found, as it is found.")
@as_json_option
@with_appcontext
def check(repair: bool, as_json: bool) -> None:
    """Check every job, submission, rejudge, homework, counter and standing.

    Safe while judging goes on: what two documents seem to disagree on is looked at again. With
    --repair it exits with 0 once all it found was put right, else with 1.
    """
    judge = services().judge
    if not isinstance(judge, Judge):
        raise TypeError("the domain is not ours")
    inspector = judge.inspector(repair=repair)
    looked_at: dict[str, int] = {}
    kept: list[Finding] = []
    found = left = 0
    with Progress(console=Console(stderr=True)) as progress:
        for stage, size in inspection.sizes().items():
            bar = progress.add_task(stage, total=size)
            looked_at[stage] = 0
            for step in _steps(inspector, stage):
                looked_at[stage] += step.looked_at
                found += len(step.findings)
                left += sum(not repair or one.remedy == inspection.NOTHING for one in step.findings)
                kept += step.findings[: FINDINGS_KEPT_MAX - len(kept)]
                progress.update(bar, completed=looked_at[stage])
            progress.update(bar, total=looked_at[stage])
    if as_json:
        told = [finding.to_document() for finding in kept]
        tell_json({"looked_at": looked_at, "found": found, "left": left, "findings": told})
    else:
        _show(looked_at, kept, found, repair)
    if left:
        raise SystemExit(EXIT_DIFFERENCE)


def _steps(inspector: Inspector, stage: str) -> Iterator[Step]:
    after: str | None = ""
    while after is not None:
        step = inspector.step(stage, after)
        yield step
        after = step.after


def _show(looked_at: Mapping[str, int], kept: Sequence[Finding], found: int, repair: bool) -> None:
    table = Table("", "of what", "what is wrong", "it did" if repair else "--repair")
    for one in kept:
        table.add_row(one.invariant, f"{one.kind} {one.subject}", one.what, one.remedy)
    if kept:
        console.print(table)
    if found > len(kept):
        click.echo(f"and {found - len(kept)} more")
    counts = ", ".join(f"{count} {stage}" for stage, count in looked_at.items())
    click.echo(f"looked at {counts}")
    click.echo(f"{found} amiss" if found else "nothing is amiss")
