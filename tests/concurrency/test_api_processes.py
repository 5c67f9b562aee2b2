"""I1 to I5 over four API processes and 32 clients, some of which die with a job and come back late.

Runs with short leases on the real clock; nothing waits for a time, everything for a state. The
number of jobs is JUDGE_CONCURRENCY_JOBS (5,000 for the long run).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from pymongo import MongoClient

from dispatch.invariants import check_database
from dispatch.lease import LeaseRules
from mongo.embedded import EmbeddedMongo
from tests.live import LiveService, prepare, start_service

JOBS = int(os.environ.get("JUDGE_CONCURRENCY_JOBS", "600"))
CLIENTS = 32
DIE_SHARE = 0.05
LEASE_TTL_S = 2.0
LIMIT_S = 60 + JOBS / 10

pytestmark = pytest.mark.timeout(LIMIT_S + 120)


@pytest.fixture
def crowd_service(
    mongod: EmbeddedMongo, mongo_client: MongoClient[dict[str, Any]], tmp_path: Path
) -> Iterator[LiveService]:
    name = f"crowd_{os.getpid()}"
    service = start_service(
        mongod.uri_for(name),
        tmp_path / "service.log",
        WEB_CONCURRENCY="4",
        WEB_THREADS="24",
        WAITERS_MAX="8",
        LEASE_TTL_S=str(LEASE_TTL_S),
        HEARTBEAT_INTERVAL_S="0.5",
        MAX_ATTEMPTS="20",
        LOG_LEVEL="WARNING",
    )
    try:
        with service.admin() as admin:
            prepare(admin)
        yield service
    finally:
        if service.process.poll() is None:
            service.stop()
        mongo_client.drop_database(name)


class Client:
    """A runner that judges by submission id, beats, sometimes dies, and comes back too late."""

    def __init__(self, service: LiveService, number: int, finished: threading.Event) -> None:
        self._http = httpx.Client(base_url=service.url, timeout=60)
        self._random = random.Random(number)
        self._finished = finished
        self.answers: Counter[tuple[str, int]] = Counter()
        token = service.environment["RUNNER_REGISTRATION_TOKEN"]
        answer = self._http.post(
            "/runners/register", json={"registration_token": token, "name": f"client-{number}"}
        )
        assert answer.status_code == 201, answer.text
        self._path = f"/runners/{answer.json()['runner_id']}"
        self._http.headers["Authorization"] = f"Bearer {answer.json()['token']}"

    def close(self) -> None:
        self._http.close()

    def work(self) -> None:
        late: list[dict[str, Any]] = []
        while not self._finished.is_set():
            answer = self._http.get(f"{self._path}/next-job?wait=0.3")
            self.answers["next-job", answer.status_code] += 1
            if answer.status_code == 200:
                job = answer.json()
                if self._random.random() < DIE_SHARE:
                    late.append(job)
                else:
                    self._judge(job)
            if late and self._random.random() < 0.02:
                # Back from the dead, sometimes before the lease has run out.
                self._complete(late.pop(0), "late")
        for job in late:
            self._complete(job, "late")

    def _judge(self, job: dict[str, Any]) -> None:
        if self._random.random() < 0.3:
            beat = self._http.post(
                f"{self._path}/heartbeat", json={"active_job_ids": [job["job_id"]]}
            )
            self.answers["heartbeat", beat.status_code] += 1
        self._complete(job, "complete")
        if self._random.random() < 0.05:
            self._complete(job, "resend")

    def _complete(self, job: dict[str, Any], what: str) -> None:
        case = {
            "exitCode": 0,
            "status": verdict_for(job["submission_id"]),
            "stdout": "",
            "stderr": "",
            "execTime": 1,
            "memoryUsage": 1,
        }
        body = {"tasks": [[case]], "lease_token": job["lease_token"]}
        answer = self._http.put(f"{self._path}/jobs/{job['job_id']}/complete", json=body)
        self.answers[what, answer.status_code] += 1


def verdict_for(submission_id: str) -> str:
    return "AC" if int(submission_id.split("-")[1]) % 3 else "WA"


def _submit_all(service: LiveService) -> None:
    def submit(number: int) -> int:
        answer = local.http.post(
            "/submissions",
            data={
                "problem_id": str(1 + number % 2),
                "language": "2",
                "username": ("ada", "bob")[number % 2],
                "submission_id": f"c-{number}",
            },
            files={"code": ("main.py", b"print(1)")},
        )
        return answer.status_code

    local = threading.local()
    opened: list[httpx.Client] = []

    def open_client() -> None:
        local.http = service.admin()
        opened.append(local.http)

    with ThreadPoolExecutor(8, initializer=open_client) as pool:
        statuses = Counter(pool.map(submit, range(JOBS)))
    for client in opened:
        client.close()
    assert statuses == {201: JOBS}


def test_four_api_processes_and_32_clients_land_every_job_once(
    crowd_service: LiveService, mongo_client: MongoClient[dict[str, Any]]
) -> None:
    database = MongoClient(crowd_service.environment["MONGODB_URI"], tz_aware=True)
    try:
        _run(crowd_service, database.get_default_database())
    finally:
        database.close()


def _run(service: LiveService, database: Any) -> None:
    _submit_all(service)
    finished = threading.Event()
    clients: list[Client] = []
    with ExitStack() as stack, ThreadPoolExecutor(CLIENTS) as pool:
        for number in range(CLIENTS):
            clients.append(Client(service, number, finished))
            stack.callback(clients[-1].close)
        stack.callback(finished.set)
        working = [pool.submit(client.work) for client in clients]
        until = time.monotonic() + LIMIT_S
        seen: dict[str, dict[str, Any]] = {}
        while time.monotonic() < until:
            _watch(database, seen)
            if database.jobs.count_documents({"state": {"$ne": "done"}}) == 0:
                break
        finished.set()
        for future in working:
            future.result()

    jobs = list(database.jobs.find())
    assert [job["_id"] for job in jobs if job["state"] != "done"] == []
    assert len(jobs) == JOBS
    rules = LeaseRules(lease_ttl_s=LEASE_TTL_S, max_attempts=20, retry_pauses_s=(), give_up_s=0)
    assert check_database(database, rules) == []
    for submission in database.submissions.find():
        expected = {"AC": 0, "WA": 1}[verdict_for(submission["_id"])]
        assert submission["status"] == expected
    for job in jobs:
        _check_history(job)
    _check_counters(database)
    answers = sum((client.answers for client in clients), Counter())
    assert not [key for key in answers if key[1] >= 500 and key[1] != 503], answers
    assert answers["late", 409] > 0, "nobody came back late: the test did not test it"
    assert answers["complete", 204] + answers["late", 204] >= JOBS


def _watch(database: Any, seen: dict[str, dict[str, Any]]) -> None:
    """Look at every job from outside: the fence and the attempts never go back."""
    for job in database.jobs.find({}, {"fence": 1, "attempts": 1}):
        before = seen.get(job["_id"])
        if before is not None:
            assert job["fence"] >= before["fence"], (before, job)
            assert job["attempts"] >= before["attempts"], (before, job)
        seen[job["_id"]] = job


def _check_history(job: dict[str, Any]) -> None:
    """No lease was held twice at any moment; exactly one landing ended."""
    owner = None
    taken_at = None
    ends = 0
    for entry in job["history"]:
        match entry["event"]:
            case "claim":
                assert owner is None, job["history"]
                owner, taken_at = entry["runner_id"], entry["at"]
            case "reclaim":
                # Heartbeats only push the deadline out, so it cannot have passed any earlier.
                assert taken_at is not None
                assert (entry["at"] - taken_at).total_seconds() >= LEASE_TTL_S, job["history"]
                owner, taken_at = entry["runner_id"], entry["at"]
            case "complete_begins" | "complete_restore":
                assert entry["runner_id"] == owner, job["history"]
            case "complete_ends":
                assert entry["runner_id"] == owner, job["history"]
                ends += 1
            case "enqueue":
                pass
            case other:
                raise AssertionError(other)
    assert ends == 1, job["history"]


def _check_counters(database: Any) -> None:
    for number, name in enumerate(("ada", "bob")):
        ids = [f"c-{n}" for n in range(JOBS) if n % 2 == number]
        accepted = [i for i in ids if verdict_for(i) == "AC"]
        user = database.users.find_one({"_id": name})
        assert user["submission"] == len(ids)
        assert user["AC_submission"] == len(accepted)
        assert user["AC_problem_ids"] == [1 + number]
