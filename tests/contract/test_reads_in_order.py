"""Which state is read, as is really sent: what a majority has, and after what was written.

The static half, where the newest state may be asked for at all, is `tests.unit.test_reads`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo import MongoClient
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from dispatch.store import LINE_ORDER, ORPHANS_ORDER
from mongo import check, engine, rejudge_items
from mongo.embedded import EmbeddedMongo
from tests.console.support import Operator
from tests.factories import DAY, EPOCH, ManualClock, Runner, Service
from tests.fixtures import build_app

READS = ("find", "aggregate", "count", "distinct")
COUNTED = ("submissions", "users", "student_status", "homeworks", "rejudge_items")
"""What a recompute goes by, and what becomes of a rejudge."""
LINES = (dict(LINE_ORDER), dict(ORPHANS_ORDER))
DATABASE = "read_in_order"

Document = dict[str, Any]

NEWEST: dict[str, Callable[[Document], bool]] = {
    # Who a runner is: decides about no lease and no result.
    "runners": lambda command: True,
    # A key or a session that was made a moment ago opens.
    "api_keys": lambda command: True,
    "console_sessions": lambda command: True,
    # A blob never changes, and whoever reads one was referred to it.
    "blobs.files": lambda command: "filename" not in command["filter"],
    "blobs.chunks": lambda command: True,
    # The line, where a claim looks for candidates: its write guards the very job.
    "jobs": lambda command: command.get("sort") in LINES or "pipeline" in command,
    # The code, and the test data, of a lease that has been looked at.
    "submissions": lambda command: command.get("projection") == {"code_blob": 1},
    "problems": lambda command: command.get("projection") == {"testdata": 1},
}


@dataclass
class Sent:
    """A command and, once there, what the server said to it."""

    name: str
    collection: str
    command: Document
    reply: Document | None = None

    @property
    def level(self) -> str | None:
        level: str | None = (self.command.get("readConcern") or {}).get("level")
        return level


class Recorder(CommandListener):
    """Keeps what was sent, in order."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self._by_id: dict[int, Sent] = {}

    def started(self, event: CommandStartedEvent) -> None:
        collection = str(event.command.get(event.command_name))
        sent = Sent(event.command_name, collection, dict(event.command))
        self._by_id[event.request_id] = sent
        self.sent.append(sent)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        self._by_id[event.request_id].reply = dict(event.reply)

    def failed(self, event: CommandFailedEvent) -> None:
        pass

    def of(self, act: Callable[[], object]) -> list[Sent]:
        """Return what `act` sends."""
        began = len(self.sent)
        act()
        return self.sent[began:]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def service(
    mongod: EmbeddedMongo, mongo_client: MongoClient[Document], recorder: Recorder
) -> Iterator[Service]:
    """Ada and bob, a problem, a homework; all that the service sends is kept."""
    kept, clock = dict(engine.CLIENT_OPTIONS), ManualClock()
    engine.CLIENT_OPTIONS["event_listeners"] = [recorder]
    try:
        app = build_app(mongod.uri_for(DATABASE), clock, job_retention_days=1)
        maintenance = app.extensions["judge_dispatch"].maintain
        maintenance._next_tidy = datetime.max.replace(tzinfo=UTC)
        made = Service(app=app, clock=clock, database=mongo_client[DATABASE])
        for name in ("ada", "bob"):
            made.user(name)
        made.problem(1)
        made.homework("hw", [1], ["ada", "bob"], end=EPOCH - timedelta(hours=1))
        yield made
    finally:
        engine.disconnect()
        engine.CLIENT_OPTIONS.clear()
        engine.CLIENT_OPTIONS.update(kept)
        mongo_client.drop_database(DATABASE)


@pytest.fixture
def runner(service: Service) -> Runner:
    return service.runner()


def judged(service: Service, runner: Runner, submission_id: str, verdict: str) -> None:
    service.submit("ada", 1, submission_id)
    service.judge(runner, submission_id, verdict)


def started(service: Service, *, mode: str = "replace", steps: int = 3) -> str:
    judge: Any = service.services.judge
    asked = judge.start_rejudge(filter={"problem_id": 1}, mode=mode, by="the test")
    advance(service, steps)
    return str(asked["rejudge_id"])


def advance(service: Service, steps: int = 1) -> None:
    maintenance: Any = service.services.maintain
    for _ in range(steps):
        maintenance.advance_rejudges()


def maintain(service: Service, step: str) -> None:
    maintenance: Any = service.services.maintain
    maintenance._each([getattr(maintenance, step)])


# -- in order ------------------------------------------------------------------------------


def check_in_order(sent: list[Sent], name: str, collection: str) -> None:
    """Check that what is read after the last such write is read after it, whoever answers."""
    places = [
        place for place, one in enumerate(sent) if (one.name, one.collection) == (name, collection)
    ]
    write = sent[places[-1]]
    assert write.reply is not None
    read = [
        one
        for one in sent[places[-1] + 1 :]
        if one.name in READS and one.collection in COUNTED and one.level != "local"
    ]
    assert read, "nothing is read after it"
    for one in read:
        assert one.level == "majority", one
        assert one.command["readConcern"]["afterClusterTime"] >= write.reply["operationTime"], one
        assert one.command["lsid"] == write.command["lsid"], one


