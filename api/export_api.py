"""Exports: standings and submissions as CSV and as JSON lines.

Guarantees: rows are sent as they are read, so memory does not grow with their number; a failure
before the first row is a problem document, and one after it breaks the connection instead of
ending a file that looks whole. No cell of a CSV is taken for a formula: text that begins like one
gets an apostrophe in front, numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Literal, TypeVar

import structlog
from flask import Blueprint, Response, json, request, stream_with_context
from flask.typing import ResponseReturnValue
from pydantic import BaseModel, ConfigDict

from api import body
from api.auth import require_admin
from api.errors import invalid
from api.schemas import ProblemId, UserName, status_of
from api.services import services
from api.spec import describe

TAG = "exporting"
ADMIN = {403: ["forbidden"]}
BATCH_ROWS = 200
BOM = "\ufeff"
Form = Literal["csv", "jsonl"]
Row = dict[str, Any]

Query = TypeVar("Query", bound=BaseModel)

CONTENT_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/jsonl; charset=utf-8",
}
SUBMISSION_COLUMNS = (
    "submission_id",
    "username",
    "problem_id",
    "language",
    "status",
    "verdict",
    "score",
    "exec_time_ms",
    "memory_usage_kib",
    "submitted_at",
    "judged_at",
)
UNKNOWN_IF_NEGATIVE = ("exec_time_ms", "memory_usage_kib")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

log = structlog.get_logger("api")
exports = Blueprint("exports", __name__)


class SubmissionsFilter(BaseModel):
    """Which submissions to export."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    username: UserName | None = None
    problem_id: ProblemId | None = None
    verdict: Literal["PENDING", "AC", "WA", "CE", "TLE", "MLE", "RE", "JE", "OLE"] | None = None


class CsvQuery(BaseModel):
    """How to send a CSV. `bom=1`: begin with the mark by which spreadsheets know UTF-8."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bom: Literal["0", "1"] = "0"


class SubmissionsCsvQuery(SubmissionsFilter, CsvQuery):
    """Which submissions to export, and how."""


@exports.get("/submissions.csv")
@describe(TAG, query=SubmissionsCsvQuery, answers={200: None}, streams="text/csv", problems=ADMIN)
def submissions_csv() -> ResponseReturnValue:
    """Export submissions as CSV, newest first, with the filters of the list."""
    require_admin()
    query = _submissions_query(SubmissionsCsvQuery)
    return submissions_export("csv", query, bom=query.bom == "1")


@exports.get("/submissions.jsonl")
@describe(
    TAG,
    query=SubmissionsFilter,
    answers={200: None},
    streams="application/jsonl",
    problems=ADMIN,
)
def submissions_jsonl() -> ResponseReturnValue:
    """Export submissions as JSON lines, newest first, with the filters of the list."""
    require_admin()
    return submissions_export("jsonl", _submissions_query(SubmissionsFilter))


@exports.get("/homeworks/<homework_id>/standings.csv")
@describe(
    TAG,
    query=CsvQuery,
    answers={200: None},
    streams="text/csv",
    problems={**ADMIN, 404: ["unknown_homework"]},
)
def standings_csv(homework_id: str) -> ResponseReturnValue:
    """Export a homework's standings as CSV, one row per student."""
    require_admin()
    bom = body.parse_query(CsvQuery).bom == "1"
    return standings_export("csv", homework_id, bom=bom)


@exports.get("/homeworks/<homework_id>/standings.jsonl")
@describe(
    TAG,
    answers={200: None},
    streams="application/jsonl",
    problems={**ADMIN, 404: ["unknown_homework"]},
)
def standings_jsonl(homework_id: str) -> ResponseReturnValue:
    """Export a homework's standings as JSON lines, one object per student."""
    require_admin()
    return standings_export("jsonl", homework_id)


def _submissions_query(model: type[Query]) -> Query:
    problem_id = request.args.get("problem_id")
    if problem_id is not None and not (problem_id.isascii() and problem_id.isdigit()):
        raise invalid("problem_id: must be a whole number")
    return body.parse_query(model)


def submissions_export(form: Form, wanted: SubmissionsFilter, *, bom: bool = False) -> Response:
    """Return the submissions that fit `wanted`, streamed. `bom` is for a CSV.

    Raises:
        PyMongoError: the first row could not be read.
    """
    return _download(f"submissions.{form}", submissions_text(form, wanted, bom=bom))


