"""The reference runner is checked by the service, knows nothing of it, and judges; a field runner
that makes its verdicts up gets nothing to judge.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mongo.known_programs import PROBLEM_ID
from tests.factories import case_body
from tests.live import ROOT, LiveService, prepare, start_service

C, CPP, PYTHON = 0, 1, 2
PROGRAMS = {
    C: b'#include <stdio.h>\nint main(void) { puts("1"); return 0; }',
    CPP: b'#include <iostream>\nint main() { std::cout << "1" << std::endl; }',
    PYTHON: b"print(1)",
}
PROBATION_S_MAX = 60


@pytest.fixture
def checking_service(mongo_uri: str, tmp_path: Path) -> Iterator[LiveService]:
    """A service as it comes: it checks its runners."""
    service = start_service(
        mongo_uri, tmp_path / "service.log", RUNNER_CHECKS="on", WEB_CONCURRENCY="2"
    )
    with service.admin() as admin:
        prepare(admin)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.stop()


def submit(admin: httpx.Client, language: int) -> str:
    form = {"problem_id": "1", "language": str(language), "username": "ada"}
    answer = admin.post("/submissions", data=form, files={"code": PROGRAMS[language]})
    answer.raise_for_status()
    return str(answer.json()["submission_id"])


def verdict(admin: httpx.Client, submission_id: str) -> str:
    view: Any = {}
    for _ in range(3):
        view = admin.get(f"/submissions/{submission_id}", params={"wait": 30}).json()
        if view["status"] != -1:
            break
    return str(view["verdict"])


@pytest.mark.parametrize("slots", [1, 2])
def test_the_reference_runner_passes_its_probation_and_judges(
    checking_service: LiveService, tmp_path: Path, slots: int
) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("BUBBLEWRAP IS MISSING: the runner's isolation is NOT tested here")
    environment = os.environ | {
        "BACKEND_URL": checking_service.url,
        "RUNNER_REGISTRATION_TOKEN": checking_service.environment["RUNNER_REGISTRATION_TOKEN"],
        "RUNNER_CACHE_DIR": str(tmp_path / "cache"),
        "RUNNER_JOBS": str(slots),
    }
    with checking_service.admin() as admin, (tmp_path / "runner.log").open("wb") as log:
        ids = [submit(admin, language) for language in PROGRAMS]
        process = subprocess.Popen(
            [sys.executable, "-m", "runner"], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
        try:
            assert [verdict(admin, one) for one in ids] == ["AC", "AC", "AC"]
            (runner,) = admin.get("/runners").json()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert runner["set_aside"] is None
    assert runner["done"] == 3
    checks = runner["checks"]
    assert (checks["on_probation"], checks["unproven"], checks["failed"]) == (False, [], None)
    told = (tmp_path / "service.log").read_text()
    assert told.count('"runner_check_passed"') == 4
    print("share of the first minute:", checks["share"])
    assert 0 < checks["share"] < PROBATION_S_MAX / 60


@pytest.mark.parametrize("said", ["AC", "CE"])
def test_a_field_runner_that_always_says_the_same_gets_no_job(
    checking_service: LiveService, said: str
) -> None:
    token = checking_service.environment["RUNNER_REGISTRATION_TOKEN"]
    with checking_service.admin() as admin:
        ids = [submit(admin, language) for language in PROGRAMS]
        wish = {"registration_token": token, "name": "field"}
        runner = admin.post("/runners/register", json=wish).json()
        base = f"{checking_service.url}/runners/{runner['runner_id']}"
        headers = {"Authorization": f"Bearer {runner['token']}"}
        with httpx.Client(headers=headers, timeout=40) as field:
            given = list(_play(field, base, said))
        assert given
        assert {payload["problem_id"] for payload in given} == {PROBLEM_ID}
        (told,) = admin.get("/runners").json()
        assert f"It said {said} of a check" in told["set_aside"]["why"]
        assert {admin.get(f"/submissions/{one}").json()["verdict"] for one in ids} == {"PENDING"}
        assert "dispatch_runners_set_aside 1.0" in admin.get("/metrics").text


def _play(field: httpx.Client, base: str, said: str) -> Iterator[dict[str, Any]]:
    """Fetch, judge without looking and complete, as a runner does that knows nothing of checks."""
    until = time.monotonic() + 6
    while time.monotonic() < until:
        answer = field.get(f"{base}/next-job")
        if answer.status_code == 204:
            time.sleep(0.2)
            continue
        payload = answer.json()
        for link in ("code_url", "testdata_url"):
            assert field.get(payload[link]).status_code == 200
        result = {"tasks": [[case_body(said)] * task["caseCount"] for task in payload["tasks"]]}
        done = field.put(f"{base}/jobs/{payload['job_id']}/complete", json=result)
        assert done.status_code == 204
        yield payload
