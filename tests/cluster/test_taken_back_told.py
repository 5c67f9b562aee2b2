"""Nobody is told for good what a failover takes back, nor what a primary does not know yet.

Either the primary that the service asks is cut off with a phantom, or it is cut off and another
has been elected already and gone on (see `cut_off`). Whoever cannot be told the truth is told to
come again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from mongoengine.errors import NotUniqueError
from pymongo.database import Database
from pymongo.errors import PyMongoError

from api.links import Link
from dispatch import job as verbs
from dispatch.concerns import DURABLE, SOFT, proven
from mongo import engine
from mongo.bulk import upsert_each
from tests.cluster.cut_off import (
    BLOCKED_S,
    Document,
    Drop,
    Write,
    choose_heir,
    drop,
    elect,
    make_patient,
    queue_of,
)
from tests.cluster.replica_set import ReplicaSet
from tests.factories import EPOCH, Service, handed_out

Ask = Callable[[], Any]
FailOver = Callable[[], None]
Served = Callable[[Drop | None], Service]

RULE = pytest.mark.parametrize("rule_holds", [True, False], ids=["holds", "dropped"])


@pytest.fixture
def served(
    request: pytest.FixtureRequest, replica_set: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> Served:
    """Make the service, with a rule dropped or without."""

    def make(dropped: Drop | None) -> Service:
        make_patient(replica_set)
        if dropped is not None:
            drop(dropped, monkeypatch)
        service: Service = request.getfixturevalue("cluster_service")
        return service

    return make


class Asked:
    """What was asked at once, each by a thread of its own."""

    def __init__(self, asks: Mapping[str, Ask]) -> None:
        self._pool = ThreadPoolExecutor(len(asks))
        self._futures: dict[str, Future[Any]] = {
            name: self._pool.submit(ask) for name, ask in asks.items()
        }

    def answered(self) -> set[str]:
        """What has been answered within a moment."""
        wait(self._futures.values(), BLOCKED_S)
        return {name for name, future in self._futures.items() if future.done()}

    def outcomes(self) -> dict[str, Any]:
        """Every answer's status, or what was raised, as soon as all are there."""
        with self._pool:
            return {name: _outcome(future) for name, future in self._futures.items()}


def _outcome(future: Future[Any]) -> Any:
    error = future.exception()
    return error if error is not None else getattr(future.result(), "status_code", future.result())


@contextmanager
def phantom(
    replica_set: ReplicaSet, service: Service, write: Write
) -> Iterator[Callable[[], None]]:
    """Cut the primary off with a phantom; yield what has another elected and mends all."""
    old = replica_set.await_healthy()
    heir = choose_heir(replica_set, old)
    replica_set.isolate(old, clients_too=False)
    with old.client(limit_s=10) as client:
        write(client.get_database(service.database.name, write_concern=SOFT))

    def fail_over() -> None:
        elect(heir)
        replica_set.mend()

    yield fail_over
    replica_set.await_healthy()


@contextmanager
def overtaken(replica_set: ReplicaSet, service: Service, write: Write) -> Iterator[None]:
    """Have a newer primary go on by itself, while the service asks the old one."""
    old = replica_set.await_healthy()
    heir = choose_heir(replica_set, old)
    replica_set.isolate(*(member for member in replica_set.members if member is not old))
    elect(heir)
    with heir.client(limit_s=10) as client:
        write(client.get_database(service.database.name, write_concern=DURABLE))
    yield
    replica_set.mend()
    replica_set.await_healthy()


def path_of(url: str) -> str:
    return urlsplit(url).path


# -- runners ---------------------------------------------------------------------------------


