"""Documents of an older version lack newer fields, those of a newer one have unknown fields.

They count as unleased, are read with defaults, upgraded by the first write, and keep what this
version does not know.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import Service

NEWER = {"of_a_newer_version": {"deep": [1]}}
JOB_KEPT = {"_id", "job_id", "state", "problem_id", "language", "queued_at"}
SUBMISSION_KEPT = {
    "_id",
    "username",
    "problem_id",
    "language",
    "code_blob",
    "submitted_at",
    "status",
    "job_id",
}
HOMEWORK_KEPT = {"_id", "name", "start", "end", "penalty", "problem_ids", "students"}
STANDING_KEPT = {"_id", "homework_id", "username", "problems"}


def cut_down(service: Service, collection: str, kept: set[str]) -> None:
    """Leave only these fields, as a version before the others would have written it."""
    for document in service.database[collection].find():
        old = {name: value for name, value in document.items() if name in kept}
        service.database[collection].replace_one({"_id": document["_id"]}, old)


def prepared(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    service.homework("hw", [1], ["ada"])


def age(service: Service) -> None:
    """Make every document there is an old one."""
    cut_down(service, "jobs", JOB_KEPT)
    cut_down(service, "submissions", SUBMISSION_KEPT | {"result", "counted"})
    cut_down(service, "users", {"_id"})
    cut_down(service, "homeworks", HOMEWORK_KEPT)
    cut_down(service, "student_status", STANDING_KEPT)
    cut_down(service, "runners", {"_id", "name", "token_sha256"})
    cut_down(service, "problems", {"_id", "name", "tasks", "testdata", "allowed_languages"})


def test_an_old_submission_and_its_old_job_are_judged_and_upgraded(service: Service) -> None:
    prepared(service)
    runner = service.runner()
    service.submit("ada", 1, "s1")
    age(service)

    assert service.view("s1")["verdict"] == "PENDING"
    service.judge(runner, "s1", "AC")

    assert service.view("s1")["verdict"] == "AC"
    assert service.counters("ada") == (1, 1, [1])
    assert service.standing("hw", "ada", 1)["score"] == 100
    job = service.view_job("s1")
    assert (job["fence"], job["attempts"], job["state"]) == (2, 1, "done")
    assert [entry["event"] for entry in job["history"]][-1] == "complete_ends"
    submission = service.database["submissions"].find_one({"_id": "s1"})
    assert submission is not None
    assert submission["fence"] == 2
    for collection in ("users", "student_status"):
        upgraded = service.database[collection].find_one({})
        assert upgraded is not None
        assert upgraded["version"] >= 1
    seen = service.database["runners"].find_one({})
    assert seen is not None
    assert "last_seen" in seen


@pytest.mark.parametrize("state", ["leased", "landing"])
def test_i2_an_old_job_without_lease_fields_is_unleased(service: Service, state: str) -> None:
    prepared(service)
    runner = service.runner()
    service.submit("ada", 1, "s1")
    age(service)
    service.database["jobs"].update_one({"_id": "s1"}, {"$set": {"state": state}})
    service.judge(runner, "s1", "AC")
    assert service.view("s1")["verdict"] == "AC"


@pytest.mark.parametrize("reason", ["drain", "prep_failed"])
def test_an_old_job_is_given_back(service: Service, reason: str) -> None:
    prepared(service)
    runner = service.runner()
    service.submit("ada", 1, "s1")
    age(service)
    payload = service.claim(runner)
    service.database["jobs"].update_one({"_id": "s1"}, {"$unset": {"fence": "", "attempts": ""}})
    path = runner.path(f"jobs/{payload['job_id']}/abort")
    answer = service.call("PUT", path, key=runner.token, json={"reason": reason})
    assert answer.status_code == 202
    assert service.view_job("s1")["state"] == "pending"


def test_an_old_judged_submission_is_rejudged_and_the_rejudge_taken_back(service: Service) -> None:
    prepared(service)
    runner = service.runner()
    service.submit("ada", 1, "s1")
    service.judge(runner, "s1", "AC")
    age(service)
    # Its result, too, is of a version without fences.
    service.database["submissions"].update_one({"_id": "s1"}, {"$unset": {"result.fence": ""}})
    service.database["jobs"].update_one({"_id": "s1"}, {"$set": {"outcome": "verdict"}})

    service.ok("POST", "/submissions/s1/rejudge")
    assert service.view("s1")["verdict"] == "PENDING"
    assert service.counters("ada")[0] == 0  # nothing has been recomputed, and defaults are shown
    service.ok("POST", "/submissions/s1/cancel")
    assert service.view("s1")["verdict"] == "AC"
    assert service.counters("ada") == (1, 1, [1])

    service.ok("POST", "/submissions/s1/rejudge")
    service.judge(runner, "s1", "WA")
    assert service.view("s1")["verdict"] == "WA"
    assert service.counters("ada") == (1, 0, [])


def test_an_old_submission_whose_job_is_missing_gets_one(service: Service) -> None:
    prepared(service)
    runner = service.runner()
    service.submit("ada", 1, "s1")
    service.database["jobs"].delete_many({})
    age(service)
    service.sweep()
    service.judge(runner, "s1", "AC")
    assert service.view("s1")["verdict"] == "AC"


def test_an_old_jobs_attempts_end_in_a_judge_error(service: Service) -> None:
    prepared(service)
    service.runner()
    service.submit("ada", 1, "s1")
    age(service)
    service.database["jobs"].update_one({"_id": "s1"}, {"$set": {"state": "leased", "attempts": 3}})
    service.sweep()
    assert service.view("s1")["verdict"] == "JE"


def test_old_homeworks_and_problems_are_edited(service: Service) -> None:
    prepared(service)
    runner = service.runner()
    service.submit("ada", 1, "s1")
    service.judge(runner, "s1", "AC")
    age(service)
    service.homework("hw", [1], [])
    assert service.standing("hw", "ada", 1) is None
    service.homework("hw", [1], ["ada"])
    assert service.standing("hw", "ada", 1)["score"] == 100
    service.problem(1, text="2\n")
    assert service.services.judge.is_ready(1)


def test_what_a_newer_version_wrote_beside_is_kept(service: Service) -> None:
    prepared(service)
    runner = service.runner()
    service.submit("ada", 1, "s1")
    collections = ("jobs", "submissions", "users", "homeworks", "runners", "problems")
    for collection in collections:
        service.database[collection].update_many({}, {"$set": NEWER})
    service.judge(runner, "s1", "AC")
    service.database["student_status"].update_many({}, {"$set": NEWER})
    service.ok("POST", "/submissions/s1/rejudge")
    service.judge(runner, "s1", "WA")
    service.homework("hw", [1], ["ada"], penalty="score = score * 0.5")
    service.ok("PUT", "/users/ada", json={"display_name": "Ada"})
    service.problem(1, text="2\n")
    service.sweep()
    assert service.counters("ada") == (1, 0, [])
    for collection in (*collections, "student_status"):
        for document in service.database[collection].find():
            kept: Any = {name: document.get(name) for name in NEWER}
            assert kept == NEWER, collection
