"""Restarts under load: nobody who keeps to the contract notices, and no attempt is spent."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from dispatch.lease import LeaseRules
from tests.cluster.load import Load
from tests.live import LiveService, prepare, start_service

STOP_S_MAX = 10.0
RUNNERS = 6


def landed(diary: list[dict[str, Any]]) -> int:
    return sum(entry["kind"] == "complete" and entry["status"] == 204 for entry in diary)


@pytest.mark.slow
def test_the_api_and_all_runners_roll_under_load_and_no_attempt_is_spent(
    mongo_uri: str, tmp_path: Path
) -> None:
    with Load(mongo_uri, tmp_path, apis=2, runners=RUNNERS, clients=12, pause_s=0.5) as load:
        load.await_noted(lambda diary: landed(diary) >= 10, 60)
        for api in load.apis:
            assert api.stop() < STOP_S_MAX
            api.start()
            api.await_ready()
        for number in range(RUNNERS):
            load.runners[number].finish(30)
            assert load.runners[number].process.returncode == 0
            load.runners[number] = load.runner(f"{number}-new")
        before = landed(load.diary())
        load.await_noted(lambda diary: landed(diary) >= before + 5, 60)
        load.finish()
        assert load.findings(LeaseRules()) == []
        with load.client() as client:
            jobs = list(client.get_default_database()["jobs"].find({}, {"attempts": 1}))
        # A claim, a result or a drain that got lost would have cost the job a lease of 30 s.
        assert {job["attempts"] for job in jobs} == {1}, jobs
        diary = load.diary()
        assert not [entry for entry in diary if entry["kind"] in ("gave_up", "gave_up_submit")]
        assert not [
            entry
            for entry in diary
            if entry["kind"] in ("complete", "abort") and entry["status"] not in (202, 204)
        ]


def test_a_stop_answers_waiting_polls_with_204_and_finishes_what_is_in_flight(
    mongo_uri: str, tmp_path: Path
) -> None:
    service = start_service(mongo_uri, tmp_path / "service.log")
    try:
        with service.admin() as admin:
            prepare(admin)
        answers = _answers_of_a_stop(service)
    finally:
        if service.process.poll() is None:
            service.stop()
    assert answers == {"poll": 204, "slow": 201}


def _answers_of_a_stop(service: LiveService) -> dict[str, int]:
    """A poll that waits and a submit whose body is not there yet, when the stop comes."""
    with service.admin() as admin:
        registered = admin.post(
            "/runners/register",
            json={
                "registration_token": service.environment["RUNNER_REGISTRATION_TOKEN"],
                "name": "r",
            },
        ).json()
    answers: dict[str, int] = {}
    half_sent, go_on = threading.Event(), threading.Event()

    def poll() -> None:
        with httpx.Client(base_url=service.url, timeout=40) as client:
            path = f"/runners/{registered['runner_id']}/next-job?wait=30"
            headers = {"Authorization": f"Bearer {registered['token']}"}
            answers["poll"] = client.get(path, headers=headers).status_code

    def slow() -> None:
        form = {"problem_id": "1", "language": "2", "username": "ada"}
        request = httpx.Request(
            "POST", service.url, data=form, files={"code": ("main.py", b"print(1)")}
        )
        whole = request.read()

        def pieces() -> Any:
            yield whole[:50]
            half_sent.set()
            go_on.wait(20)
            yield whole[50:]

        headers = {
            "Content-Type": request.headers["Content-Type"],
            "Content-Length": str(len(whole)),
        }
        with service.admin() as admin:
            answer = admin.post("/submissions", content=pieces(), headers=headers)
        answers["slow"] = answer.status_code

    threads = [threading.Thread(target=poll), threading.Thread(target=slow)]
    for thread in threads:
        thread.start()
    assert half_sent.wait(20)
    _await_waiter(service, registered)
    began = time.monotonic()
    stopping = threading.Thread(target=service.stop)
    stopping.start()
    threads[0].join(20)  # the poll is answered at once, while the other is still in flight
    go_on.set()
    threads[1].join(20)
    stopping.join(20)
    assert time.monotonic() - began < 2 * STOP_S_MAX
    return answers


def _await_waiter(service: LiveService, registered: dict[str, Any]) -> None:
    """Until the poll has been taken in: a beat after it is answered, so is the poll read."""
    headers = {"Authorization": f"Bearer {registered['token']}"}
    with httpx.Client(base_url=service.url, timeout=40) as client:
        for _ in range(5):
            path = f"/runners/{registered['runner_id']}/heartbeat"
            client.post(path, json={"active_job_ids": []}, headers=headers).raise_for_status()
