"""Exports: every row, in the right form, without memory that grows and without formulas."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from pymongo import MongoClient

from api import export_api
from dispatch import books
from mongo import export
from tests.factories import ADMIN_KEY, EPOCH, Service
from tests.live import LiveService

Rows = list[dict[str, str]]


def parsed(text: str) -> Rows:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def get(service: Service, path: str, **call: Any) -> str:
    answer = service.call("GET", path, **call)
    assert answer.status_code == 200, answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    return answer.text


def submissions(service: Service, *names: str) -> None:
    """Two submissions of each of `names`, the first of them judged."""
    runner = service.runner()
    service.problem(1)
    service.problem(2)
    for name in names:
        service.user(name)
        service.submit(name, 1)
        service.clock.advance(1)
    while service.claim(runner) is not None:
        pass
    for held in books.held_jobs(service.services.queue).get(runner.runner_id, ()):
        service.complete(runner, held.job.job_id, "AC")
    for name in names:
        service.submit(name, 2)
        service.clock.advance(1)


def test_submissions_as_csv_and_as_json_lines_are_the_list(service: Service) -> None:
    submissions(service, "ada", "bob")
    listed = service.ok("GET", "/submissions")["submissions"]
    lines = get(service, "/submissions.jsonl").splitlines()
    assert [json.loads(line) for line in lines] == listed
    rows = parsed(get(service, "/submissions.csv"))
    assert list(rows[0]) == list(listed[0])
    for row, entry in zip(rows, listed, strict=True):
        assert row["submission_id"] == entry["submission_id"]
        assert row["submitted_at"] == entry["submitted_at"]
        assert row["score"] == str(entry["score"])
    pending, judged = rows[0], rows[-1]
    assert (pending["verdict"], pending["exec_time_ms"], pending["judged_at"]) == (
        "PENDING",
        "",
        "",
    )
    assert (judged["verdict"], judged["exec_time_ms"]) == ("AC", "12")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_the_filters_are_those_of_the_list(service: Service, form: str) -> None:
    submissions(service, "ada", "bob")

    def count(query: str) -> int:
        lines = len(get(service, f"/submissions.{form}{query}").splitlines())
        return lines - 1 if form == "csv" else lines

    assert count("") == 4
    assert count("?username=ada") == 2
    assert count("?username=ada&problem_id=2") == 1
    assert count("?verdict=AC") == 2
    assert count("?verdict=AC&problem_id=2") == 0
    for wrong in ("problem_id=1.0", "verdict=ac", "limit=5", "username=", "username=a&username=b"):
        assert service.call("GET", f"/submissions.{form}?{wrong}").status_code == 400


def test_standings_have_a_row_for_every_student(service: Service) -> None:
    submissions(service, "ada", "bob")
    service.user("eve")
    late = {"end": EPOCH - timedelta(seconds=1), "penalty": "score / 4"}
    service.homework("hw", [1, 2], ["eve", "ada", "bob"], **late)
    rows = parsed(get(service, "/homeworks/hw/standings.csv"))
    assert [row["username"] for row in rows] == ["eve", "ada", "bob"]
    assert rows[1] == {
        "username": "ada",
        "total": "25",
        "1 score": "25",
        "1 raw score": "100",
        "1 verdict": "AC",
        "1 tries": "1",
        "2 score": "0",
        "2 raw score": "0",
        "2 verdict": "",
        "2 tries": "0",
    }
    assert rows[0]["total"] == "0"
    lines = get(service, "/homeworks/hw/standings.jsonl").splitlines()
    shown = service.ok("GET", "/homeworks/hw")["student_status"]
    for line in lines:
        row = json.loads(line)
        for entry in row["problems"].values():
            entry.pop("verdict")
        assert row["problems"] == shown[row["username"]]
    assert service.call("GET", "/homeworks/nope/standings.csv").status_code == 404


def test_no_cell_is_a_formula(service: Service) -> None:
    hostile = ["=1+1", "+1", "-1", "@SUM(A1)", "  =cmd|' '!A0", "\uff1d1", 'a"b,c']
    submissions(service, *hostile)
    service.homework("hw", [1], hostile)
    for path, column in (
        ("/submissions.csv", "username"),
        ("/homeworks/hw/standings.csv", "username"),
    ):
        rows = parsed(get(service, path))
        names = {row[column] for row in rows}
        assert names == {f"'{name}" for name in hostile[:-1]} | {'a"b,c'}, path
    lines = get(service, "/homeworks/hw/standings.jsonl").splitlines()
    assert [json.loads(line)["username"] for line in lines] == hostile


@pytest.mark.parametrize("start", list(export_api.FORMULA_STARTS))
def test_text_that_begins_like_a_formula_gets_an_apostrophe(start: str) -> None:
    text = "".join(export_api.csv_text([start], [[f"{start}1", -1, 2.5, None]]))
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        [f"'{start}"],
        [f"'{start}1", "-1", "2.5", ""],
    ]


def test_it_is_rfc_4180() -> None:
    text = "".join(export_api.csv_text(["a", "b"], [['say "hi"', "x,y"], ["two\r\nlines", 3]]))
    assert text == 'a,b\r\n"say ""hi""","x,y"\r\n"two\r\nlines",3\r\n'


