"""I8: the API process is killed before and after each of its writes; a verdict comes all the same.

Each case starts a real process, sends it one request under which it dies, and then lets a healthy
service and one polling runner find what is left. Nobody helps.
"""

from __future__ import annotations

import io
import multiprocessing
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from pymongo import MongoClient

from app import create_app
from dispatch.clock import ServerClock
from dispatch.invariants import check_database
from mongo import check, engine
from settings import load_settings
from tests.faults.dying_service import Death, serve

WRITES_MAX = 30
ADMIN_KEY = "ak_0123456789abcdef0123"
TOKEN = "a-registration-token"

_forkserver = multiprocessing.get_context("forkserver")
_forkserver.set_forkserver_preload(["tests.faults.dying_service"])


def _testdata() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("0000.in", "1\n")
        archive.writestr("0000.out", "1\n")
    return packed.getvalue()


@dataclass
class World:
    """A healthy service on the database, with time that can be moved on, and one runner."""

    uri: str
    client: Any
    moved: timedelta
    runner_id: str = ""
    runner_headers: dict[str, str] | None = None
    admin = {"Authorization": f"Bearer {ADMIN_KEY}"}  # noqa: RUF012

    def submit(self, send: Any, submission_id: str = "s1") -> Any:
        return send("POST", "/submissions", headers=self.admin, data=_form(submission_id))

    def claim(self, send: Any) -> Any:
        path = f"/runners/{self.runner_id}/next-job?claim_id=one"
        return send("GET", path, headers=self.runner_headers)

    def complete(self, send: Any, job: dict[str, Any], status: str = "AC") -> Any:
        case = {
            "exitCode": 0,
            "status": status,
            "stdout": "out",
            "stderr": "",
            "execTime": 1,
            "memoryUsage": 1,
        }
        body = {"tasks": [[case]], "lease_token": job["lease_token"]}
        path = f"/runners/{self.runner_id}/jobs/{job['job_id']}/complete"
        return send("PUT", path, headers=self.runner_headers, json=body)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.moved

    def abort(self, send: Any, job: dict[str, Any], reason: str) -> Any:
        path = f"/runners/{self.runner_id}/jobs/{job['job_id']}/abort"
        return send("PUT", path, headers=self.runner_headers, json={"reason": reason})

    def rejudge(self, send: Any) -> Any:
        return send("POST", "/submissions/s1/rejudge", headers=self.admin)

    def healthy(self, method: str, path: str, **kwargs: Any) -> Any:
        return self.client.open(path, method=method, **kwargs)

    def shown(self) -> dict[str, Any]:
        return self.healthy("GET", "/submissions/s1", headers=self.admin).get_json()

    def poll_until_judged(self, status: str = "AC") -> dict[str, Any]:
        """Let the runner poll, time going on, until there is a verdict."""
        for _ in range(12):
            answer = self.healthy(
                "GET", f"/runners/{self.runner_id}/next-job", headers=self.runner_headers
            )
            if answer.status_code == 200:
                assert self.complete(self.healthy, answer.get_json(), status).status_code == 204
            shown = self.shown()
            if shown["status"] != -1 and shown["job"]["state"] == "done":
                return shown
            self.moved += timedelta(seconds=20)
        raise AssertionError(f"stranded: {self.shown()}")

    def assert_whole(self) -> None:
        """Nothing is left over: one job, invariants, counters and standings equal a recompute."""
        assert engine.submissions().count_documents({}) == 1
        assert check_database(engine.submissions().database) == []
        assert check.differences(check.scope(), advance=lambda: None) == []


def _form(submission_id: str) -> dict[str, Any]:
    return {
        "problem_id": "1",
        "language": "2",
        "username": "ada",
        "submission_id": submission_id,
        "code": (io.BytesIO(b"print(1)"), "main.py"),
    }


@pytest.fixture
def world(mongo_uri: str) -> Iterator[World]:
    with MongoClient(mongo_uri, tz_aware=True) as clock_client:
        server_time = ServerClock(clock_client)
        made = World(mongo_uri, None, timedelta())
        app = create_app(
            load_settings(**_settings(mongo_uri)), clock=lambda: server_time() + made.moved
        )
        made.client = app.test_client()
        _prepare(made)
        try:
            yield made
        finally:
            engine.disconnect()


