"""The in-process store carries a whole round, for those without a `mongod`. Nothing else is proven
on it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pymongo.errors import DuplicateKeyError

from mongo import engine
from settings import IN_PROCESS_URI
from tests.factories import CODE, ManualClock, Service, packed_testdata, task_bodies
from tests.fixtures import build_app


@pytest.fixture
def in_process() -> Iterator[Service]:
    """The service on an empty in-process store."""
    clock = ManualClock()
    app = build_app(IN_PROCESS_URI, clock)
    database = engine.users().database
    yield Service(app=app, clock=clock, database=database)
    database.client.drop_database(database.name)
    engine.disconnect()


def test_a_whole_round(in_process: Service) -> None:
    service = in_process
    service.ok("PUT", "/users/ada", json={"display_name": "Ada"})
    key = service.ok("POST", "/users/ada/keys")["key"]
    body = {"name": "sums", "tasks": task_bodies((40, 1), (60, 2))}
    service.ok("PUT", "/problems/1", json=body)
    service.ok(
        "PUT",
        "/problems/1/testdata",
        data=packed_testdata(1, 2),
        headers={"Content-Type": "application/zip"},
    )
    homework = {
        "name": "first",
        "start": "2039-12-01T00:00:00Z",
        "end": "2040-02-01T00:00:00Z",
        "problem_ids": [1],
        "students": ["ada"],
    }
    service.ok("PUT", "/homeworks/hw", json=homework)
    runner, other = service.runner("one"), service.runner("other")
    assert service.claim(runner) is None
    fields = {"problem_id": 1, "language": 2, "submission_id": "sn_1"}
    assert service.submit_over_http(key, **fields).status_code == 201
    assert service.submit_over_http(key, **fields).status_code == 409

    lost = service.claim(runner)
    service.clock.advance(31)
    payload = service.claim(other)
    assert (payload["job_id"], payload["attempt"]) == (lost["job_id"], 2)
    assert service.call("GET", payload["code_url"], key=None).data
    assert service.call("GET", payload["testdata_url"], key=None).data == packed_testdata(1, 2)
    beat = {"active_job_ids": [payload["job_id"]], "report_lost": True}
    told = service.ok("POST", runner.path("heartbeat"), key=runner.token, json=beat)
    assert told == {"lost_job_ids": [payload["job_id"]]}
    assert service.complete(runner, lost["job_id"], "AC", "AC AC").status_code == 409
    assert service.complete(other, payload["job_id"], "AC", "AC WA").status_code == 204
    assert service.complete(other, payload["job_id"], "AC", "AC WA").status_code == 204

    view = service.ok("GET", "/submissions/sn_1", key=key)
    assert (view["verdict"], view["score"]) == ("WA", 40)
    assert service.call("GET", "/submissions/sn_1/outputs/1/1/stdout").data == b"WA\n"
    assert service.counters("ada") == (1, 0, [])
    service.ok("POST", "/submissions/sn_1/rejudge")
    service.judge(runner, "sn_1", "AC", "AC AC")
    assert service.ok("GET", "/users/ada", key=key)["AC_problem_ids"] == [1]
    assert service.ok("GET", "/homeworks/hw", key=key)["student_status"] == {
        "ada": {"1": {"score": 100, "rawScore": 100, "problemStatus": 0, "submissionIds": ["sn_1"]}}
    }
    [listed] = service.ok("GET", "/submissions?verdict=AC")["submissions"]
    assert listed["submission_id"] == "sn_1"
    service.sweep()
    assert service.ok("GET", "/queue")["depth"] == []
    assert len(service.ok("GET", "/runners")) == 2
    assert service.ok("GET", "/readyz", key=None) == {"status": "ok"}
    service.ok("PUT", "/homeworks/hw", json=homework | {"students": []})
    assert service.ok("GET", "/homeworks/hw")["student_status"] == {}


def test_judge_errors_and_aborts(in_process: Service) -> None:
    service = in_process
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    runner = service.runner()
    job_id = service.claim(runner)["job_id"]
    path = runner.path(f"jobs/{job_id}/abort")
    for reason in ("drain", "rejected", "prep_failed", "prep_failed"):
        answer = service.call("PUT", path, key=runner.token, json={"reason": reason})
        assert answer.status_code == 202
        payload = service.claim(runner)
        if payload is None:
            break
    assert service.view("sn_1")["verdict"] == "JE"
    assert service.counters("ada") == (1, 0, [])


def test_the_code_is_kept(in_process: Service) -> None:
    service = in_process
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    assert CODE not in service.call("GET", "/submissions/sn_1/code").data[:4]
    assert service.call("GET", "/submissions/sn_1/code").status_code == 200


def test_several_may_wait_and_a_wish_is_still_one_lease(in_process: Service) -> None:
    """The unique index on wishes is of those alone that have one."""
    key = in_process.user("ada")
    in_process.problem(1)
    for submission_id in ("s1", "s2", "s3"):
        answer = in_process.submit_over_http(
            key, problem_id=1, language=2, submission_id=submission_id
        )
        assert answer.status_code == 201, answer.text
    taken = {"leased_by": "rn_1", "claim_id": "wish"}
    jobs = in_process.database["jobs"]
    jobs.update_one({"_id": "s1"}, {"$set": taken})
    with pytest.raises(DuplicateKeyError):
        jobs.update_one({"_id": "s2"}, {"$set": taken})