@RULE
def test_i4_no_runner_drops_a_result_because_of_what_is_taken_back(
    replica_set: ReplicaSet, served: Served, rule_holds: bool
) -> None:
    service = served(None if rule_holds else Drop.READS)
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    names = ("rejudged", "reclaimed", "done", "taken", "lost")
    given = {}
    for name in names:
        service.submit("ada", 1, name)
        given[name] = service.claim(runner)
        assert given[name]["submission_id"] == name

    def write(database: Database[Document]) -> None:
        verbs.rejudge_job(
            queue_of(database),
            submission_id="rejudged",
            problem_id=1,
            language=2,
            submission_fence=0,
            now=lambda: EPOCH,
        )
        by_another = {"leased_by": "rn_other", "lease_token": "of another"}
        database["jobs"].update_many(
            {"_id": {"$in": ["reclaimed", "taken", "lost"]}},
            {"$set": by_another, "$inc": {"fence": 1}},
        )
        done = {"state": "done", "outcome": "verdict"}
        database["jobs"].update_one({"_id": "done"}, {"$set": done})

    def complete(name: str) -> Ask:
        return lambda: service.complete(runner, given[name]["job_id"], "AC", may_fail=True)

    def ask(method: str, path: str, key: str | None = runner.token, **sent: Any) -> Ask:
        return lambda: service.call(method, path, key=key, may_fail=True, **sent)

    aborted = runner.path(f"jobs/{given['taken']['job_id']}/abort")
    beat = {"active_job_ids": [given["lost"]["job_id"]], "report_lost": True}
    asks = {
        "complete rejudged": complete("rejudged"),
        "complete reclaimed": complete("reclaimed"),
        "complete done": complete("done"),
        "abort": ask("PUT", aborted, json={"reason": "drain"}),
        "beat": ask("POST", runner.path("heartbeat"), json=beat),
        "code": ask("GET", path_of(given["lost"]["code_url"]), None),
        "testdata": ask("GET", path_of(given["lost"]["testdata_url"]), None),
    }
    with phantom(replica_set, service, write) as fail_over:
        asked = Asked(asks)
        asked.answered()
        fail_over()
        told = asked.outcomes()
    landed = ("rejudged", "reclaimed", "done")
    if not rule_holds:
        assert told["complete reclaimed"] == told["abort"] == 409
        assert told["code"] == told["testdata"] == 403
        assert told["complete rejudged"] == told["complete done"] == 204
        assert {service.view(name)["verdict"] for name in landed} == {"PENDING"}
        return
    assert set(told.values()) <= {200, 202, 204, 503}, told
    for name, status in told.items():
        if status == 503:  # as a runner does
            told[name] = asks[name]().status_code
    assert set(told.values()) <= {200, 202, 204}, told
    assert {service.view(name)["verdict"] for name in landed} == {"AC"}
    assert service.view_job("taken")["state"] == "pending"
    assert asks["beat"]().get_json()["lost_job_ids"] == []


@RULE
def test_i4_no_runner_is_told_that_its_lease_is_over_by_one_who_knows_too_little(
    replica_set: ReplicaSet, served: Served, rule_holds: bool
) -> None:
    service = served(None if rule_holds else Drop.PROOF)
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    names = ("landed", "aborted", "kept")
    for name in names:
        service.submit("ada", 1, name)
    job_ids = {name: service.view_job(name)["job_id"] for name in names}

    def write(database: Database[Document]) -> None:
        queue = queue_of(database)
        queue.jobs.jobs = queue.jobs.jobs.with_options(write_concern=DURABLE)
        for name in names:
            job = queue.jobs.get(name)
            assert job is not None
            queue.jobs.claim(
                job,
                runner_id=runner.runner_id,
                lease_token="of the newer",
                claim_id=None,
                handed_out=handed_out((100, 1), sha256=sha256),
                now=EPOCH,
            )

    sha256 = service.services.judge.view_problem(1)["testdata_sha256"]
    links = {
        kind: service.services.links.sign(
            Link(kind=kind, runner_id=runner.runner_id, job_id=job_ids["kept"], object=object_)
        )
        for kind, object_ in (("code", "kept"), ("testdata", sha256))
    }

    def ask(method: str, path: str, key: str | None = runner.token, **sent: Any) -> Ask:
        return lambda: service.call(method, path, key=key, may_fail=True, **sent)

    aborted = runner.path(f"jobs/{job_ids['aborted']}/abort")
    beat = {"active_job_ids": [job_ids["kept"]], "report_lost": True}
    asks = {
        "complete": lambda: service.complete(runner, job_ids["landed"], "AC", may_fail=True),
        "abort": ask("PUT", aborted, json={"reason": "drain"}),
        "beat": ask("POST", runner.path("heartbeat"), json=beat),
        "code": ask("GET", f"/files/code/{links['code']}", None),
        "testdata": ask("GET", f"/files/testdata/{links['testdata']}", None),
    }
    with overtaken(replica_set, service, write):
        told = Asked(asks).outcomes()
    over = {"complete": 409, "abort": 409, "beat": 200, "code": 403, "testdata": 403}
    assert told == (dict.fromkeys(asks, 503) if rule_holds else over)
    if rule_holds:
        resent = {name: ask().status_code for name, ask in asks.items()}
        assert resent == {"complete": 204, "abort": 202, "beat": 200, "code": 200, "testdata": 200}
        assert asks["beat"]().get_json()["lost_job_ids"] == []
        assert service.view("landed")["verdict"] == "AC"


# -- clients ---------------------------------------------------------------------------------