def test_i6_a_landing_counts_after_its_result(
    service: Service, runner: Runner, recorder: Recorder
) -> None:
    service.submit("ada", 1, "s1")
    job_id = service.claim(runner)["job_id"]
    sent = recorder.of(lambda: service.complete(runner, job_id, "AC"))
    check_in_order(sent, "findAndModify", "submissions")


def test_i6_a_judge_error_counts_after_its_result(
    service: Service, runner: Runner, recorder: Recorder
) -> None:
    service.submit("ada", 1, "s1")
    for _ in range(3):
        service.claim(runner)
        service.clock.advance(120)
    sent = recorder.of(lambda: maintain(service, "_land_judge_errors"))
    check_in_order(sent, "findAndModify", "submissions")


def test_i6_a_cancelled_rejudge_counts_what_it_brought_back(
    service: Service, runner: Runner, recorder: Recorder
) -> None:
    judge = service.services.judge
    judged(service, runner, "s1", "AC")
    judge.rejudge("s1")
    sent = recorder.of(lambda: judge.cancel_submission("s1"))
    # The job's end comes first; what the submission says is read after that, too.
    check_in_order(sent, "findAndModify", "jobs")
    check_in_order(sent, "update", "submissions")


def test_i6_a_sweep_counts_what_it_brought_back(
    service: Service, runner: Runner, recorder: Recorder
) -> None:
    judged(service, runner, "s1", "AC")
    service.services.judge.rejudge("s1")
    service.ok("POST", "/submissions/s1/cancel")
    service.database["submissions"].update_one({"_id": "s1"}, {"$set": {"fence": 3, "status": -1}})
    service.database["jobs"].update_one({"_id": "s1"}, {"$set": {"restore_due": 5}})
    sent = recorder.of(lambda: maintain(service, "_bring_back_cancelled"))
    check_in_order(sent, "update", "submissions")


def test_i6_a_preview_that_is_applied_counts(
    service: Service, runner: Runner, recorder: Recorder
) -> None:
    judged(service, runner, "s1", "AC")
    rejudge_id = started(service, mode="preview")
    service.judge(runner, "s1", "WA")
    advance(service)
    service.services.judge.apply_rejudge(rejudge_id)
    sent = recorder.of(lambda: advance(service))
    check_in_order(sent, "findAndModify", "submissions")


@pytest.mark.parametrize(("homework_id", "write"), [("hw", "update"), ("new", "insert")])
def test_i6_a_homework_is_computed_by_what_was_saved(
    service: Service, runner: Runner, recorder: Recorder, homework_id: str, write: str
) -> None:
    judged(service, runner, "s1", "AC")
    sent = recorder.of(lambda: service.homework(homework_id, [1], ["ada"]))
    # The last write of all clears the mark; what counts is what came before that.
    saved = next(
        place
        for place, one in enumerate(sent)
        if (one.name, one.collection) == (write, "homeworks")
    )
    cleared = max(place for place, one in enumerate(sent) if one.collection == "homeworks")
    check_in_order(sent[saved:cleared], write, "homeworks")


def test_i6_a_sweep_computes_a_homework_by_what_it_is(
    service: Service, runner: Runner, recorder: Recorder
) -> None:
    judged(service, runner, "s1", "AC")
    service.database["homeworks"].update_one({"_id": "hw"}, {"$set": {"recompute_due": True}})
    sent = recorder.of(lambda: maintain(service, "_finish_homeworks"))
    cleared = max(place for place, one in enumerate(sent) if one.collection == "homeworks")
    check_in_order(sent[:cleared], "update", "homeworks")


def test_i8_what_is_queued_between_two_counts_is_counted(
    service: Service, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that waited for a new primary has lost its lease, and another process goes on."""
    judged(service, runner, "s1", "AC")
    rejudge_id = started(service, steps=2)
    count = rejudge_items.count

    def counted(*args: Any, **limits: Any) -> int:
        monkeypatch.setattr(rejudge_items, "count", count)
        found = count(*args, **limits)
        Context().run(go_on)  # not in this step's session
        return found

    def go_on() -> None:
        service.database["rejudges"].update_one({"_id": rejudge_id}, {"$set": {"working": False}})
        advance(service)

    monkeypatch.setattr(rejudge_items, "count", counted)
    advance(service)
    assert service.database["rejudge_items"].find_one({"state": "queued"}) is not None
    assert service.services.judge.view_rejudge(rejudge_id)["state"] == "running"


# -- what is told --------------------------------------------------------------------------


def test_i4_files_are_refused_only_with_proof(
    service: Service, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.submit("ada", 1, "s1")
    payload = service.claim(runner)
    # As on a primary just elected, which does not know yet what a majority has.
    monkeypatch.setattr(service.services.queue.jobs, "by_job_id", lambda job_id: None)
    for url in (payload["code_url"], payload["testdata_url"]):
        assert service.call("GET", urlsplit(url).path, key=None).status_code == 200


# -- which state ---------------------------------------------------------------------------


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
