"""The API's own description, thrown at the live service on the real database.

Every operation with every check that schemathesis has: nothing ends in a 5xx, no status and no
body is one that the description does not know, and what it calls wrong is refused. The requests
are the same at every run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.factories import result_body
from tests.live import ROOT, LiveService

CONFIG = "tests/fuzz/schemathesis.toml"
FUZZ = ("--phases", "examples,coverage,fuzzing")
SHARES = {
    # About as long as each other; the machine has two cores.
    "people": (*FUZZ, "--exclude-tag", "administering", "--exclude-tag", "rejudging"),
    "admins": (*FUZZ, "--include-tag", "administering", "--include-tag", "rejudging"),
    "stateful": ("--phases", "stateful"),
}
LIMIT_S = 900


def standing_things(service: LiveService) -> dict[str, str]:
    """Make what the fuzzer is told of: see `hooks`. Returns its environment."""
    with service.admin() as admin:
        key = admin.post("/users/ada/keys").json()["key"]
        homework = {
            "name": "homework",
            "start": "2020-01-01T00:00:00Z",
            "end": "2050-01-01T00:00:00Z",
            "problem_ids": [1],
            "students": ["ada", "bob"],
        }
        admin.put("/homeworks/hw", json=homework).raise_for_status()
        token = service.environment["RUNNER_REGISTRATION_TOKEN"]
        wish = {"registration_token": token, "name": "standing"}
        runner = admin.post("/runners/register", json=wish).raise_for_status().json()
        with httpx.Client(
            base_url=f"{service.url}/runners/{runner['runner_id']}",
            headers={"Authorization": f"Bearer {runner['token']}"},
        ) as judging:
            submit(admin, "sn_judged")
            job = judging.get("/next-job?wait=10").json()
            judging.put(
                f"/jobs/{job['job_id']}/complete", json=result_body("AC")
            ).raise_for_status()
            submit(admin, "sn_held")
            link = judging.get("/next-job?wait=10").json()["code_url"].rpartition("/")[2]
        rejudge = admin.post("/rejudges", json={"username": "bob"}).raise_for_status().json()
    return {
        "FUZZ_ADMIN_KEY": service.environment["ADMIN_API_KEY"],
        "FUZZ_USER_KEY": key,
        "FUZZ_RUNNER_ID": runner["runner_id"],
        "FUZZ_RUNNER_TOKEN": runner["token"],
        "FUZZ_REGISTRATION_TOKEN": token,
        "FUZZ_REJUDGE_ID": rejudge["rejudge_id"],
        "FUZZ_LINK_TOKEN": link,
    }


def submit(admin: httpx.Client, submission_id: str) -> None:
    form = {"problem_id": "1", "language": "2", "username": "ada", "submission_id": submission_id}
    code = {"code": ("main.py", b"print(input())\n")}
    admin.post("/submissions", data=form, files=code).raise_for_status()


def fuzz(
    url: str, environment: dict[str, str], share: str, folder: Path
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", CONFIG, "--no-color"]
    with (folder / f"{share}.txt").open("w") as told:
        return subprocess.Popen(
            [*command, "run", f"{url}/openapi.json", *SHARES[share]],
            cwd=ROOT,
            env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
            stdout=told,
            stderr=subprocess.STDOUT,
        )


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_nothing_that_is_sent_makes_it_fail_or_answer_what_it_does_not_describe(
    shared_service: LiveService, tmp_path: Path
) -> None:
    environment = standing_things(shared_service)
    running = {share: fuzz(shared_service.url, environment, share, tmp_path) for share in SHARES}
    try:
        codes = {share: process.wait(LIMIT_S) for share, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    told = {share: (tmp_path / f"{share}.txt").read_text() for share in SHARES}
    assert not any(codes.values()), "\n".join(told[share] for share in codes if codes[share])
    tested = [int(re.findall(r"Tested: (\d+)", text)[0]) for text in told.values()]
    operations = [int(re.findall(r"selected / (\d+) total", text)[0]) for text in told.values()]
    assert sum(tested[:2]) == operations[0] > 40
    cases = [int(re.findall(r"(\d+) generated", text)[0]) for text in told.values()]
    assert sum(cases) > 40 * operations[0]
    assert "unforeseen_error" not in shared_service.log.read_text()
