"""The database refuses, bodies break off, a document is poisoned: no 500, and nothing is lost."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo import MongoClient

from app import create_app
from mongo import engine
from settings import Settings
from tests.factories import ADMIN_KEY, CODE, REGISTRATION_TOKEN, Service
from tests.live import LiveService, free_port

DISK_FULL = 14031
TOO_SLOW = 50


@contextmanager
def refusing(client: MongoClient[Any], code: int, *commands: str) -> Iterator[None]:
    """Have the server refuse the commands with the error code."""
    client.admin.command(
        "configureFailPoint",
        "failCommand",
        mode="alwaysOn",
        data={"failCommands": list(commands), "errorCode": code},
    )
    try:
        yield
    finally:
        client.admin.command("configureFailPoint", "failCommand", mode="off")


PUTS: dict[str, dict[str, Any]] = {
    "/users/bob": {},
    "/problems/9": {
        "name": "nine",
        "tasks": [{"task_score": 100, "memory_limit_kib": 1, "time_limit_ms": 1, "case_count": 1}],
    },
    "/homeworks/hw": {
        "name": "hw",
        "start": "2040-01-01T00:00:00Z",
        "end": "2041-01-01T00:00:00Z",
        "problem_ids": [1],
        "students": ["ada"],
    },
}


@pytest.mark.parametrize("code", [DISK_FULL, TOO_SLOW])
@pytest.mark.parametrize("path", PUTS)
def test_a_write_that_the_database_refuses_is_503(
    service: Service, mongo_client: MongoClient[Any], path: str, code: int
) -> None:
    service.user("ada")
    service.problem(1)
    with refusing(mongo_client, code, "insert"):
        answer = service.call("PUT", path, json=PUTS[path], may_fail=True)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert service.call("PUT", path, json=PUTS[path]).status_code == 201


@pytest.mark.parametrize("code", [DISK_FULL, TOO_SLOW])
def test_i7_a_submit_that_the_database_refuses_is_503_and_can_be_repeated(
    service: Service, mongo_client: MongoClient[Any], code: int
) -> None:
    key = service.user("ada")
    service.problem(1)
    with refusing(mongo_client, code, "insert"):
        form = {"problem_id": "1", "language": "2", "submission_id": "s1"}
        answer = service.client.post(
            "/submissions",
            data={**form, "code": (io.BytesIO(CODE), "main.py")},
            headers={"Authorization": f"Bearer {key}"},
        )
    assert answer.status_code == 503
    again = service.submit_over_http(key, problem_id=1, language=2, submission_id="s1")
    assert again.status_code == 201


@pytest.mark.parametrize("body", ["ZZ\r\nabc\r\n0\r\n\r\n", "5\r\nab"])
def test_a_register_body_with_broken_chunks_is_400(live_service: LiveService, body: str) -> None:
    address = urlsplit(live_service.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(
            "POST /runners/register HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Transfer-Encoding: chunked\r\n\r\n{body}".encode()
        )
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536).decode()
    assert answer.startswith("HTTP/1.1 400 "), answer
    assert "application/problem+json" in answer


def test_a_part_without_a_name_is_400(service: Service) -> None:
    key = service.user("ada")
    service.problem(1)
    for extra in ("", '; filename="x"'):
        body = (
            f"--b\r\nContent-Disposition: form-data{extra}\r\n\r\nx\r\n"
            '--b\r\nContent-Disposition: form-data; name="problem_id"\r\n\r\n1\r\n'
            '--b\r\nContent-Disposition: form-data; name="language"\r\n\r\n2\r\n'
            '--b\r\nContent-Disposition: form-data; name="code"\r\n\r\nprint(1)\r\n--b--\r\n'
        )
        answer = service.call(
            "POST",
            "/submissions",
            key=key,
            data=body,
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        )
        assert answer.status_code == 400, answer.text


def test_checks_of_the_form_come_after_the_problem_s(service: Service) -> None:
    key = service.user("ada")
    service.user("bob")
    service.problem(1)
    unknown = {"problem_id": "9", "language": ["2", "2"], "code": (io.BytesIO(CODE), "x")}
    assert service.post_form(key, unknown).status_code == 404
    # Somebody else's name is 403, an empty program 400: the 400 is first.
    answer = service.submit_over_http(key, problem_id=1, language=2, username="bob", code=b"")
    assert answer.status_code == 400


@pytest.mark.parametrize("path", ["/users//x", "//healthz", "/runners//register"])
def test_doubled_slashes_are_no_redirect(service: Service, path: str) -> None:
    answer = service.call("GET", path)
    assert answer.status_code in (404, 405)


def test_more_tasks_than_test_data_can_number_are_refused_early(service: Service) -> None:
    runner = service.runner()
    answer = service.call(
        "PUT", runner.path("jobs/jb_1/complete"), key=runner.token, json={"tasks": [[]] * 101}
    )
    assert answer.status_code == 400


def test_i6_an_unreadable_penalty_stops_no_landing(service: Service) -> None:
    """It was checked when it was saved; what got there otherwise forfeits what is late."""
    service.user("ada")
    service.problem(1)
    service.homework("a-poisoned", [1], ["ada"])
    service.homework("z-fine", [1], ["ada"])
    service.database["homeworks"].update_one(
        {"_id": "a-poisoned"}, {"$set": {"penalty": "import os"}}
    )
    submission_id = service.submit("ada", 1)
    service.judge(service.runner(), submission_id, "AC")
    for homework_id in ("a-poisoned", "z-fine"):
        assert service.standing(homework_id, "ada", 1)["score"] == 100


def test_a_service_starts_without_its_database_and_serves_when_it_is_there(
    mongo_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that could not boot would take the host's others with it."""
    settings = Settings(
        mongodb_uri=f"mongodb://127.0.0.1:{free_port()}/nowhere?serverSelectionTimeoutMS=200",
        secret_key="signs-the-links-of-the-tests",
        runner_registration_token=REGISTRATION_TOKEN,
        admin_api_key=ADMIN_KEY,
    )
    monkeypatch.setitem(engine.CLIENT_OPTIONS, "serverSelectionTimeoutMS", 200)
    try:
        client = create_app(settings).test_client()
        assert client.get("/healthz").status_code == 200
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert "database" in ready.get_json(force=True)["detail"]
        answer = client.get("/queue", headers={"Authorization": f"Bearer {ADMIN_KEY}"})
        assert answer.status_code == 503
        assert answer.get_json(force=True)["reason"] == "database_unavailable"
    finally:
        engine.disconnect()


def test_a_service_prepares_as_soon_as_its_database_is_there(
    mongo_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        mongodb_uri=mongo_uri, secret_key="signs-the-links-of-the-tests", admin_api_key=ADMIN_KEY
    )
    real = engine.create_indexes

    def away() -> None:
        from pymongo.errors import ServerSelectionTimeoutError

        raise ServerSelectionTimeoutError("not yet")

    try:
        with monkeypatch.context() as patch:
            patch.setattr(engine, "create_indexes", away)
            client = create_app(settings).test_client()
            assert client.get("/readyz").status_code == 503
        assert engine.create_indexes is real
        assert client.get("/readyz").status_code == 200
        answer = client.get("/queue", headers={"Authorization": f"Bearer {ADMIN_KEY}"})
        assert answer.status_code == 200
        names = {index["name"] for index in engine.submissions().list_indexes()}
        assert "counting" in names
    finally:
        engine.disconnect()
