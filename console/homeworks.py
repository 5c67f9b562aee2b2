"""Homeworks and their standings."""

from __future__ import annotations

from flask import render_template, request
from flask.typing import ResponseReturnValue

from api.export_api import standings_export
from api.services import services
from console.blueprint import console

HOMEWORKS_MAX = 200
PAGE_ROWS = 100


@console.get("/homeworks")
def homeworks() -> ResponseReturnValue:
    """List the homeworks, the latest first."""
    found = services().judge.list_homeworks(limit=HOMEWORKS_MAX)
    return render_template("console/homeworks.html", homeworks=found, limit=HOMEWORKS_MAX)


@console.get("/homeworks/<homework_id>")
def homework(homework_id: str) -> ResponseReturnValue:
    """Show a homework's standings, one page of students at a time."""
    settings = services().judge.homework_settings(homework_id)
    wanted = request.args.get("student", "").strip()
    by_total = request.args.get("by") == "total"
    students = [name for name in settings["students"] if wanted.casefold() in name.casefold()]
    pages = max(1, -(-len(students) // PAGE_ROWS))
    page = min(_page(), pages)
    this_page = slice((page - 1) * PAGE_ROWS, page * PAGE_ROWS)
    if by_total:
        everybody = services().judge.standings(homework_id, students)
        rows = sorted(everybody, key=lambda row: -row["total"])[this_page]
    else:
        rows = list(services().judge.standings(homework_id, students[this_page]))
    return render_template(
        "console/homework.html",
        homework=settings,
        found=len(students),
        wanted=wanted,
        by_total=by_total,
        filters={"student": wanted or None, "by": "total" if by_total else None},
        rows=rows,
        page=page,
        pages=pages,
    )


def _page() -> int:
    text = request.args.get("page", "1")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 6 else 1


@console.get("/homeworks/<homework_id>/standings.csv")
def standings_csv(homework_id: str) -> ResponseReturnValue:
    """Save the standings as CSV, with the mark by which spreadsheets know UTF-8."""
    return standings_export("csv", homework_id, bom=True)


@console.get("/homeworks/<homework_id>/standings.jsonl")
def standings_jsonl(homework_id: str) -> ResponseReturnValue:
    """Save the standings as JSON lines."""
    return standings_export("jsonl", homework_id)