def _settings(uri: str) -> dict[str, Any]:
    return {
        "mongodb_uri": uri,
        "secret_key": "a secret of sixteen",
        "retry_pauses_s": (),
        "give_up_s": 0,
        "admin_api_key": ADMIN_KEY,
        "runner_registration_token": TOKEN,
        "log_level": "ERROR",
        "runner_checks": "off",
    }


def _prepare(world: World) -> None:
    task = {"task_score": 100, "memory_limit_kib": 65536, "time_limit_ms": 1000, "case_count": 1}
    made = [
        world.healthy("PUT", "/users/ada", headers=world.admin, json={}),
        world.healthy(
            "PUT", "/problems/1", headers=world.admin, json={"name": "one", "tasks": [task]}
        ),
        world.healthy(
            "PUT",
            "/problems/1/testdata",
            headers=world.admin,
            data=_testdata(),
            content_type="application/zip",
        ),
        world.healthy(
            "PUT",
            "/homeworks/hw",
            headers=world.admin,
            json={
                "name": "hw",
                "start": "2020-01-01T00:00:00Z",
                "end": "2090-01-01T00:00:00Z",
                "problem_ids": [1],
                "students": ["ada"],
            },
        ),
    ]
    assert [answer.status_code for answer in made] == [201] * len(made)
    answer = world.healthy(
        "POST", "/runners/register", json={"registration_token": TOKEN, "name": "only"}
    )
    world.runner_id = answer.get_json()["runner_id"]
    world.runner_headers = {"Authorization": f"Bearer {answer.get_json()['token']}"}


@contextmanager
def _dying(uri: str, death: Death, at: datetime) -> Iterator[Any]:
    """Yield a function that sends a request to a process with that death before it.

    For that process it is `at`.
    """
    receive, send = _forkserver.Pipe(duplex=False)
    process = _forkserver.Process(target=serve, args=(_settings(uri), death, send, at))
    process.start()
    send.close()
    port = receive.recv()

    def request(method: str, path: str, **kwargs: Any) -> Any:
        files = None
        data = kwargs.get("data")
        if isinstance(data, dict) and "code" in data:
            kwargs["data"] = {k: v for k, v in data.items() if k != "code"}
            files = {"code": ("main.py", data["code"][0])}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            return client.request(method, path, files=files, timeout=20, **kwargs)

    try:
        yield request
    finally:
        process.kill()
        process.join()
        process.close()
        receive.close()


def _die_at_each_write(
    world: World, route: str, act: Any, recover: Any, *, blobs_apart: bool = False
) -> int:
    """Run `act` against processes that die at write 1, 2, ... and recover after each.

    Stops at the first write that the request does not have; returns how many it has.
    """
    for write in range(1, WRITES_MAX):
        for after in (False, True):
            start = recover.prepare(world)
            died = False
            death = Death(route=route, write=write, after=after, blobs_apart=blobs_apart)
            with _dying(world.uri, death, world.now()) as send:
                try:
                    act(send, start)
                except httpx.TransportError:
                    died = True
            recover.finish(world)
            world.assert_whole()
            _reset(world)
            if not died:
                return write - 1
    raise AssertionError("a request with that many writes?")


def _reset(world: World) -> None:
    database = engine.submissions().database
    emptied = (
        *("submissions", "jobs", "student_status", "blobs.files", "blobs.chunks"),
        *("problem_failures", "dispatch_control"),
    )
    for name in emptied:
        if name.startswith("blobs"):
            keep = database["problems"].find_one({"_id": 1})["testdata"][-1]["blob_id"]
            field = "_id" if name == "blobs.files" else "files_id"
            database[name].delete_many({field: {"$ne": keep}})
        else:
            database[name].delete_many({})
    database["users"].update_many(
        {}, {"$set": {"submission": 0, "AC_submission": 0, "AC_problem_ids": [], "tally": {}}}
    )
    database["homeworks"].update_many({}, {"$set": {"recompute_due": True}})


class _Judged:
    """Start from a fresh submission in some state; end with its verdict."""

    def __init__(self, prepare: Any, status: str = "AC") -> None:
        self.prepare = prepare
        self._status = status

    def finish(self, world: World) -> None:
        assert world.poll_until_judged(self._status)["verdict"] in (self._status, "JE")


