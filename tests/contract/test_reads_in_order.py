"""What was written is read after it, whichever member answers: the sessions, as really sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import Context
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo import MongoClient

from mongo import rejudge_items
from mongo.embedded import EmbeddedMongo
from tests.contract.recorded import (
    COUNTED,
    READS,
    Document,
    Recorder,
    Sent,
    advance,
    judged,
    maintain,
    recorded,
    started,
)
from tests.factories import Runner, Service

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
