"""Bulk rejudges on a live service: they move on by themselves, also past a killed process."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import httpx
from pymongo import MongoClient

from tests.live import LiveService, prepare, start_service

MANY = 400
LIMIT_S = 60


def hand_in(admin: httpx.Client, submission_id: str) -> None:
    admin.post(
        "/submissions",
        data={"problem_id": 1, "language": 2, "username": "ada", "submission_id": submission_id},
        files={"code": ("main.py", b"print(1)\n")},
    ).raise_for_status()


def judge_one(service: LiveService, admin: httpx.Client) -> None:
    token = service.environment["RUNNER_REGISTRATION_TOKEN"]
    runner = admin.post("/runners/register", json={"registration_token": token, "name": "r"}).json()
    mine = {"Authorization": f"Bearer {runner['token']}"}
    path = f"/runners/{runner['runner_id']}"
    job = admin.get(f"{path}/next-job", params={"wait": 10}, headers=mine).json()
    case = {
        "exitCode": 0, "status": "AC", "stdout": "", "stderr": "", "execTime": 1, "memoryUsage": 1,
    }  # fmt: skip
    admin.put(
        f"{path}/jobs/{job['job_id']}/complete", headers=mine, json={"tasks": [[case]]}
    ).raise_for_status()


def multiply(database: Any, number: int) -> None:
    """Make copies of the one judged submission, with finished jobs."""
    submission, job = database["submissions"].find_one(), database["jobs"].find_one()
    names = [f"b{index:05}" for index in range(number - 1)]
    database["submissions"].insert_many([{**submission, "_id": name} for name in names])
    database["jobs"].insert_many(
        [{**job, "_id": name, "job_id": f"jb_{name}", "replaced_ids": []} for name in names]
    )


def queued(admin: httpx.Client, rejudge_id: str, at_least: int) -> int:
    """Wait until so many are queued; return how many are."""
    until = time.monotonic() + LIMIT_S
    count = 0
    while time.monotonic() < until:
        count = admin.get(f"/rejudges/{rejudge_id}").raise_for_status().json()["queued"]
        if count >= at_least:
            return count
        time.sleep(0.05)
    raise TimeoutError(f"{count} of {at_least} are queued")


def test_i8_a_bulk_rejudge_goes_on_after_every_process_was_killed(
    mongo_uri: str, mongo_client: MongoClient[dict[str, Any]], tmp_path: Path
) -> None:
    service = start_service(mongo_uri, tmp_path / "service.log")
    try:
        with service.admin() as admin:
            prepare(admin)
            hand_in(admin, "s")
            judge_one(service, admin)
            multiply(
                mongo_client.get_database(mongo_uri.rpartition("/")[2].partition("?")[0]), MANY
            )
            begun = time.monotonic()
            answer = admin.post("/problems/1/rejudge")
            answered_s = time.monotonic() - begun
            assert answer.status_code == 202
            rejudge_id = answer.json()["rejudge_id"]
            queued(admin, rejudge_id, 1)
            service.stop(signal.SIGKILL)
    finally:
        if service.process.poll() is None:
            service.stop()
    key = service.environment["ADMIN_API_KEY"]
    again = start_service(mongo_uri, tmp_path / "again.log", ADMIN_API_KEY=key)
    try:
        with again.admin() as admin:
            begun = time.monotonic()
            assert queued(admin, rejudge_id, MANY) == MANY
            print(
                f"202 after {answered_s:.3f} s, all queued {time.monotonic() - begun:.1f} s later"
            )
            hand_in(admin, "fresh")
            judge_one(again, admin)
            assert admin.get("/submissions/fresh").json()["verdict"] == "AC"
    finally:
        assert again.stop() == 0
