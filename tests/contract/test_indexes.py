"""The queue's queries use their indexes at 10,000 jobs: what is run is caught, then explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.monitoring import CommandListener, CommandStartedEvent

from dispatch import books, repair
from dispatch.concerns import PROOFS
from dispatch.glance import glance
from dispatch.lease import LeaseRules
from dispatch.queue import Queue, open_queue
from mongo.embedded import EmbeddedMongo
from tests.stateful.bench import HANDED_OUT

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DATABASE = "queue_of_ten_thousand"
DONE, LEASED, PENDING, ORPHANS, EXHAUSTED = 8_000, 1_000, 980, 10, 10
LIMIT = 32
GIVEN_UP = 2
WAITS_FROM = NOW + timedelta(seconds=DONE + LEASED + 500)
"""When the middle of the line came in."""
PLANNING_KEYS = 40
"""Seeks, and a first work of each of the index ranges that are merged."""


class Listener(CommandListener):
    """Keeps the commands that are sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in ("find", "update", "findAndModify", "aggregate"):
            self.sent.append(dict(event.command))

    def succeeded(self, event: Any) -> None: ...

    def failed(self, event: Any) -> None: ...


@dataclass
class Work:
    """What the server did for a command."""

    stages: set[str]
    keys: int
    documents: int


@dataclass
class TenThousand:
    """The full queue, and what its commands cost."""

    queue: Queue
    database: Database[dict[str, Any]]
    listener: Listener

    def work(self, call: Callable[[], Any]) -> Work:
        """Make a call that sends one command, and have the server explain it."""
        self.listener.sent.clear()
        call()
        # The write that proves a read is one document by its id.
        (command,) = [sent for sent in self.listener.sent if sent.get("update") != PROOFS]
        for name in ("lsid", "$clusterTime", "$db", "txnNumber", "writeConcern", "readConcern"):
            command.pop(name, None)
        explained = self.database.command("explain", command, verbosity="executionStats")
        stats = explained["executionStats"]
        stages: set[str] = set()
        _collect(stats["executionStages"], stages)
        return Work(stages, stats["totalKeysExamined"], stats["totalDocsExamined"])


def _collect(stage: dict[str, Any], stages: set[str]) -> None:
    stages.add(stage["stage"])
    inner = [stage.get("inputStage"), *stage.get("inputStages", [])]
    for below in inner:
        if below is not None:
            _collect(below, stages)


def _jobs() -> Iterator[dict[str, Any]]:
    """Done jobs, leases under way, a line, orphans, and orphans with no attempt left."""
    number = 0
    for count, fields in (
        (DONE, {"state": "done", "lease_deadline": -1, "outcome": "verdict"}),
        (LEASED, {"state": "leased", "lease_deadline": 1, "attempts": 1}),
        (PENDING, {"state": "pending"}),
        (ORPHANS, {"state": "leased", "lease_deadline": -1, "attempts": 1}),
        (EXHAUSTED, {"state": "landing", "lease_deadline": -1, "attempts": 3}),
    ):
        for _ in range(count):
            number += 1
            made = {
                "_id": f"s{number}",
                "job_id": f"jb_{number}",
                "problem_id": number % 7,
                "language": number % 3,
                "priority": -10 * (number % 2),
                "queued_at": NOW + timedelta(seconds=number),
                "fence": 1,
                "attempts": 0,
                **fields,
            }
            if "lease_deadline" in fields:
                offset = timedelta(seconds=number) * fields["lease_deadline"]
                made["lease_deadline"] = NOW + offset
            if fields["state"] == "done":
                made["done_at"] = NOW - timedelta(seconds=number)
            if fields["state"] != "pending":
                made["leased_by"] = f"rn_{number % 50}"
                made["lease_token"] = f"t{number}"
                made["claim_id"] = f"c{number}"
            if number % 100 == 0:
                made["replaced_ids"] = [f"jb_old{number}"]
                made["mark_due"] = 1
            if number > 10_000 - GIVEN_UP:
                made["given_up_at"] = NOW
            yield made


@pytest.fixture(scope="module")
def full(mongod: EmbeddedMongo) -> Iterator[TenThousand]:
    listener = Listener()
    uri = mongod.uri_for(DATABASE)
    with MongoClient(uri, tz_aware=True, event_listeners=[listener]) as client:
        database = client[DATABASE]
        queue = open_queue(database, rules=LeaseRules())
        queue.create_indexes()
        books.create_indexes(queue)
        database["jobs"].insert_many(_jobs())
        assert database["jobs"].count_documents({}) == 10_000
        yield TenThousand(queue, database, listener)
        client.drop_database(DATABASE)