def submissions_text(form: Form, wanted: SubmissionsFilter, *, bom: bool = False) -> Iterator[str]:
    """Return the submissions that fit `wanted` as text, in pieces.

    Raises:
        PyMongoError: the first row could not be read.
    """
    found = services().judge.export_submissions(
        username=wanted.username,
        problem_id=wanted.problem_id,
        status=None if wanted.verdict is None else status_of(wanted.verdict),
    )
    rows = _begun({name: row[name] for name in SUBMISSION_COLUMNS} for row in found)
    if form == "jsonl":
        return json_lines(rows)
    cells = (_submission_cells(row) for row in rows)
    return csv_text(SUBMISSION_COLUMNS, cells, bom=bom)


def standings_export(form: Form, homework_id: str, *, bom: bool = False) -> Response:
    """Return a homework's standings, streamed. `bom` is for a CSV.

    Raises:
        the domain's NotFoundError: there is no such homework.
        PyMongoError: the first row could not be read.
    """
    text = standings_text(form, homework_id, bom=bom)
    return _download(f"standings-{homework_id}.{form}", text)


def standings_text(form: Form, homework_id: str, *, bom: bool = False) -> Iterator[str]:
    """Return a homework's standings as text, in pieces.

    Raises:
        the domain's NotFoundError: there is no such homework.
        PyMongoError: the first row could not be read.
    """
    homework = services().judge.homework_settings(homework_id)
    rows = _begun(services().judge.standings(homework_id, homework["students"]))
    if form == "jsonl":
        return json_lines(rows)
    problem_ids = [str(problem_id) for problem_id in homework["problem_ids"]]
    columns = ["username", "total"]
    for problem_id in problem_ids:
        columns += [f"{problem_id} {part}" for part in ("score", "raw score", "verdict", "tries")]
    cells = (_standing_cells(row, problem_ids) for row in rows)
    return csv_text(columns, cells, bom=bom)


def _begun(rows: Iterator[Row]) -> Iterator[Row]:
    """Return the same rows, the first of them read already: what fails early can still be told."""
    first = next(rows, None)
    return iter(()) if first is None else chain([first], rows)


def _submission_cells(row: Row) -> list[Any]:
    unknown = {name: None for name in UNKNOWN_IF_NEGATIVE if row[name] < 0}
    return list({**row, **unknown}.values())


def _standing_cells(row: Row, problem_ids: Sequence[str]) -> list[Any]:
    cells = [row["username"], row["total"]]
    for problem_id in problem_ids:
        entry = row["problems"].get(problem_id)
        if entry is None:
            cells += [None] * 4
            continue
        tries = len(entry["submissionIds"])
        cells += [entry["score"], entry["rawScore"], entry["verdict"], tries]
    return cells


def _download(name: str, text: Iterable[str]) -> Response:
    pieces = (piece.encode("utf-8") for piece in _until_broken(text, name))
    content_type = CONTENT_TYPES[name.rpartition(".")[2]]
    response = Response(stream_with_context(pieces), content_type=content_type)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-store"
    return response


def _until_broken(text: Iterable[str], name: str) -> Iterator[str]:
    try:
        yield from text
    except Exception:
        log.error("export_broken", export=name, exc_info=True)
        raise  # the server then closes the connection without ending the body


def csv_text(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, bom: bool = False
) -> Iterator[str]:
    """Yield a CSV (RFC 4180) with a heading, in pieces of some rows."""
    piece = io.StringIO()
    piece.write(BOM if bom else "")
    writer = csv.writer(piece, lineterminator="\r\n")
    writer.writerow([_cell(column) for column in columns])
    for number, row in enumerate(rows, 1):
        writer.writerow([_cell(value) for value in row])
        if number % BATCH_ROWS == 0:
            yield _taken(piece)
    yield _taken(piece)


def json_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Yield one JSON object a line, in pieces of some rows."""
    piece = io.StringIO()
    for number, row in enumerate(rows, 1):
        piece.write(json.dumps(row, separators=(",", ":")) + "\n")
        if number % BATCH_ROWS == 0:
            yield _taken(piece)
    yield _taken(piece)


def _taken(piece: io.StringIO) -> str:
    text = piece.getvalue()
    piece.seek(0)
    piece.truncate()
    return text


def _cell(value: Any) -> Any:
    match value:
        case datetime():
            moment = value.astimezone(UTC).isoformat(timespec="milliseconds")
            return moment.replace("+00:00", "Z")
        case str() if value.lstrip(" ").startswith(FORMULA_STARTS):
            return f"'{value}"
        case _:
            return value