@RULE
def test_i7_no_client_is_told_what_is_taken_back(
    replica_set: ReplicaSet, served: Served, rule_holds: bool
) -> None:
    service = served(None if rule_holds else Drop.READS)
    key = service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "s1")

    def write(database: Database[Document]) -> None:
        result = {"status": 0, "score": 100, "tasks": [], "fence": 3, "job_id": "jb_phantom"}
        kept: Any = database["submissions"].find_one({"_id": "s1"})
        database["submissions"].update_one({"_id": "s1"}, {"$set": {"status": 0, "result": result}})
        database["submissions"].insert_one({**kept, "_id": "s2", "job_id": "jb_phantom"})

    def submit() -> Any:
        return service.submit_over_http(
            key, problem_id=1, language=2, submission_id="s2", may_fail=True
        )

    with phantom(replica_set, service, write) as fail_over:
        views = {name: service.call("GET", f"/submissions/{name}") for name in ("s1", "s2")}
        asked = Asked({"submit": submit})
        asked.answered()
        fail_over()
        told = asked.outcomes()["submit"]
    seen = (views["s1"].get_json()["verdict"], views["s2"].status_code, told)
    assert seen == (("PENDING", 404, 503) if rule_holds else ("AC", 200, 409))
    assert submit().status_code == 201


def test_no_admin_is_told_that_a_user_is_there_who_is_taken_back(
    replica_set: ReplicaSet, served: Served
) -> None:
    service = served(None)
    service.user("ada")

    def write(database: Database[Document]) -> None:
        database["users"].insert_one({"_id": "zoe"})

    def put() -> Any:
        return service.call("PUT", "/users/zoe", json={}, may_fail=True)

    with phantom(replica_set, service, write) as fail_over:
        asked = Asked({"put": put})
        asked.answered()
        fail_over()
        told = asked.outcomes()["put"]
    assert told in (201, 503)
    put()
    assert service.call("GET", "/users/zoe").status_code == 200


# -- what all of it rests on -----------------------------------------------------------------


def test_whether_a_guard_holds_is_told_only_when_a_majority_has_what_it_saw(
    replica_set: ReplicaSet, served: Served
) -> None:
    service = served(None)
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "s1")
    jobs = service.services.queue.jobs.jobs
    change = {"$set": {"touched": True}}

    def write(database: Database[Document]) -> None:
        for name in ("submissions", "jobs"):
            database[name].update_many({}, {"$inc": {"fence": 1}})
        database["student_status"].insert_one({"_id": "hw/ada", "version": 1})
        database["users"].insert_one({"_id": "zoe"})

    def lost() -> list[int]:
        guarded = ({"_id": "hw/ada", "version": 7}, change)
        return upsert_each(engine.student_statuses(), [guarded])

    asks: dict[str, Ask] = {
        "find_one_and_update": lambda: engine.submissions().find_one_and_update(
            {"_id": "s1", "fence": 0}, change
        ),
        "update_one": lambda: engine.submissions().update_one({"_id": "s1", "fence": 0}, change),
        "of a job": lambda: jobs.find_one_and_update({"_id": "s1", "fence": 1}, change),
        "update_many": lambda: jobs.update_many({"_id": "s1", "fence": 1}, change),
        "delete_many": lambda: jobs.delete_many({"_id": "s1", "fence": 1}),
        "upsert_each": lost,
        "insert_one": lambda: engine.users().insert_one({"_id": "zoe"}),
        "save": lambda: engine.User(name="zoe").save(force_insert=True),
    }
    with phantom(replica_set, service, write) as fail_over:
        asked = Asked(asks)
        assert asked.answered() == set()
        raised = asked.outcomes()  # each gives up by itself: nobody else can be asked
        fail_over()
    for name, error in raised.items():
        assert isinstance(error, PyMongoError | NotUniqueError), (name, error)


def test_what_a_majority_has_may_be_old_and_a_guard_says_no_more_than_that(
    replica_set: ReplicaSet, served: Served
) -> None:
    """So a guard that does not hold is no proof, where what is newer could make it hold."""
    service = served(None)
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "s1")

    def write(database: Database[Document]) -> None:
        database["submissions"].update_one({"_id": "s1"}, {"$set": {"newer": True}})

    with overtaken(replica_set, service, write):
        newer = {"_id": "s1", "newer": True}
        assert engine.submissions().find_one(newer) is None
        assert engine.submissions().find_one_and_update(newer, {"$set": {"met": 1}}) is None
        with pytest.raises(PyMongoError), proven(engine.submissions().database):
            pytest.fail("proven by one who knows too little")
        with engine.in_order(), pytest.raises(PyMongoError):
            engine.catch_up()