READS: dict[str, tuple[Callable[[Queue], Any], int]] = {
    # The call, and how many documents it may look at.
    "claim: the line": (lambda q: q.jobs.pending(NOW, [0, 1, 2], [], LIMIT), LIMIT + 3),
    "claim: one language": (lambda q: q.jobs.pending(NOW, [1], [], LIMIT), LIMIT),
    "the best priority": (lambda q: q.jobs.highest_priority([0, 1, 2], "s17"), 5),
    "the longest waiting": (lambda q: q.jobs.oldest_pending(), 1),
    "restores due": (lambda q: q.jobs.restores_due(LIMIT), 0),
    "reclaim": (lambda q: q.jobs.orphans(NOW, [0, 1, 2], [], LIMIT), ORPHANS + EXHAUSTED),
    "exhaust": (lambda q: q.jobs.exhausted(NOW, LIMIT), ORPHANS + EXHAUSTED),
    "heartbeat: renew": (lambda q: q.jobs.renew("rn_7", ["jb_8007", "jb_8057"], NOW), 25),
    "heartbeat: lost": (lambda q: q.jobs.held_by("rn_7", ["jb_8007", "jb_8057"]), 25),
    "by job id": (lambda q: q.jobs.by_job_id("jb_9000"), 1),
    "by claim id": (lambda q: q.jobs.by_claim_id("rn_7", "c8007"), 1),
    "by an unknown claim id": (lambda q: q.jobs.by_claim_id("rn_7", "c1"), 0),
    "confirmed": (lambda q: q.jobs.confirmed("jb_9000"), 1),
    "marks due": (lambda q: q.jobs.marks_due(LIMIT), LIMIT),
    "of a submission": (lambda q: q.jobs.get("s17"), 1),
    "compared": (lambda q: repair.compare(q, ["s1", "s2", "no"], {}, now=lambda: NOW), 3),
    "open: pending": (lambda q: repair.open_page(q, (0, None), LIMIT), LIMIT),
    "open: further": (lambda q: repair.open_page(q, (0, WAITS_FROM), LIMIT), LIMIT),
    "open: leased": (lambda q: repair.open_page(q, (1, None), LIMIT), LIMIT),
    "open: leased, further": (lambda q: repair.open_page(q, (1, NOW), LIMIT), LIMIT),
    "open: landing": (lambda q: repair.open_page(q, (2, None), LIMIT), EXHAUSTED),
    "given up": (lambda q: repair.given_up(q, LIMIT), GIVEN_UP),
    "last judged": (lambda q: q.jobs.last_judged_at("rn_7", NOW), 10),
}


def test_whether_an_id_was_replaced_is_looked_up_twice_on_an_index(full: TenThousand) -> None:
    """By the ids of jobs, and then by those that they replaced."""
    full.listener.sent.clear()
    assert full.queue.jobs.confirmed("jb_old100") == (None, True)
    by_id, by_replaced = [sent["filter"] for sent in full.listener.sent if "filter" in sent]
    for filter_ in (by_id, by_replaced):
        asked = full.queue.jobs.jobs.find(filter_, limit=1)
        work = full.work(lambda asked=asked: list(asked))
        assert "COLLSCAN" not in work.stages
        assert work.keys <= 1


@pytest.mark.parametrize("name", READS)
def test_a_read_seeks(full: TenThousand, name: str) -> None:
    call, documents_max = READS[name]
    work = full.work(lambda: call(full.queue))
    assert "COLLSCAN" not in work.stages
    assert "SORT" not in work.stages, "sorted in memory"
    assert work.documents <= documents_max
    assert work.keys <= documents_max + PLANNING_KEYS


def test_the_claims_write_looks_at_one_document(full: TenThousand) -> None:
    (job,) = full.queue.jobs.pending(NOW, [0], [], 1)
    work = full.work(
        lambda: full.queue.jobs.claim(
            job,
            runner_id="rn_x",
            lease_token="t",
            claim_id=None,
            handed_out=HANDED_OUT,
            now=NOW,
        )
    )
    assert "COLLSCAN" not in work.stages
    assert work.documents <= 1