def _submitted(world: World) -> None:
    assert world.submit(world.healthy).status_code == 201


def _leased(world: World) -> dict[str, Any]:
    _submitted(world)
    answer = world.claim(world.healthy)
    assert answer.status_code == 200
    return answer.get_json()


def _judged(world: World) -> None:
    job = _leased(world)
    assert world.complete(world.healthy, job, "WA").status_code == 204


@pytest.mark.parametrize("blobs_apart", [False, True])
def test_i8_killed_while_submitting(world: World, blobs_apart: bool) -> None:
    class Ask(_Judged):
        def finish(self, world: World) -> None:
            # A client that got no answer asks, and submits again only if nothing is there.
            answer = world.healthy("GET", "/submissions/s1", headers=world.admin)
            if answer.status_code == 404:
                assert world.submit(world.healthy).status_code == 201
            else:
                assert world.submit(world.healthy).status_code == 409
            super().finish(world)

    writes = _die_at_each_write(
        world,
        "POST /submissions",
        lambda send, _: world.submit(send),
        Ask(lambda world: None),
        blobs_apart=blobs_apart,
    )
    assert writes == 2 + blobs_apart  # the submission, the job, and the code where it is apart


def test_i8_killed_while_claiming(world: World) -> None:
    writes = _die_at_each_write(
        world, r"GET /runners/.*/next-job", lambda send, _: world.claim(send), _Judged(_submitted)
    )
    assert writes >= 1


def test_i8_killed_while_completing(world: World) -> None:
    writes = _die_at_each_write(
        world,
        r"PUT /runners/.*/complete",
        lambda send, job: world.complete(send, job),
        _Judged(_leased),
    )
    assert writes >= 5  # begin, result with its outputs, counters, standing, end


@pytest.mark.parametrize("blobs_apart", [False, True])
def test_i8_killed_while_completing_a_rejudge(world: World, blobs_apart: bool) -> None:
    def rejudged(world: World) -> dict[str, Any]:
        _judged(world)
        assert world.rejudge(world.healthy).status_code == 202
        return world.healthy(
            "GET", f"/runners/{world.runner_id}/next-job", headers=world.runner_headers
        ).get_json()

    writes = _die_at_each_write(
        world,
        r"PUT /runners/.*/complete",
        lambda send, job: world.complete(send, job),
        _Judged(rejudged),
        blobs_apart=blobs_apart,
    )
    assert writes >= 5 + blobs_apart  # begin, result, counters, standing, end, and the outputs


@pytest.mark.parametrize("reason", ["drain", "prep_failed"])
def test_i8_killed_while_aborting(world: World, reason: str) -> None:
    writes = _die_at_each_write(
        world,
        r"PUT /runners/.*/abort",
        lambda send, job: world.abort(send, job, reason),
        _Judged(_leased),
    )
    assert writes >= 1


def test_i8_killed_while_aborting_the_last_attempt(world: World) -> None:
    def last(world: World) -> dict[str, Any]:
        job = _leased(world)
        for _ in range(2):
            assert world.abort(world.healthy, job, "prep_failed").status_code == 202
            job = world.claim(world.healthy).get_json()
        assert job["attempt"] == 3
        return job

    class JudgeError(_Judged):
        def finish(self, world: World) -> None:
            assert world.poll_until_judged()["verdict"] == "JE"

    writes = _die_at_each_write(
        world,
        r"PUT /runners/.*/abort",
        lambda send, job: world.abort(send, job, "prep_failed"),
        JudgeError(last),
    )
    assert writes >= 5  # begin, result, counters, standing, end


def test_i8_killed_while_rejudging(world: World) -> None:
    class Rejudged(_Judged):
        def finish(self, world: World) -> None:
            shown = world.poll_until_judged("AC")
            # Before its first write the rejudge has not happened; then it is asked for again.
            if shown["verdict"] == "WA":
                assert world.rejudge(world.healthy).status_code == 202
                shown = world.poll_until_judged("AC")
            assert shown["verdict"] == "AC"

    writes = _die_at_each_write(
        world,
        "POST /submissions/s1/rejudge",
        lambda send, _: world.rejudge(send),
        Rejudged(_judged),
    )
    assert writes == 3  # the job, the mark, the note that it is marked
