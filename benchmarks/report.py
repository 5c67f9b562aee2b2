"""What was measured, as one table or as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from benchmarks.stats import Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One measurement of one contender.

    `median` and `p99` are in `unit`; `rate_per_s` is the median over the rounds. `ratio` compares
    with the line that `against` names: of rates where there are rates, else of medians.
    """

    row: str
    case: str
    who: str
    unit: str = "ms"
    median: float | None = None
    p99: float | None = None
    count: int | None = None
    rate_per_s: float | None = None
    ratio: float | None = None
    against: str = ""
    note: str = ""


def line(row: str, case: str, who: str, summary: Summary, **more: object) -> Line:
    """Return a line with a summary's numbers."""
    return Line(
        row=row,
        case=case,
        who=who,
        median=summary.median,
        p99=summary.p99,
        count=summary.count,
        **more,  # type: ignore[arg-type]
    )


def circumstances(mode: str, began: datetime) -> dict[str, object]:
    """Return what the numbers have to be read with."""
    return {
        "mode": mode,
        "cores": os.cpu_count(),
        "load_average_1_min": round(os.getloadavg()[0], 2),
        "began": began.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def show(lines: Sequence[Line], about: dict[str, object]) -> None:
    """Print the table."""
    title = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about.items())
    table = Table(title=f"Benchmarks: {title}", title_justify="left")
    for name in ("row", "case", "who"):
        table.add_column(name, overflow="fold")
    for name in ("median", "p99", "per s", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    last = ""
    for entry in lines:
        if last and entry.row != last:
            table.add_section()
        against = f"ratio: {entry.against}" if entry.against else ""
        table.add_row(
            entry.row if entry.row != last else "",
            entry.case,
            entry.who,
            _number(entry.median, entry.unit),
            _number(entry.p99, entry.unit),
            _number(entry.rate_per_s),
            "" if entry.ratio is None else f"{entry.ratio:.2f}",
            "; ".join(part for part in (against, entry.note) if part),
        )
        last = entry.row
    Console(width=None if os.isatty(1) else 170).print(table)


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return ""
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:,.{digits}f} {unit}".strip()


def as_json(lines: Sequence[Line], about: dict[str, object]) -> str:
    """Return everything as a JSON document."""
    return json.dumps({"about": about, "lines": [asdict(entry) for entry in lines]}, indent=1)