def test_the_place_in_line_is_counted_on_the_index(full: TenThousand) -> None:
    job = full.queue.jobs.pending(NOW, [0, 1, 2], [], 10)[9]
    full.listener.sent.clear()
    assert full.queue.jobs.ahead_of(job, 1_000) == 9
    for command in full.listener.sent:
        explained = full.database.command(
            "explain",
            {"aggregate": "jobs", "pipeline": command["pipeline"], "cursor": {}},
            verbosity="executionStats",
        )
        assert "COLLSCAN" not in str(explained)
        stats = explained.get("executionStats")
        stats = stats or explained["stages"][0]["$cursor"]["executionStats"]
        assert stats["totalKeysExamined"] <= 10 + PLANNING_KEYS
        assert stats["totalDocsExamined"] == 0


def test_a_glance_seeks_and_reads_only_the_heads(full: TenThousand) -> None:
    full.listener.sent.clear()
    seen = glance(
        full.queue, runner_id="rn_7", claim_id="c8007", languages=(0, 1, 2), now=NOW, limit=LIMIT
    )
    assert (len(seen.pending), len(seen.orphans)) == (LIMIT, ORPHANS)
    assert seen.taken is not None
    (command,) = full.listener.sent
    for pipeline in _parts(command["pipeline"]):
        explained = full.database.command(
            "explain",
            {"aggregate": "jobs", "pipeline": pipeline, "cursor": {}},
            verbosity="executionStats",
        )
        cursor = explained if "queryPlanner" in explained else explained["stages"][0]["$cursor"]
        plan, stats = str(cursor["queryPlanner"]["winningPlan"]), cursor["executionStats"]
        assert "COLLSCAN" not in plan
        assert "'stage': 'SORT'" not in plan, "sorted in memory"
        assert not any("$sort" in stage for stage in explained.get("stages", ()))
        assert stats["totalDocsExamined"] <= LIMIT + 3
        assert stats["totalKeysExamined"] <= LIMIT + PLANNING_KEYS


def _parts(pipeline: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """What is asked of the jobs, one by one."""
    yield [stage for stage in pipeline if "$unionWith" not in stage]
    for stage in pipeline:
        union = stage.get("$unionWith")
        if union is not None and union["coll"] == "jobs":
            yield union["pipeline"]


def test_the_depth_of_the_queue_does_not_read_what_is_done(full: TenThousand) -> None:
    full.listener.sent.clear()
    depth = full.queue.jobs.depth()
    assert sum(entry["count"] for entry in depth) == 10_000 - DONE
    (command,) = full.listener.sent
    pipeline = command["pipeline"]
    explained = full.database.command(
        "explain",
        {"aggregate": "jobs", "pipeline": pipeline, "cursor": {}},
        verbosity="executionStats",
    )
    assert "COLLSCAN" not in str(explained)


def test_the_throughput_is_counted_in_the_index_alone(full: TenThousand) -> None:
    full.listener.sent.clear()
    assert books.done_since(full.queue, NOW - timedelta(seconds=60)) == 59
    (command,) = full.listener.sent
    explained = full.database.command(
        "explain",
        {"aggregate": "jobs", "pipeline": command["pipeline"], "cursor": {}},
        verbosity="executionStats",
    )
    stats = _execution(explained)
    assert stats["totalDocsExamined"] == 0
    assert stats["totalKeysExamined"] <= 59 + PLANNING_KEYS


def _execution(explained: dict[str, Any]) -> dict[str, Any]:
    if "executionStats" in explained:
        whole: dict[str, Any] = explained["executionStats"]
        return whole
    first: dict[str, Any] = explained["stages"][0]["$cursor"]["executionStats"]
    return first


def test_those_given_up_are_counted_in_their_index(full: TenThousand) -> None:
    full.listener.sent.clear()
    assert repair.count_given_up(full.queue) == GIVEN_UP
    (command,) = full.listener.sent
    explained = full.database.command(
        "explain",
        {"aggregate": "jobs", "pipeline": command["pipeline"], "cursor": {}},
        verbosity="executionStats",
    )
    assert "COLLSCAN" not in str(explained)
    assert _execution(explained)["totalDocsExamined"] <= GIVEN_UP


def test_every_index_is_there_once_however_often_made(full: TenThousand) -> None:
    before = full.database["jobs"].index_information()
    full.queue.create_indexes()
    assert full.database["jobs"].index_information() == before
    assert before["job_id"]["unique"]
    assert before["claim_id"]["unique"]
