"""Rejudges, the queue and exports on the command line: every option, and every exit code."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from pymongo.errors import AutoReconnect

from tests.factories import DAY, EPOCH, Runner, Service


@pytest.fixture
def run(service: Service) -> Callable[..., str]:
    """Run a command, expect an exit code, return what it printed."""
    runner = service.app.test_cli_runner()

    def run(*arguments: str, exit_code: int = 0) -> str:
        result: Result = runner.invoke(args=list(arguments), catch_exceptions=False)
        assert result.exit_code == exit_code, (arguments, result.output)
        return result.output

    return run


@pytest.fixture
def runner(service: Service) -> Runner:
    """Ada and Ben, two problems, a homework of the first, and two runners' judgings."""
    for name in ("ada", "ben"):
        service.user(name)
    for problem_id in (1, 2):
        service.problem(problem_id)
    service.homework("hw", [1], ["ada"])
    first, second = service.runner("first"), service.runner("second")
    for who, submission_id, username, problem_id, verdict in (
        (first, "a1", "ada", 1, "AC"),
        (first, "a2", "ada", 2, "WA"),
        (second, "b1", "ben", 1, "WA"),
        (second, "b2", "ben", 2, "AC"),
    ):
        service.submit(username, problem_id, submission_id)
        service.judge(who, submission_id, verdict)
        service.clock.advance(60)
    return first


def go_on(service: Service) -> None:
    maintenance: Any = service.services.maintain
    while maintenance.advance_rejudges():
        pass


def rejudged(service: Service, run: Callable[..., str], *options: str) -> list[str]:
    """Start in bulk; return the submissions that it is about."""
    started = json.loads(run("rejudge", *options, "--json"))
    go_on(service)
    items = json.loads(run("rejudges", "items", started["rejudge_id"], "--json"))
    assert len(items) == started["total"]
    return [item["submission_id"] for item in items]


# -- starting --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "fitting"),
    [
        (("--problem", "1"), ["a1", "b1"]),
        (("--homework", "hw"), ["a1"]),
        (("--user", "ben"), ["b1", "b2"]),
        (("--verdict", "WA"), ["a2", "b1"]),
        (("--since", "2040-01-01T12:02:00Z"), ["b1", "b2"]),
        (("--until", "2040-01-01T13:01:00+01:00"), ["a1", "a2"]),
        (("--problem", "1", "--verdict", "WA", "--user", "ben"), ["b1"]),
        (("--user", "nobody"), []),
    ],
)
def test_each_option_chooses(
    service: Service,
    runner: Runner,
    run: Callable[..., str],
    options: tuple[str, ...],
    fitting: list[str],
) -> None:
    assert rejudged(service, run, *options) == fitting


def test_by_the_runner_that_judged(
    service: Service, runner: Runner, run: Callable[..., str]
) -> None:
    assert rejudged(service, run, "--runner", runner.runner_id) == ["a1", "a2"]


def test_a_preview_is_one_and_text_says_how_many(
    service: Service, runner: Runner, run: Callable[..., str]
) -> None:
    rejudge_id, _, rest = run("rejudge", "--problem", "1", "--preview").partition(":")
    assert rest == " 2 submission(s)\n"
    go_on(service)
    assert service.view("a1")["verdict"] == "AC"
    assert json.loads(run("rejudges", "show", rejudge_id, "--json"))["mode"] == "preview"


def test_single_ones_as_json(service: Service, runner: Runner, run: Callable[..., str]) -> None:
    told = json.loads(run("rejudge", "a1", "b2", "--json"))
    assert told == {name: service.view_job(name)["job_id"] for name in ("a1", "b2")}


