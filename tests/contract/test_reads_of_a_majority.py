"""What is read is what a majority has, as is really sent, but where the newest is listed.

The static half, where the newest state may be asked for at all, is `tests.unit.test_reads`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from pymongo import MongoClient

from dispatch.store import LINE_ORDER, ORPHANS_ORDER
from mongo import check
from mongo.embedded import EmbeddedMongo
from tests.console.support import Operator
from tests.contract.recorded import (
    COUNTED,
    READS,
    Document,
    Recorder,
    advance,
    judged,
    recorded,
    started,
)
from tests.factories import DAY, Runner, Service

LINES = (dict(LINE_ORDER), dict(ORPHANS_ORDER))

NEWEST: dict[str, Callable[[Document], bool]] = {
    # Who a runner is: decides about no lease and no result.
    "runners": lambda command: True,
    # A key or a session that was made a moment ago opens.
    "api_keys": lambda command: True,
    "console_sessions": lambda command: True,
    # A blob never changes, and whoever reads one was referred to it.
    "blobs.files": lambda command: "filename" not in command["filter"],
    "blobs.chunks": lambda command: True,
    # A check is of one runner, and about nothing but that runner.
    "runner_checks": lambda command: True,
    # Points of a chart.
    "queue_samples": lambda command: True,
    # The line, where a claim looks for candidates: its write guards the very job.
    "jobs": lambda command: command.get("sort") in LINES or "pipeline" in command,
    # The code, and the test data, of a lease that has been looked at.
    "submissions": lambda command: command.get("projection") == {"code_blob": 1},
    "problems": lambda command: command.get("projection") == {"testdata": 1},
}


Recorded = tuple[Service, Recorder]


@pytest.fixture
def kept(mongod: EmbeddedMongo, mongo_client: MongoClient[Document]) -> Iterator[Recorded]:
    with recorded(mongod, mongo_client) as made:
        yield made


@pytest.fixture
def service(kept: Recorded) -> Service:
    return kept[0]


@pytest.fixture
def recorder(kept: Recorded) -> Recorder:
    return kept[1]


@pytest.fixture
def runner(service: Service) -> Runner:
    return service.runner()


def test_what_a_majority_has_is_read_but_where_it_is_listed(
    service: Service, runner: Runner, recorder: Recorder, blobs_apart: None
) -> None:
    a_busy_day(service, runner)
    read = [one for one in recorder.sent if one.name in READS]
    assert {one.collection for one in read} >= {*COUNTED, "jobs", "rejudges", "dispatch_control"}
    wrong = [
        f"{one.level}: {one.name} {one.collection} {one.command.get('filter')}"
        for one in read
        if one.level != "majority"
        and not (one.collection in NEWEST and NEWEST[one.collection](one.command))
    ]
    assert wrong == []
    assert {one.collection for one in read if one.level == "local"} == set(NEWEST), (
        "what is listed is read so"
    )


def a_busy_day(service: Service, runner: Runner) -> None:
    """Nearly all that the service can be asked for."""
    key = service.keys["ada"]
    service.submit_over_http(key, problem_id=1, language=2, submission_id="s1")
    assert service.submit_over_http(key, problem_id=1, language=2, submission_id="s1").status_code
    payload = service.claim(runner)
    for url in (payload["code_url"], payload["testdata_url"]):
        assert service.call("GET", urlsplit(url).path, key=None).status_code == 200
    beat = {"active_job_ids": [payload["job_id"], "jb_gone"], "report_lost": True}
    service.ok("POST", runner.path("heartbeat"), key=runner.token, json=beat)
    service.complete(runner, payload["job_id"], "AC")
    assert service.complete(runner, "jb_gone", "AC").status_code == 404
    judged(service, runner, "s2", "WA")
    service.submit("bob", 1, "s3")
    given = service.claim(runner)["job_id"]
    path = runner.path(f"jobs/{given}/abort")
    service.ok("PUT", path, key=runner.token, json={"reason": "prep_failed"})
    service.ok("POST", "/submissions/s3/front")
    service.ok("POST", "/submissions/s1/rejudge")
    service.ok("POST", "/submissions/s1/cancel")
    service.ok("POST", "/queue/pause", json={"why": "the test"})
    service.ok("POST", "/queue/resume")
    service.clock.advance(60)
    service.judge(runner, "s3", "TLE")
    rejudges(service, runner)
    look_around(service)
    service.clock.at += 3 * DAY
    for _ in range(3):
        service.sweep()
    check.differences(check.scope(problem_id=1), advance=lambda: None)


def rejudges(service: Service, runner: Runner) -> None:
    """One that counts, one that is taken back, previews that are applied and dropped."""
    started(service)
    for _ in range(3):
        payload = service.claim(runner)
        service.complete(runner, payload["job_id"], "AC")
    advance(service)
    judge = service.services.judge
    judge.cancel_rejudge(started(service))
    advance(service, 2)
    for decide in (judge.apply_rejudge, judge.discard_rejudge):
        rejudge_id = started(service, mode="preview")
        for _ in range(3):
            payload = service.claim(runner)
            service.complete(runner, payload["job_id"], "WA")
        advance(service)
        for path in ("", "/items", "/students"):
            service.ok("GET", f"/rejudges/{rejudge_id}{path}")
        decide(rejudge_id)
        advance(service, 2)
    service.homework("hw", [1], ["ada"], penalty="score = score / 2")


def look_around(service: Service) -> None:
    """Every page, list and file for people."""
    for path in (
        "/users/ada",
        "/problems/1",
        "/homeworks/hw",
        "/submissions",
        "/submissions/s1",
        "/submissions/s1/code",
        "/runners",
        "/queue",
        "/rejudges",
        "/metrics",
        "/readyz",
    ):
        assert service.call("GET", path).status_code == 200, path
    for path in ("/submissions", "/homeworks/hw/standings"):
        for kind in ("csv", "jsonl"):
            assert service.call("GET", f"{path}.{kind}").data.count(b"\n") >= 1
    operator = Operator(service)
    operator.sign_in()
    for page in (
        "/queue",
        "/runners",
        "/rejudges",
        "/submissions",
        "/submissions/s1",
        "/submissions/s1/cases/0/0",
        "/submissions/s1/code",
        "/judge-errors",
        "/homeworks",
        "/homeworks/hw",
    ):
        assert operator.get(f"/console{page}").status_code == 200, page
