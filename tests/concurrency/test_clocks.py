"""I2 with API hosts five minutes fast and five minutes slow, side by side on one database."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient

from tests.factories import ADMIN_KEY, REGISTRATION_TOKEN, packed_testdata, result_body, task_bodies

SKEW_S = 300
LEASE_TTL = timedelta(seconds=30)


class Host:
    """One API process with a wrong wall clock."""

    def __init__(self, uri: str, fast_s: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.concurrency.skewed_api", uri, str(fast_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, method: str, path: str, key: str, body: Any = None) -> dict[str, Any]:
        """Send a request; return its status, body, and what the process takes for the time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        headers = {"Authorization": f"Bearer {key}"}
        wish = {"method": method, "path": path, "headers": headers, "json": body}
        self._process.stdin.write(json.dumps(wish) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


class Hosts:
    """A fast and a slow host, a runner at each, one submission."""

    def __init__(self, uri: str, client: MongoClient[dict[str, Any]]) -> None:
        self.client = client
        self.database = client.get_database(uri.rpartition("/")[2].partition("?")[0])
        self.hosts = {"fast": Host(uri, SKEW_S), "slow": Host(uri, -SKEW_S)}
        self.runners = {name: self._register(name) for name in self.hosts}

    def _register(self, name: str) -> dict[str, str]:
        body = {"registration_token": REGISTRATION_TOKEN, "name": name}
        runner: dict[str, str] = self.hosts[name].call("POST", "/runners/register", "", body)[
            "body"
        ]
        return runner

    def ask(self, host: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Have the runner at `host` ask there."""
        runner = self.runners[host]
        path = f"/runners/{runner['runner_id']}/{path}"
        return self.hosts[host].call(method, path, runner["token"], body)

    def server_now(self) -> datetime:
        now: datetime = self.client.admin.command("hello")["localTime"]
        return now.replace(tzinfo=UTC)

    def job(self) -> dict[str, Any]:
        job = self.database["jobs"].find_one({})
        assert job is not None
        return job

    def set_deadline(self, from_now: timedelta) -> None:
        """Have the lease run out then, by the database server's clock."""
        deadline = {"lease_deadline": self.server_now() + from_now}
        self.database["jobs"].update_one({}, {"$set": deadline})

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()


@pytest.fixture
def hosts(mongo_uri: str, mongo_client: MongoClient[dict[str, Any]]) -> Iterator[Hosts]:
    made = Hosts(mongo_uri, mongo_client)
    try:
        _submit(made)
        yield made
    finally:
        made.close()


def _submit(hosts: Hosts) -> None:
    """A problem and a submission, written as the service writes them."""
    admin = hosts.hosts["fast"]
    hosts.database["users"].insert_one({"_id": "ada", "version": 0})
    hosts.database["submissions"].insert_one(
        {
            "_id": "s1",
            "username": "ada",
            "problem_id": 1,
            "language": 2,
            "code_blob": "none",
            "submitted_at": hosts.server_now(),
            "status": -1,
            "job_id": "jb_1",
            "fence": 0,
        }
    )
    problem = {"name": "one", "tasks": task_bodies((100, 1)), "allowed_languages": [2]}
    assert admin.call("PUT", "/problems/1", ADMIN_KEY, problem)["status"] == 201
    hosts.database["problems"].update_one(
        {"_id": 1},
        {
            "$set": {
                "ready": True,
                "testdata": [
                    {
                        "sha256": "0" * 64,
                        "blob_id": "none",
                        "case_counts": [1],
                        "size_bytes": len(packed_testdata(1)),
                        "replaced_at": None,
                    }
                ],
            }
        },
    )


@pytest.mark.parametrize(("first", "second"), [("fast", "slow"), ("slow", "fast")])
def test_i2_wrong_wall_clocks_reclaim_nothing_early_and_keep_nothing_for_ever(
    hosts: Hosts, first: str, second: str
) -> None:
    taken = hosts.ask(first, "GET", "next-job")
    assert taken["status"] == 200, taken
    expected_s = SKEW_S if first == "fast" else -SKEW_S
    assert taken["wall"] - hosts.server_now().timestamp() == pytest.approx(expected_s, abs=30)
    assert taken["now"] == pytest.approx(hosts.server_now().timestamp(), abs=30)

    # Nobody else gets it, at either host, while the lease lasts by the server's clock.
    left = hosts.job()["lease_deadline"] - hosts.server_now()
    assert timedelta(0) < left <= LEASE_TTL + timedelta(seconds=1)
    hosts.set_deadline(timedelta(seconds=60))
    assert hosts.ask(second, "GET", "next-job")["status"] == 204

    # A heartbeat at the other host would renew it; the deadline is the server's again.
    hosts.set_deadline(timedelta(seconds=5))
    beat = {"active_job_ids": [taken["body"]["job_id"]]}
    hosts.ask(first, "POST", "heartbeat", beat)
    assert hosts.job()["lease_deadline"] - hosts.server_now() > timedelta(seconds=5)

    # The lease is over by the server's clock: whoever polls has it.
    hosts.set_deadline(timedelta(milliseconds=-1))
    again = hosts.ask(second, "GET", "next-job")
    assert (again["status"], again["body"]["attempt"]) == (200, 2)
    result = {**result_body("AC"), "lease_token": taken["body"]["lease_token"]}
    path = f"jobs/{taken['body']['job_id']}/complete"
    assert hosts.ask(first, "PUT", path, result)["status"] == 409
    result["lease_token"] = again["body"]["lease_token"]
    assert hosts.ask(second, "PUT", path, result)["status"] == 204
    assert hosts.job()["outcome"] == "verdict"