EXIT_CODES: list[tuple[tuple[str, ...], int]] = [
    (("rejudge",), 2),
    (("rejudge", "a1", "--problem", "1"), 2),
    (("rejudge", "a1", "--preview"), 2),
    (("rejudge", "--preview"), 2),
    (("rejudge", "--problem", "-1"), 2),
    (("rejudge", "--problem", "x"), 2),
    (("rejudge", "--homework", "a b"), 2),
    (("rejudge", "--user", "a/b"), 2),
    (("rejudge", "--verdict", "PENDING"), 2),
    (("rejudge", "--runner", "a\nb"), 2),
    (("rejudge", "--since", "yesterday"), 2),
    (("rejudge", "--until", "2040-01-01T12:00:00"), 2),
    (("rejudge", "--homework", "none"), 3),
    (("rejudge", "none"), 3),
    (("rejudges", "show"), 2),
    (("rejudges", "show", "rj_none"), 3),
    (("rejudges", "items", "rj_none"), 3),
    (("rejudges", "students", "rj_none"), 3),
    (("rejudges", "pause", "rj_none"), 3),
    (("rejudges", "resume", "rj_none"), 3),
    (("rejudges", "cancel", "rj_none"), 3),
    (("rejudges", "apply", "rj_none"), 3),
    (("rejudges", "discard", "rj_none"), 3),
    (("queue", "pause"), 2),
    (("queue", "pause", "--why", ""), 2),
    (("queue", "front", "none"), 3),
    (("queue", "front", "a1"), 3),
    (("queue", "cancel", "none"), 3),
    (("queue", "cancel", "a1"), 3),
    (("export", "standings", "none"), 3),
    (("export", "submissions", "--json", "--bom"), 2),
]


def test_exit_codes(service: Service, runner: Runner, run: Callable[..., str]) -> None:
    for arguments, exit_code in EXIT_CODES:
        run(*arguments, exit_code=exit_code)
    assert service.database["rejudges"].count_documents({}) == 0
    assert service.ok("GET", "/queue")["paused"] is None


