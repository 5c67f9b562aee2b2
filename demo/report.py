"""What the demo shows: steps, verdicts as they arrive, standings, differences.

Guarantees: on a terminal the verdicts stand in one live table; anywhere else each becomes a plain
line at the moment it arrives, so that a log reads well too.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from demo.course import PROBLEMS, STUDENTS, Submission

PLAIN_WIDTH = 110
LOG_TAIL_BYTES = 4_000
_VERDICTS = {0: "AC", 1: "WA", 2: "CE", 3: "TLE", 4: "MLE", 5: "RE", 6: "JE", 7: "OLE"}

Json = Mapping[str, Any]


class Report:
    """Writes to standard output."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _console()
        self._rows: dict[str, Sequence[str]] = {}
        self._live: Live | None = None

    def step(self, text: str) -> None:
        """Say what comes next."""
        self._console.print(f"[bold cyan]==>[/] {escape(text)}")

    def note(self, text: str) -> None:
        """Say what happened within a step."""
        self._console.print(f"    {escape(text)}", highlight=False)

    def loud(self, text: str) -> None:
        """Say in one line what nobody should overlook."""
        self._console.print(f"[bold white on red]*** {escape(text)} ***[/]", soft_wrap=True)

    def good(self, text: str) -> None:
        """Say that something is as it must be."""
        self._console.print(f"[bold green]{escape(text)}[/]")

    def bad(self, text: str) -> None:
        """Say that something is not as it must be."""
        self._console.print(f"[bold red]{escape(text)}[/]", soft_wrap=True)

    def log(self, path: Path) -> None:
        """Show the end of a process's output."""
        tail = path.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", errors="replace")
        self._console.rule(f"end of {path.name}")
        self._console.out(tail, highlight=False)

    @contextmanager
    def verdicts(self, submissions: Sequence[Submission]) -> Iterator[None]:
        """Show the submissions, pending, while the block runs."""
        self._rows = {row.submission_id: _pending(row) for row in submissions}
        if not self._console.is_terminal:
            yield
            return
        with Live(self._verdict_table(), console=self._console, refresh_per_second=8) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def verdict(self, submission: Submission, actual: Json, runner: str) -> None:
        """Show the verdict that has arrived for `submission`."""
        cells = _judged(submission, actual, runner)
        self._rows[submission.submission_id] = cells
        if self._live is None:
            name, student, program, verdict, score, time_ms, memory, by = cells
            self._console.print(
                f"    {name:<21}{student:<10}{program:<31}{verdict:<4}{score:>4}{time_ms:>9}"
                f"{memory:>12}  {by}",
                highlight=False,
                soft_wrap=True,
            )
        else:
            self._live.update(self._verdict_table())

    def standings(self, homework: Json, users: Mapping[str, Json]) -> None:
        """Show the homework's standings and the users' counters."""
        table = Table(title=f"Standings: {homework.get('name')} (score / without penalty, status)")
        table.add_column("student")
        for problem in PROBLEMS:
            table.add_column(problem.folder, justify="right")
        for title in ("total", "submissions", "accepted", "solved"):
            table.add_column(title, justify="right")
        status = homework.get("student_status", {})
        for student in sorted(STUDENTS, key=lambda name: -_total(status.get(name, {}))):
            entries = status.get(student, {})
            counters = users.get(student, {})
            table.add_row(
                student,
                *(_standing(entries.get(str(problem.problem_id), {})) for problem in PROBLEMS),
                str(_total(entries)),
                str(counters.get("submission")),
                str(counters.get("AC_submission")),
                ", ".join(map(str, counters.get("AC_problem_ids", []))),
            )
        self._console.print(table)

    def history(self, job: Json, runner_names: Mapping[str, str]) -> None:
        """Show the transitions of one job."""
        table = Table(title="History of the job whose runner was killed")
        for title in ("at", "event", "runner", "fence"):
            table.add_column(title)
        for entry in job.get("history", []):
            runner_id = entry.get("runner_id") or ""
            table.add_row(
                str(entry.get("at")),
                str(entry.get("event")),
                runner_names.get(runner_id, runner_id),
                str(entry.get("fence")),
            )
        self._console.print(table)

    def _verdict_table(self) -> Table:
        table = Table(title="Verdicts")
        for title in ("submission", "student", "program", "verdict"):
            table.add_column(title)
        for title in ("score", "time", "memory"):
            table.add_column(title, justify="right")
        table.add_column("runner")
        for name, student, program, verdict, *rest in self._rows.values():
            colour = "green" if verdict == "AC" else "dim" if verdict == "..." else "yellow"
            table.add_row(name, student, program, f"[{colour}]{verdict}[/]", *rest)
        return table


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def _pending(row: Submission) -> Sequence[str]:
    return (row.submission_id, row.student, _program(row), "...", "", "", "", "")


def _judged(row: Submission, actual: Json, runner: str) -> Sequence[str]:
    return (
        row.submission_id,
        row.student,
        _program(row),
        str(actual.get("verdict")),
        str(actual.get("score")),
        f"{actual.get('exec_time_ms')} ms",
        f"{actual.get('memory_usage_kib')} KiB",
        runner,
    )


def _program(row: Submission) -> str:
    return f"{row.problem.folder}/{row.program}"


def _standing(entry: Json) -> str:
    status = entry.get("problemStatus")
    verdict = "-" if status is None else _VERDICTS.get(status, "?")
    return f"{entry.get('score', 0)} / {entry.get('rawScore', 0)} {verdict}"


def _total(entries: Mapping[str, Json]) -> int:
    return sum(int(entry.get("score", 0)) for entry in entries.values())