def test_a_byte_order_mark_is_sent_on_request(service: Service) -> None:
    submissions(service, "\u674e")
    with_mark = service.call("GET", "/submissions.csv?bom=1").data
    without = service.call("GET", "/submissions.csv").data
    assert with_mark == b"\xef\xbb\xbf" + without
    assert "\u674e" in without.decode()
    assert service.call("GET", "/submissions.csv?bom=yes").status_code == 400
    assert service.call("GET", "/submissions.jsonl?bom=1").status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/submissions.csv",
        "/submissions.jsonl",
        "/homeworks/hw/standings.csv",
        "/homeworks/hw/standings.jsonl",
    ],
)
def test_exports_are_for_admins(service: Service, path: str) -> None:
    key = service.user("ada")
    service.problem(1)
    service.homework("hw", [1], ["ada"])
    assert service.call("GET", path, key=key).status_code == 403
    assert service.call("GET", path, key=None).status_code == 401
    assert get(service, path) is not None


def test_an_export_longer_than_a_piece_is_whole_and_in_order(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "PIECE_ROWS", 3)
    monkeypatch.setattr(export_api, "BATCH_ROWS", 2)
    service.user("ada")
    service.problem(1)
    for number in range(10):
        service.submit("ada", 1, f"sn_{number}")  # all at one moment: the id decides
    rows = parsed(get(service, "/submissions.csv"))
    assert [row["submission_id"] for row in rows] == [f"sn_{n}" for n in reversed(range(10))]
    students = [f"s{number}" for number in range(10)]
    for name in students:
        service.user(name)
    service.homework("hw", [1], students)
    rows = parsed(get(service, "/homeworks/hw/standings.csv"))
    assert [row["username"] for row in rows] == students


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_of_fifty_thousand_rows_only_a_batch_is_in_memory(
    service: Service, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Rows are read no sooner than they are sent: seen from outside, through the whole service."""
    count, read, sent = 50_000, 0, 0
    row = dict.fromkeys(export_api.SUBMISSION_COLUMNS, 1)

    def rows(**wish: Any) -> Iterator[dict[str, int]]:
        nonlocal read
        for _ in range(count):
            read += 1
            yield row

    monkeypatch.setattr(export, "submissions", rows)
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    answer = service.client.get(f"/submissions.{form}", headers=headers)
    for piece in answer.response:
        sent += piece.count(b"\n")
        assert read - sent <= export_api.BATCH_ROWS
    assert sent == count + (form == "csv")


def test_a_failure_before_the_first_row_is_a_problem_document(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**wish: Any) -> Iterator[Any]:
        raise RuntimeError("no rows")
        yield

    monkeypatch.setattr(export, "submissions", broken)
    answer = service.call("GET", "/submissions.csv", may_fail=True)
    assert answer.status_code == 500


def test_a_failure_on_the_way_never_looks_like_the_end(live_service: LiveService) -> None:
    """A document that cannot be shown breaks the file in its middle, where the server is real."""
    client: MongoClient[Any] = MongoClient(live_service.environment["MONGODB_URI"])
    good = {
        "username": "ada",
        "problem_id": 1,
        "language": 2,
        "submitted_at": EPOCH,
        "status": 0,
        "fence": 3,
        "result": {"score": 100},
    }
    with client:
        client.get_default_database()["submissions"].insert_many(
            {**good, "_id": f"sn_{number:04d}"} if number else {"_id": "a", "submitted_at": EPOCH}
            for number in range(1500)
        )
    with live_service.admin() as admin, pytest.raises(httpx.RemoteProtocolError):
        admin.get("/submissions.csv")
    assert "export_broken" in live_service.log.read_text()