def test_a_database_that_is_away_is_4(
    service: Service, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Any:
        raise AutoReconnect("no primary,\nfor now")

    monkeypatch.setattr(service.services.queue.jobs, "depth", away)
    assert "no primary, for now" in run("queue", exit_code=4)


@pytest.mark.parametrize("command", ["rejudge", "rejudges", "queue", "export", "recompute"])
def test_the_help_says_what_the_exit_codes_mean(run: Callable[..., str], command: str) -> None:
    assert "  3  refused" in run(command, "--help")


# -- looking and deciding --------------------------------------------------------------------


def preview(service: Service, runner: Runner, run: Callable[..., str]) -> str:
    """Ada's a1 would go from AC to WA, Ben's b1 from WA to AC."""
    rejudge_id = str(
        json.loads(run("rejudge", "--problem", "1", "--preview", "--json"))["rejudge_id"]
    )
    go_on(service)
    service.judge(runner, "a1", "WA")
    service.judge(runner, "b1", "AC")
    go_on(service)
    return rejudge_id


def test_a_preview_is_looked_at_and_applied(
    service: Service, runner: Runner, run: Callable[..., str]
) -> None:
    assert run("rejudges") == "none\n"
    rejudge_id = preview(service, runner, run)
    (listed,) = json.loads(run("rejudges", "--json"))
    assert (listed["rejudge_id"], listed["state"], listed["done"]) == (rejudge_id, "ready", 2)
    assert listed["by"] == "the command line"
    assert listed["created_at"] == "2040-01-01T12:04:00.000Z"
    assert "ready" in run("rejudges")
    assert "2 of 2" in run("rejudges")
    shown = json.loads(run("rejudges", "show", rejudge_id, "--json"))
    assert shown["totals"] == {
        "students": 2,
        "gain": 1,
        "lose": 1,
        "cross_60_up": 0,
        "cross_60_down": 1,
        "submissions_changed": 2,
    }
    assert {"from": "AC", "to": "WA", "count": 1} in shown["changes"]
    text = run("rejudges", "show", rejudge_id)
    assert "cross 60 down" in text
    assert "from" in text
    item_table = run("rejudges", "items", rejudge_id)
    assert "AC 100" in item_table
    assert "WA 0" in item_table
    ada, ben = json.loads(run("rejudges", "students", rejudge_id, "--json"))
    assert (ada["username"], ada["loses"], ben["gains"]) == ("ada", True, True)
    table = run("rejudges", "students", rejudge_id)
    assert "down" in table
    assert "ben" in table
    assert run("rejudges", "apply", rejudge_id) == f"{rejudge_id}: is being applied\n"
    go_on(service)
    assert [service.view(name)["verdict"] for name in ("a1", "b1")] == ["WA", "AC"]
    run("rejudges", "discard", rejudge_id, exit_code=3)
    run("rejudges", "cancel", rejudge_id, exit_code=3)
    run("rejudges", "pause", rejudge_id, exit_code=3)


def test_a_preview_is_discarded(service: Service, runner: Runner, run: Callable[..., str]) -> None:
    rejudge_id = preview(service, runner, run)
    told = json.loads(run("rejudges", "discard", rejudge_id, "--json"))
    assert told == {"rejudge_id": rejudge_id, "did": "discard"}
    go_on(service)
    assert service.view("a1")["verdict"] == "AC"
    run("rejudges", "apply", rejudge_id, exit_code=3)


def test_one_is_paused_resumed_and_cancelled(
    service: Service, runner: Runner, run: Callable[..., str]
) -> None:
    rejudge_id = str(json.loads(run("rejudge", "--problem", "1", "--json"))["rejudge_id"])
    go_on(service)
    assert run("rejudges", "pause", rejudge_id) == f"{rejudge_id}: paused\n"
    assert service.claim(runner) is None
    run("rejudges", "resume", rejudge_id)
    service.judge(runner, "a1", "WA")
    run("rejudges", "cancel", rejudge_id)
    go_on(service)
    assert service.claim(runner) is None
    (listed,) = json.loads(run("rejudges", "--json"))
    assert (listed["state"], listed["done"], listed["cancelled"]) == ("cancelled", 1, 1)


def test_many_items_are_read_page_by_page(
    service: Service, runner: Runner, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commands.rejudging.PAGE_MAX", 1)
    assert rejudged(service, run, "--until", f"{EPOCH + DAY:%Y-%m-%dT%H:%M:%SZ}") == [
        "a1",
        "a2",
        "b1",
        "b2",
    ]


# -- the queue -------------------------------------------------------------------------------


def test_the_queue_is_shown(service: Service, run: Callable[..., str]) -> None:
    nothing = {"last_1_min": 0.0, "last_5_min": 0.0, "last_15_min": 0.0}
    assert "none\n" in run("queue")
    service.user("ada")
    service.problem(1)
    for name in ("sn_1", "sn_2", "sn_3"):
        service.submit("ada", 1, name)
    service.claim(service.runner())
    service.clock.advance(7)
    assert json.loads(run("queue", "--json")) == {
        "depth": [
            {"state": "leased", "priority": 0, "count": 1},
            {"state": "pending", "priority": 0, "count": 2},
        ],
        "oldest_pending_age_s": 7.0,
        "longest_lease_s": 7.0,
        "held_problems": [],
        "landed_per_min": nothing,
        "unreadable": 0,
        "paused": None,
    }
    text = run("queue")
    assert "leased" in text
    assert "the oldest has waited for 7 s" in text
    assert "landed per minute: 0 (last 1 min), 0 (last 5 min), 0 (last 15 min)" in text


def test_the_queue_is_paused_and_resumed(service: Service, run: Callable[..., str]) -> None:
    why = "[red]cleaning[/"
    assert run("queue", "pause", "--why", why) == "paused\n"
    assert f"paused by the command line at 2040-01-01 12:00:00Z: {why}" in run("queue")
    assert json.loads(run("queue", "--json"))["paused"]["at"] == "2040-01-01T12:00:00.000Z"
    assert json.loads(run("queue", "resume", "--json")) == {"did": "resumed"}
    assert service.ok("GET", "/queue")["paused"] is None


def test_one_is_moved_to_the_front_and_a_rejudge_taken_back(
    service: Service, runner: Runner, run: Callable[..., str]
) -> None:
    run("rejudge", "a1", "b1")
    moved = json.loads(run("queue", "front", "b1", "--json"))
    assert moved["job_id"] == service.view_job("b1")["job_id"]
    service.judge(runner, "b1", "AC")
    assert run("queue", "cancel", "a1") == "a1: AC\n"
    assert service.claim(runner) is None


# -- exports ---------------------------------------------------------------------------------


def test_exports_are_what_the_api_sends(
    service: Service, runner: Runner, run: Callable[..., str]
) -> None:
    def sent(path: str) -> str:
        return service.call("GET", path).get_data().decode()

    def printed(*arguments: str) -> str:
        result = service.app.test_cli_runner().invoke(args=["export", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout_bytes.decode()

    assert printed("submissions") == sent("/submissions.csv")
    assert printed("submissions", "--bom").startswith("\ufeff")
    assert printed("submissions", "--json") == sent("/submissions.jsonl")
    one = printed("submissions", "--user", "ada", "--problem", "2", "--verdict", "WA")
    assert one == sent("/submissions.csv?username=ada&problem_id=2&verdict=WA")
    assert [row["submission_id"] for row in csv.DictReader(io.StringIO(one))] == ["a2"]
    assert printed("standings", "hw") == sent("/homeworks/hw/standings.csv")
    assert printed("standings", "hw", "--json") == sent("/homeworks/hw/standings.jsonl")
