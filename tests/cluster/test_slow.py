"""Slow is not dead: what is late is fenced off or goes on, and nothing is counted twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dispatch import job as verbs
from dispatch.invariants import check_database
from dispatch.job import Ended
from tests.factories import Runner, Service, results
from tests.live import ROOT, LiveService, prepare

LEASE_S, PAUSE_S, HOUR_S = 30, 40, 3600


@pytest.fixture
def two(service: Service) -> tuple[Runner, Runner]:
    service.user("ada")
    service.problem(1)
    service.homework("hw", [1], ["ada"])
    service.submit("ada", 1, "s1")
    return service.runner("slow"), service.runner("other")


def complete_slowly(service: Service, runner: Runner, job_id: str, meanwhile: Any) -> Ended:
    """Complete with AC; `meanwhile` happens between the landing's begin and its first write."""

    def slow_landing(**landing: Any) -> Any:
        meanwhile()
        return service.services.process_result(**landing)

    return verbs.complete_job(
        service.services.queue,
        runner.runner_id,
        job_id,
        results("AC"),
        process_result=slow_landing,
        now=service.clock,
    )


def test_i3_a_landing_slower_than_its_lease_is_refused_once_the_job_is_anothers(
    service: Service, two: tuple[Runner, Runner]
) -> None:
    slow, other = two
    job_id = service.claim(slow)["job_id"]

    def another_judges_it() -> None:
        service.clock.advance(PAUSE_S)
        service.judge(other, "s1", "WA")

    assert complete_slowly(service, slow, job_id, another_judges_it) is Ended.LEASE_LOST
    assert service.view("s1")["verdict"] == "WA"
    assert service.counters("ada") == (1, 0, [])
    assert service.standing("hw", "ada", 1)["submissionIds"] == ["s1"]
    assert check_database(service.database) == []


def test_a_landing_slower_than_its_lease_stands_while_nobody_else_came(
    service: Service, two: tuple[Runner, Runner]
) -> None:
    slow, other = two
    job_id = service.claim(slow)["job_id"]
    ended = complete_slowly(service, slow, job_id, lambda: service.clock.advance(PAUSE_S))
    assert ended is Ended.LANDED
    assert service.claim(other) is None
    assert service.counters("ada") == (1, 1, [1])


def test_i3_a_landing_slower_than_its_lease_keeps_the_job_while_its_runner_beats(
    service: Service, two: tuple[Runner, Runner]
) -> None:
    slow, other = two
    job_id = service.claim(slow)["job_id"]

    def beats_on() -> None:
        for _ in range(4):
            service.clock.advance(LEASE_S / 2)
            body = {"active_job_ids": [job_id], "report_lost": True}
            beat = service.ok("POST", slow.path("heartbeat"), key=slow.token, json=body)
            assert beat == {"lost_job_ids": []}
            assert service.claim(other) is None

    assert complete_slowly(service, slow, job_id, beats_on) is Ended.LANDED
    assert service.view_job("s1")["attempts"] == 1


def test_i3_a_resend_in_place_of_a_landing_that_hangs_lands_once(
    service: Service, two: tuple[Runner, Runner]
) -> None:
    slow, _ = two
    job_id = service.claim(slow)["job_id"]

    def resends() -> None:
        assert service.complete(slow, job_id, "AC", may_fail=True).status_code == 503
        service.clock.advance(service.services.queue.rules.landing_ttl_s)
        assert service.complete(slow, job_id, "AC").status_code == 204

    assert complete_slowly(service, slow, job_id, resends) is Ended.ALREADY_LANDED
    assert service.counters("ada") == (1, 1, [1])
    assert check_database(service.database) == []


def test_i2_a_runner_that_pauses_past_its_lease_loses_what_another_took(
    service: Service, two: tuple[Runner, Runner]
) -> None:
    paused, other = two
    job_id = service.claim(paused)["job_id"]
    service.clock.advance(PAUSE_S)
    taken = service.claim(other)
    assert (taken["job_id"], taken["attempt"]) == (job_id, 2)
    body = {"active_job_ids": [job_id], "report_lost": True}
    beat = service.ok("POST", paused.path("heartbeat"), key=paused.token, json=body)
    assert beat == {"lost_job_ids": [job_id]}
    assert service.complete(paused, job_id, "AC").status_code == 409
    assert service.complete(other, job_id, "WA").status_code == 204
    assert service.view("s1")["verdict"] == "WA"


def test_i2_a_runner_that_pauses_past_its_lease_goes_on_where_nobody_came(
    service: Service, two: tuple[Runner, Runner]
) -> None:
    paused, other = two
    job_id = service.claim(paused)["job_id"]
    service.clock.advance(PAUSE_S)
    body = {"active_job_ids": [job_id]}
    service.ok("POST", paused.path("heartbeat"), key=paused.token, json=body)
    assert service.claim(other) is None
    assert service.complete(paused, job_id, "AC").status_code == 204
    assert service.view_job("s1")["attempts"] == 1


@pytest.mark.slow
def test_reference_runners_whose_clocks_are_an_hour_off_judge(
    live_service: LiveService, tmp_path: Path
) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("BUBBLEWRAP IS MISSING: no runner, NOT tested here")
    with live_service.admin() as admin:
        prepare(admin)
        for fast_s in (HOUR_S, -HOUR_S):
            log = tmp_path / f"runner{fast_s}.log"
            with runner_with_clock(live_service, fast_s, log):
                shown = judged(admin, f"s{abs(fast_s)}-{fast_s > 0:d}")
            assert (shown["verdict"], shown["job"]["attempts"]) == ("AC", 1), log.read_text()


@contextmanager
def runner_with_clock(service: LiveService, fast_s: int, log: Path) -> Iterator[None]:
    """A reference runner whose host's wall clock is so far ahead."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(log.parent),
        "BACKEND_URL": service.url,
        "RUNNER_REGISTRATION_TOKEN": service.environment["RUNNER_REGISTRATION_TOKEN"],
        "RUNNER_JOBS": "1",
    }
    with log.open("wb") as out:
        runner = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.skewed_runner", str(fast_s)],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=out,
        )
    try:
        yield
    finally:
        runner.terminate()
        runner.wait(30)


def judged(admin: httpx.Client, submission_id: str) -> Any:
    """Hand something in and wait for its verdict; return what is shown."""
    form = {
        "problem_id": "1",
        "language": "2",
        "username": "ada",
        "submission_id": submission_id,
    }
    files = {"code": ("main.py", b"print(input())\n")}
    admin.post("/submissions", data=form, files=files).raise_for_status()
    for _ in range(3):
        shown = admin.get(f"/submissions/{submission_id}?wait=30").json()
        if shown["verdict"] != "PENDING":
            break
    return shown
