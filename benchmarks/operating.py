"""What operators wait for: a bulk rejudge over HTTP, and the console's pages on a large archive.

`python -m benchmarks.operating [--archive N] [--rejudged N] [--tries N]` prints two tables. The
service is `serve.py` with two processes on a server of its own, in a temporary folder: first it
takes in a bulk rejudge of `--rejudged` submissions, and while they wait, fresh submissions are
handed in one by one and the next job is claimed; then each page is fetched `--tries` times.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from pymongo import MongoClient, WriteConcern
from pymongo.database import Database
from rich.console import Console
from rich.table import Table

from mongo.embedded import EmbeddedMongo
from tests.live import LiveService, prepare, start_service

DATABASE = "operating"
REJUDGED_PROBLEM, OTHER_PROBLEM = 1, 2
STUDENTS = 500
INSERTED_AT_ONCE = 5_000
QUEUED_S_MAX = 300
TOKEN = re.compile(r'name="form_token" value="([^"]+)"')

Document = dict[str, Any]


class Runner:
    """A runner over HTTP."""

    def __init__(self, service: LiveService, admin: httpx.Client) -> None:
        token = service.environment["RUNNER_REGISTRATION_TOKEN"]
        body = {"registration_token": token, "name": "bench"}
        made = admin.post("/runners/register", json=body).raise_for_status().json()
        self._http = admin
        self._path = f"/runners/{made['runner_id']}"
        self._mine = {"Authorization": f"Bearer {made['token']}"}

    def claim(self) -> Document:
        answer = self._http.get(f"{self._path}/next-job", headers=self._mine)
        if answer.status_code != 200:
            raise RuntimeError(f"no job: {answer.status_code}")
        job: Document = answer.json()
        return job

    def complete(self, job: Document) -> None:
        case = {
            "exitCode": 0,
            "status": "AC",
            "stdout": "1\n",
            "stderr": "",
            "execTime": 1,
            "memoryUsage": 1,
        }
        self._http.put(
            f"{self._path}/jobs/{job['job_id']}/complete",
            headers=self._mine,
            json={"tasks": [[case]]},
        ).raise_for_status()


def hand_in(admin: httpx.Client, submission_id: str, problem_id: int) -> None:
    admin.post(
        "/submissions",
        data={
            "problem_id": problem_id,
            "language": 2,
            "username": "ada",
            "submission_id": submission_id,
        },
        files={"code": ("main.py", b"print(1)\n")},
    ).raise_for_status()


# -- what there is -------------------------------------------------------------------------


def multiply(database: Database[Document], archive: int, rejudged: int) -> None:
    """Make copies of the one judged submission and its job, of many students."""
    submission, job = database["submissions"].find_one(), database["jobs"].find_one()
    if submission is None or job is None:
        raise RuntimeError("nothing has been judged")
    students = [f"student{number}" for number in range(STUDENTS)]
    user = database["users"].find_one({"_id": "ada"}) or {}
    database["users"].insert_many([{**user, "_id": name} for name in students])

    def submissions() -> Iterator[Document]:
        for number in range(archive):
            yield {
                **submission,
                "_id": f"sn_{number:07}",
                "username": students[number % STUDENTS],
                "problem_id": REJUDGED_PROBLEM if number < rejudged - 1 else OTHER_PROBLEM,
                "submitted_at": submission["submitted_at"] - timedelta(minutes=archive - number),
            }

    def jobs() -> Iterator[Document]:
        for number in range(archive):
            yield {
                **job,
                "_id": f"sn_{number:07}",
                "job_id": f"jb_{number:07}",
                "claim_id": f"c{number}",
                "done_at": job["done_at"] - timedelta(minutes=archive - number),
            }

    for name, documents in (("submissions", submissions()), ("jobs", jobs())):
        fast = database.get_collection(name, write_concern=WriteConcern(1, j=False))
        while batch := list(itertools.islice(documents, INSERTED_AT_ONCE)):
            fast.insert_many(batch, ordered=False)


def put_homework(admin: httpx.Client, now: Any) -> None:
    body = {
        "name": "A class",
        "start": (now - timedelta(days=900)).isoformat(timespec="seconds"),
        "end": (now + timedelta(days=1)).isoformat(timespec="seconds"),
        "problem_ids": [REJUDGED_PROBLEM],
        "students": [f"student{number}" for number in range(200)],
    }
    admin.put("/homeworks/class", json=body, timeout=300).raise_for_status()


# -- measuring -----------------------------------------------------------------------------


def rejudge(admin: httpx.Client, runner: Runner, tries: int) -> tuple[str, list[tuple[str, str]]]:
    """Start the bulk rejudge; return its id and what was measured, in words."""
    began = time.perf_counter()
    started = admin.post(f"/problems/{REJUDGED_PROBLEM}/rejudge").raise_for_status().json()
    taken_in_s = time.perf_counter() - began
    path = f"/rejudges/{started['rejudge_id']}"
    while (view := admin.get(path).raise_for_status().json())["queued"] < started["total"]:
        if time.perf_counter() - began > QUEUED_S_MAX:
            raise RuntimeError(f"only {view['queued']} of {started['total']} are queued")
        time.sleep(0.1)
    queued_s = time.perf_counter() - began
    first, claim_ms = 0, []
    for number in range(tries):
        hand_in(admin, f"fresh_{number}", OTHER_PROBLEM)
        asked = time.perf_counter()
        job = runner.claim()
        claim_ms.append((time.perf_counter() - asked) * 1000)
        first += job["submission_id"] == f"fresh_{number}"
        runner.complete(job)
    return started["rejudge_id"], [
        ("submissions in the bulk rejudge", f"{started['total']:,}"),
        ("seconds until 202", f"{taken_in_s:.3f}"),
        ("seconds until all are queued", f"{queued_s:.1f}"),
        ("a fresh submission is the next claimed", f"{first} of {tries} tries"),
        ("median ms of those claims", f"{median(claim_ms):.1f}"),
    ]


def pages(service: LiveService, rejudge_id: str, tries: int) -> Iterator[tuple[str, float, float]]:
    """Yield each page with its median and its slowest, in ms."""
    with httpx.Client(base_url=service.url, timeout=120) as browser:
        form = TOKEN.search(browser.get("/console/sign-in").text)
        if form is None:
            raise RuntimeError("the console shows no form")
        key = service.environment["ADMIN_API_KEY"]
        sent = {"form_token": unescape(form[1]), "key": key}
        browser.post("/console/sign-in", data=sent)
        for path in (
            "",
            "/queue",
            "/runners",
            "/submissions",
            "/submissions?username=student7",
            "/submissions?verdict=AC&problem_id=2",
            "/submissions/fresh_0",
            "/submissions/fresh_0/cases/0/0",
            "/judge-errors",
            "/rejudges",
            f"/rejudges/{rejudge_id}",
            f"/rejudges/{rejudge_id}/students",
            "/homeworks",
            "/homeworks/class",
        ):
            took_ms = []
            for _ in range(tries + 1):
                began = time.perf_counter()
                answer = browser.get(f"/console{path}")
                took_ms.append((time.perf_counter() - began) * 1000)
                if answer.status_code != 200:
                    raise RuntimeError(f"/console{path}: {answer.status_code}")
            # The first one compiles the template.
            yield path.replace(rejudge_id, "ID") or "(overview)", median(took_ms[1:]), max(took_ms)


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description="What operators wait for.")
    parser.add_argument("--archive", type=int, default=100_000)
    parser.add_argument("--rejudged", type=int, default=2_000)
    parser.add_argument("--tries", type=int, default=50)
    wish = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedMongo(Path(folder) / "db") as server:
        uri = server.uri_for(DATABASE)
        service = start_service(uri, Path(folder) / "service.log", WEB_CONCURRENCY="2")
        try:
            with service.admin() as admin, MongoClient(uri, tz_aware=True) as client:
                prepare(admin)
                runner = Runner(service, admin)
                hand_in(admin, "first", REJUDGED_PROBLEM)
                runner.complete(runner.claim())
                database: Database[Document] = client[DATABASE]
                multiply(database, wish.archive, wish.rejudged)
                submitted_at = (database["submissions"].find_one({"_id": "first"}) or {})[
                    "submitted_at"
                ]
                put_homework(admin, submitted_at)
                rejudge_id, measured = rejudge(admin, runner, wish.tries)
                shown = list(pages(service, rejudge_id, wish.tries))
        finally:
            service.stop()
    console = Console()
    load = f"load average at the end {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors"
    table = Table("a bulk rejudge", "", title=load)
    for row in measured:
        table.add_row(*row)
    console.print(table)
    table = Table("console page", "median ms", "slowest ms", title=f"{wish.archive:,} submissions")
    for path, median_ms, slowest_ms in shown:
        table.add_row(path, f"{median_ms:.0f}", f"{slowest_ms:.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
