"""The console's pages: what they show, what their buttons do, and whose words run."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from markupsafe import escape
from pymongo.errors import AutoReconnect

from console.outputs import SHOWN_BYTES_MAX
from tests.console.support import Operator
from tests.factories import EPOCH, Service, case_body

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}</bdi></td><style>*{display:none}</style>",
)
HOSTILE_NAMES = tuple(name.replace("/", "\u2215") for name in HOSTILE)


def complete(service: Service, runner: Any, *cases: dict[str, Any]) -> None:
    """Claim the next job, of one task, and report `cases`."""
    payload = service.claim(runner)
    path = runner.path(f"jobs/{payload['job_id']}/complete")
    service.ok("PUT", path, key=runner.token, json={"tasks": [list(cases)]})


def test_the_overview_counts_what_is_there(service: Service, operator: Operator) -> None:
    page = operator.page("/console")
    assert "No runner has registered yet." in page
    assert "Nothing has been handed in yet." in page
    assert "No runner is alive." in page
    service.user("ada")
    service.problem(1)
    runner = service.runner("desk 7")
    for number in range(3):
        service.submit("ada", 1, f"sn_{number}")
    service.judge(runner, "sn_0", "AC")
    service.claim(runner)
    service.clock.advance(130)
    page = operator.page("/console")
    figures = page.split("<dl", 1)[1].split("</dl>")[0]
    assert [part.split("<")[0] for part in figures.split("<dd>")[1:]] == [
        "1",
        "1",
        "2 min",
        "1",
        "0",
    ]
    assert "sn_1</a>" in page
    assert "desk 7" in page


def test_a_runner_shows_what_it_holds_and_since_when(service: Service, operator: Operator) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner("desk 7", languages=[0, 2])
    service.submit("ada", 1, "sn_1")
    service.claim(runner)
    service.clock.advance(12)
    page = operator.page("/console/runners")
    assert "C, Python" in page
    assert "for 12 s" in page
    assert ">sn_1</a>" in page
    assert "lease is over" not in page
    service.clock.advance(60)
    page = operator.page("/console/runners")
    assert "lease is over" in page
    assert "not seen" in page


def test_a_runner_is_revoked(service: Service, operator: Operator) -> None:
    runner = service.runner("desk 7")
    answer = operator.post(f"/console/runners/{runner.runner_id}/revoke")
    assert answer.status_code == 303
    assert "is revoked" in operator.page(answer.headers["Location"])
    assert service.call("GET", runner.path("next-job"), key=runner.token).status_code == 401
    answer = operator.post(f"/console/runners/{runner.runner_id}/revoke")
    assert answer.status_code == 404


def test_a_runner_is_drained_and_reinstated(service: Service, operator: Operator) -> None:
    runner = service.runner("desk 7")
    answer = operator.post(f"/console/runners/{runner.runner_id}/drain")
    page = operator.page(answer.headers["Location"])
    assert "gets no more jobs" in page
    assert "drains" in page
    assert "by console, key " in page
    answer = operator.post(f"/console/runners/{runner.runner_id}/reinstate")
    page = operator.page(answer.headers["Location"])
    assert "gets jobs again" in page
    assert "drains" not in page
    for verb in ("drain", "reinstate"):
        assert operator.post(f"/console/runners/rn_none/{verb}").status_code == 404


def test_the_console_says_why_a_runner_is_set_aside(service: Service, operator: Operator) -> None:
    runner = service.runner("desk 7")
    why = "<b>broken</b>"
    service.services.queue.runners.set_aside(runner.runner_id, why=why, now=service.clock())
    for page in ("/console", "/console/runners"):
        shown = operator.page(page)
        assert "set aside" in shown
        assert "&lt;b&gt;broken" in shown
        assert why not in shown


def test_the_queue_is_paused_with_who_and_why_and_resumed(
    service: Service, operator: Operator
) -> None:
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    answer = operator.post("/console/queue/pause", why="  new <b>data</b>  ")
    assert "The queue is paused." in operator.page(answer.headers["Location"])
    pause = service.ok("GET", "/queue")["paused"]
    assert pause["why"] == "new <b>data</b>"
    assert pause["by"].startswith("console, key ")
    for page in ("", "/runners", "/submissions/sn_1"):
        assert "new &lt;b&gt;data&lt;/b&gt;" in operator.page(f"/console{page}")
    assert "The queue is paused." in operator.page("/console/submissions/sn_1")
    answer = operator.post("/console/queue/resume")
    assert "hands out jobs again" in operator.page(answer.headers["Location"])
    assert service.ok("GET", "/queue")["paused"] is None


@pytest.mark.parametrize("why", ["", " ", "x" * 201, "a\x00b"])
def test_a_pause_needs_a_reason_that_can_be_shown(
    service: Service, operator: Operator, why: str
) -> None:
    answer = operator.post("/console/queue/pause", why=why)
    assert answer.status_code == 400
    assert "why:" in answer.text
    assert service.ok("GET", "/queue")["paused"] is None


def test_the_line_is_shown_in_its_order(service: Service, operator: Operator) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    for number in range(3):
        service.submit("ada", 1, f"sn_{number}")
        service.clock.advance(1)
    service.claim(runner)
    service.clock.advance(60)
    page = operator.page("/console/queue")
    places = [page.index(f">sn_{number}</a>") for number in range(3)]
    assert places == sorted(places)
    assert page.count(">orphan<") == 1
    assert "(fresh)" in page


def test_submissions_are_filtered_and_paged(service: Service, operator: Operator) -> None:
    runner = service.runner()
    for name in ("ada", "bob"):
        service.user(name)
    for problem_id in (1, 2):
        service.problem(problem_id)
    for number in range(55):
        service.submit("ada", 1, f"sn_{number:02d}")
        service.clock.advance(1)
    service.submit("bob", 2, "sn_bob")
    for number in range(2):
        service.judge(runner, f"sn_{number:02d}", "WA")

    def ids(query: str) -> list[str]:
        page = operator.page(f"/console/submissions{query}")
        links = page.split('<a class="id" href="/console/submissions/')[1:]
        return [link.split('"')[0] for link in links]

    assert len(ids("")) == 50
    assert ids("?username=bob") == ["sn_bob"]
    assert ids("?username=&problem_id=2&verdict=") == ["sn_bob"]
    assert ids("?verdict=WA") == ["sn_01", "sn_00"]
    assert ids("?verdict=WA&username=bob") == []
    first = operator.page("/console/submissions?username=ada")
    older = first.split(">Older<")[0].rpartition('href="')[2].split('"')[0].replace("&amp;", "&")
    assert "username=ada" in older
    assert ids(older.removeprefix("/console/submissions")) == [f"sn_0{n}" for n in (4, 3, 2, 1, 0)]
    assert operator.get("/console/submissions?cursor=nonsense").status_code == 400
    assert operator.get("/console/submissions?problem_id=1e3").status_code == 400
    assert operator.get("/console/submissions?verdict=XX").status_code == 400
    assert operator.get("/console/submissions?other=1").status_code == 400


def test_a_submission_shows_its_result_its_history_and_its_code(
    service: Service, operator: Operator
) -> None:
    service.user("ada")
    service.problem(1, (100, 2))
    runner = service.runner("desk 7")
    service.submit("ada", 1, "sn_1")
    page = operator.page("/console/submissions/sn_1")
    assert "It is the next in line for a free runner." in page
    complete(service, runner, case_body("AC"), case_body("WA", stdout="seven\n"))
    page = operator.page("/console/submissions/sn_1")
    assert "wrong answer" in page
    assert page.index("Landed") < page.index("Handed to a runner") < page.index("Entered the")
    assert page.count("desk 7") == 3
    assert "print(input())" in page
    case = operator.page("/console/submissions/sn_1/cases/0/1")
    assert "seven" in case
    saved = operator.get("/console/submissions/sn_1/outputs/0/1/stdout")
    assert saved.data == b"seven\n"
    assert saved.headers["Content-Disposition"] == 'attachment; filename="sn_1-0-1-stdout.txt"'
    assert operator.get("/console/submissions/sn_1/code").data.startswith(b"PK")
    for nowhere in ("sn_1/cases/0/2", "sn_1/cases/1/0", "sn_2", "sn_1/outputs/0/0/code"):
        assert operator.get(f"/console/submissions/{nowhere}").status_code == 404


def test_a_submission_is_rejudged_and_the_earlier_result_counts(
    service: Service, operator: Operator
) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    service.submit("ada", 1, "sn_1")
    service.judge(runner, "sn_1", "AC")
    answer = operator.post("/console/submissions/sn_1/rejudge")
    page = operator.page(answer.headers["Location"])
    assert "fresh judging is on its way" in page
    assert "pending" in page
    assert service.counters("ada") == (1, 1, [1])
    assert operator.post("/console/submissions/nope/rejudge").status_code == 404


def test_judge_errors_are_listed_and_rejudged(service: Service, operator: Operator) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    assert "None. All is well." in operator.page("/console/judge-errors")
    service.submit("ada", 1, "sn_0")
    for _ in range(3):  # one is a failed attempt
        service.judge(runner, "sn_0", "JE")
    service.submit("ada", 1, "sn_1")
    service.judge(runner, "sn_1", "AC")
    page = operator.page("/console/judge-errors")
    assert "sn_0" in page
    assert "sn_1" not in page
    answer = operator.post("/console/submissions/sn_0/rejudge", back="judge-errors")
    assert answer.headers["Location"] == "/console/judge-errors?did=rejudge"
    assert "sn_0" not in operator.page("/console/judge-errors")


def test_standings_are_shown_searched_and_ordered(service: Service, operator: Operator) -> None:
    names = [f"s{number:03d}" for number in range(120)]
    for name in names:
        service.services.judge.put_user(name, display_name=None)
    service.problem(1)
    service.homework("hw", [1], names, end=EPOCH - timedelta(hours=12), penalty="score / 2")
    runner = service.runner()
    service.submit("s119", 1, "sn_1")
    service.judge(runner, "sn_1", "AC")
    assert ">hw</a>" in operator.page("/console/homeworks")
    page = operator.page("/console/homeworks/hw")
    assert "page 1 of 2" in page
    assert "s099" in page
    assert "s100" not in page
    assert "s119" in operator.page("/console/homeworks/hw?page=2")
    best = operator.page("/console/homeworks/hw?by=total")
    assert best.index("s119") < best.index("s000")
    assert "50 <span" in best.replace("\n", " ")
    assert "(100)" in best
    found = operator.page("/console/homeworks/hw?student=S11")
    assert "10 students" in found
    assert operator.get("/console/homeworks/hw?page=99999999999").status_code == 200
    assert operator.get("/console/homeworks/nope").status_code == 404


def test_lists_are_saved_without_a_bearer_key(service: Service, operator: Operator) -> None:
    service.user("ada")
    service.problem(1)
    service.homework("hw", [1], ["ada"])
    service.submit("ada", 1, "sn_1")
    answer = operator.get("/console/submissions.csv?username=ada&verdict=")
    assert answer.data.startswith(b"\xef\xbb\xbf")
    rows = list(csv.DictReader(io.StringIO(answer.data.decode("utf-8-sig"), newline="")))
    assert [row["submission_id"] for row in rows] == ["sn_1"]
    lines = operator.get("/console/submissions.jsonl").text.splitlines()
    assert [json.loads(line)["submission_id"] for line in lines] == ["sn_1"]
    assert "ada" in operator.get("/console/homeworks/hw/standings.csv").text
    assert "ada" in operator.get("/console/homeworks/hw/standings.jsonl").text
    assert Operator(service).get("/console/submissions.csv").status_code == 303


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_what_students_and_runners_write_stays_text(
    service: Service, operator: Operator, name: str
) -> None:
    """`Operator` scans every page for scripts, handlers, images, styles and foreign links."""
    service.user(name)
    service.problem(1)
    service.homework("hw", [1], [name])
    service.services.judge.put_homework(
        "hw2",
        name=name,
        start=EPOCH,
        end=EPOCH,
        penalty="score = 0",
        problem_ids=[1],
        students=[name],
    )
    runner = service.runner(name)
    service.submit(name, 1, "sn_1")
    text = "\n".join(HOSTILE)
    complete(service, runner, case_body("CE", stdout=text, stderr=text))
    service.submit(name, 1, "sn_2")
    service.claim(runner)
    operator.post("/console/queue/pause", why=name)
    seen = 0
    for page in (
        "",
        "/queue",
        "/runners",
        "/submissions",
        f"/submissions?username={quote(name)}",
        "/submissions/sn_1",
        "/submissions/sn_2",
        "/submissions/sn_1/cases/0/0",
        "/homeworks",
        "/homeworks/hw",
        f"/homeworks/hw2?student={quote(name)}",
    ):
        shown = operator.page(f"/console{page}")
        assert escape(name) in shown, page
        seen += shown.count(escape(name))
    assert seen > 20


def test_output_that_is_no_text_is_shown_by_stand_ins_and_cut(
    service: Service, operator: Operator
) -> None:
    service.user("ada")
    service.problem(1, (100, 2))
    runner = service.runner()
    service.submit("ada", 1, "sn_1")
    big = "\u00e9" * SHOWN_BYTES_MAX
    complete(
        service,
        runner,
        case_body("AC", stdout="a\x00b\x1b[2J\u202ec"),
        case_body("AC", stdout=big, stderr="xy" + "\u20ac" * SHOWN_BYTES_MAX),
    )
    page = operator.page("/console/submissions/sn_1/cases/0/0")
    assert "a\u2400b\u241b[2J" in page
    assert "stand-ins" in page
    page = operator.page("/console/submissions/sn_1/cases/0/1")
    assert page.count("Only the beginning is shown.") == 2
    assert "stand-ins" not in page
    assert len(page) < 2 * SHOWN_BYTES_MAX
    saved = operator.get("/console/submissions/sn_1/outputs/0/1/stdout")
    assert saved.data.decode() == big


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/nowhere", "/static/nowhere", "/queue/pause/x", "/%ff", "/a%00"])
def test_errors_are_pages_of_the_console(
    service: Service, operator: Operator, method: str, path: str
) -> None:
    form = {"form_token": operator.token()}
    answer = operator.client.open(f"/console{path}", method=method, data=form)
    assert answer.status_code in (404, 405)
    assert answer.mimetype == "text/html"
    assert answer.headers["Content-Security-Policy"]
    assert "Traceback" not in answer.text


def test_a_database_that_is_away_is_a_page_too(
    service: Service, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any, **kwargs: Any) -> Any:
        raise AutoReconnect("10.0.0.1:27017 rk_0123456789abcdef")

    monkeypatch.setattr("mongo.console_session.find", away)
    answer = operator.client.get("/console")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    assert answer.mimetype == "text/html"
    assert "10.0.0.1" not in answer.text


def test_what_nobody_foresaw_is_a_page_too(
    service: Service, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("secret-of-the-house")

    monkeypatch.setattr("mongo.console_session.find", broken)
    answer = operator.client.get("/console")
    assert answer.status_code == 500
    assert "secret-of-the-house" not in answer.text
    assert answer.mimetype == "text/html"
