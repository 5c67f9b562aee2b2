"""I7: a submission id is reserved as long as its outcome is kept. Said once, done once.

Against two API processes over HTTP. The cases are those of a call store that refuses a duplicate
call id: pending and finished, same body and another, ten at once, ambiguous failures.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from pymongo import MongoClient

from tests.live import LiveService

SOURCE = b"print(1)"


@dataclass
class Course:
    """A user's client, an admin's, the raw database and a runner."""

    service: LiveService
    user: httpx.Client
    admin: httpx.Client
    database: Any
    runner: httpx.Client
    runner_path: str

    def submit(
        self,
        submission_id: str,
        *,
        problem_id: int = 1,
        source: bytes = SOURCE,
        client: httpx.Client | None = None,
        **fields: str,
    ) -> httpx.Response:
        data = {"problem_id": str(problem_id), "language": "2", "submission_id": submission_id}
        return (client or self.user).post(
            "/submissions", data=data | fields, files={"code": ("main.py", source)}
        )

    def claim(self) -> dict[str, Any]:
        answer = self.runner.get(f"{self.runner_path}/next-job?wait=5")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def finish(self, job: dict[str, Any]) -> None:
        case = {
            "exitCode": 0,
            "status": "AC",
            "stdout": "1",
            "stderr": "",
            "execTime": 1,
            "memoryUsage": 1,
        }
        path = f"{self.runner_path}/jobs/{job['job_id']}/complete"
        answer = self.runner.put(path, json={"tasks": [[case]], "lease_token": job["lease_token"]})
        assert answer.status_code == 204, answer.text

    def everything(self, submission_id: str) -> tuple[Any, Any, int]:
        """What there is of a submission: it, its job, how many code blobs are named for it."""
        return (
            self.database.submissions.find_one({"_id": submission_id}),
            self.database.jobs.find_one({"_id": submission_id}),
            self.database["blobs.files"].count_documents({"filename": f"code/{submission_id}"}),
        )


@pytest.fixture(scope="module")
def course(shared_service: LiveService) -> Iterator[Course]:
    environment = shared_service.environment
    with (
        shared_service.admin() as admin,
        httpx.Client(base_url=shared_service.url, timeout=40) as user,
        httpx.Client(base_url=shared_service.url, timeout=40) as runner,
        MongoClient(environment["MONGODB_URI"], tz_aware=True) as mongo,
    ):
        key = admin.post("/users/ada/keys").json()["key"]
        user.headers["Authorization"] = f"Bearer {key}"
        token = environment["RUNNER_REGISTRATION_TOKEN"]
        registered = runner.post(
            "/runners/register", json={"registration_token": token, "name": "r"}
        ).json()
        runner.headers["Authorization"] = f"Bearer {registered['token']}"
        database = mongo.get_default_database()
        yield Course(
            shared_service,
            user,
            admin,
            database,
            runner,
            f"/runners/{registered['runner_id']}",
        )


@pytest.fixture
def fresh_id(course: Course) -> str:
    """An id nobody has used, on an empty queue."""
    course.database.jobs.delete_many({})
    course.database.submissions.delete_many({})
    return f"id-{secrets.token_hex(6)}"


def _assert_duplicate(answer: httpx.Response, submission_id: str) -> None:
    assert answer.status_code == 409
    assert answer.json()["reason"] == "duplicate_submission"
    assert answer.json()["detail"] == f"submission {submission_id} already submitted"


VARIATIONS: dict[str, dict[str, Any]] = {
    "the same body": {},
    "another program": {"source": b"print(2)"},
    "another problem": {"problem_id": 2},
    "another language": {"language": "0"},
}


@pytest.mark.parametrize("variation", VARIATIONS)
def test_i7_a_duplicate_of_a_waiting_submission_changes_nothing(
    course: Course, fresh_id: str, variation: str
) -> None:
    assert course.submit(fresh_id).status_code == 201
    before = course.everything(fresh_id)

    _assert_duplicate(course.submit(fresh_id, **VARIATIONS[variation]), fresh_id)

    assert course.everything(fresh_id) == before
    assert before[2] == 0


@pytest.mark.parametrize("variation", VARIATIONS)
def test_i7_a_duplicate_of_a_judged_submission_changes_nothing(
    course: Course, fresh_id: str, variation: str
) -> None:
    assert course.submit(fresh_id).status_code == 201
    course.finish(course.claim())
    before = course.everything(fresh_id)

    _assert_duplicate(course.submit(fresh_id, **VARIATIONS[variation]), fresh_id)

    assert course.everything(fresh_id) == before
    assert course.user.get(f"/submissions/{fresh_id}").json()["verdict"] == "AC"


def test_i7_a_duplicate_by_somebody_else_is_refused(course: Course, fresh_id: str) -> None:
    assert course.submit(fresh_id).status_code == 201
    before = course.everything(fresh_id)
    _assert_duplicate(course.submit(fresh_id, client=course.admin, username="bob"), fresh_id)
    assert course.everything(fresh_id) == before


def test_i7_fields_in_another_order_are_the_same_id(course: Course, fresh_id: str) -> None:
    assert course.submit(fresh_id).status_code == 201
    boundary = "b" + secrets.token_hex(8)
    parts = [("submission_id", fresh_id), ("language", "2"), ("problem_id", "1")]
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="code"; filename="main.py"\r\n\r\n'
        "print(1)\r\n"
    )
    for name, value in parts:
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
    answer = course.user.post(
        "/submissions",
        content=f"{body}--{boundary}--\r\n",
        headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
    )
    _assert_duplicate(answer, fresh_id)


def test_i7_of_ten_at_once_one_is_taken_and_judged_once(course: Course, fresh_id: str) -> None:
    ready = threading.Barrier(10)

    def submit(number: int) -> httpx.Response:
        ready.wait()
        return course.submit(fresh_id, source=b"print(%d)" % number)

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(submit, range(10)))

    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 9
    for answer in answers:
        if answer.status_code == 409:
            _assert_duplicate(answer, fresh_id)
    submission, job, blobs = course.everything(fresh_id)
    won = next(answer for answer in answers if answer.status_code == 201)
    assert job["job_id"] == submission["job_id"] == won.json()["job_id"]
    assert blobs == 0  # a small program is in its submission
    course.finish(course.claim())
    assert course.runner.get(f"{course.runner_path}/next-job").status_code == 204
    history = course.everything(fresh_id)[1]["history"]
    assert [entry["event"] for entry in history].count("claim") == 1


def test_i7_a_duplicate_of_a_job_in_flight_is_answered_while_it_runs(
    course: Course, fresh_id: str
) -> None:
    assert course.submit(fresh_id).status_code == 201
    job = course.claim()
    before = course.everything(fresh_id)
    _assert_duplicate(course.submit(fresh_id), fresh_id)
    assert course.everything(fresh_id) == before
    assert before[1]["state"] == "leased"
    course.finish(job)


def test_i7_the_first_stays_readable_and_waitable_after_the_conflict(
    course: Course, fresh_id: str
) -> None:
    assert course.submit(fresh_id).status_code == 201
    _assert_duplicate(course.submit(fresh_id), fresh_id)
    assert course.user.get(f"/submissions/{fresh_id}").json()["verdict"] == "PENDING"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(course.user.get, f"/submissions/{fresh_id}?wait=20")
        course.finish(course.claim())
        assert waiting.result().json()["verdict"] == "AC"


def test_i7_a_dropped_connection_and_a_resend_leave_one_submission(
    course: Course, fresh_id: str
) -> None:
    """The client hangs up after sending, before the answer; then it asks, and does not guess."""
    request = course.user.build_request(
        "POST",
        "/submissions",
        data={"problem_id": "1", "language": "2", "submission_id": fresh_id},
        files={"code": ("main.py", SOURCE)},
    )
    address = urlsplit(course.service.url)
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(f"POST /submissions HTTP/1.1\r\n{head}\r\n".encode() + request.read())

    resent = course.submit(fresh_id)

    # Whichever of the two the service took first, there is one submission and one job.
    assert resent.status_code in (201, 409)
    shown = course.user.get(f"/submissions/{fresh_id}?wait=0").json()
    assert shown["verdict"] == "PENDING"
    course.finish(course.claim())
    assert course.runner.get(f"{course.runner_path}/next-job").status_code == 204
    assert course.database.submissions.count_documents({}) == 1
    assert course.database.jobs.count_documents({}) == 1


# -- the order of checks -------------------------------------------------------------------


def test_checks_come_in_the_order_of_the_contract(course: Course, fresh_id: str) -> None:
    """Each request is wrong in every later way, too: 401, 404, 400, 403, 409."""
    assert course.submit(fresh_id).status_code == 201
    course.admin.put(
        "/problems/1",
        json={
            "name": "problem 1",
            "tasks": course.admin.get("/problems/1").json()["tasks"],
            "allowed_languages": [2],
        },
    ).raise_for_status()
    with httpx.Client(base_url=course.service.url) as nobody:
        refused = [
            course.submit(fresh_id, client=nobody, problem_id=404, language="9"),
            course.submit(fresh_id, problem_id=404, language="9", username="bob"),
            course.submit(fresh_id, language="9", username="bob"),
            course.submit(fresh_id, language="0"),
            course.submit(fresh_id),
        ]
    assert [answer.status_code for answer in refused] == [401, 404, 400, 403, 409]
    reasons = [answer.json()["reason"] for answer in refused]
    assert reasons == [
        "unauthorized",
        "unknown_problem",
        "invalid_request",
        "language_not_allowed",
        "duplicate_submission",
    ]


def test_a_refused_submit_logs_one_event_with_reason_id_and_caller(
    course: Course, fresh_id: str
) -> None:
    course.submit(fresh_id)
    course.submit(fresh_id)
    lines = [
        json.loads(line) for line in course.service.log.read_text().splitlines() if "{" in line[:1]
    ]
    refused = [
        line
        for line in lines
        if line.get("event") == "submit_refused" and line.get("submission_id") == fresh_id
    ]
    assert len(refused) == 1
    assert refused[0]["reason"] == "duplicate_submission"
    assert refused[0]["caller"] == "ada"


def test_a_refused_submit_starts_nothing(course: Course, fresh_id: str) -> None:
    for wrong in ({"problem_id": 404}, {"language": "9"}, {"source": b""}):
        assert course.submit(fresh_id, **wrong).status_code in (400, 404)
    assert course.everything(fresh_id) == (None, None, 0)
