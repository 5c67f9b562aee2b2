"""Waiting runners on the real server: what wakes them, and that waiting costs nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from api import waiting
from dispatch import feed as feeding
from dispatch.feed import Feed
from dispatch.wakeup import Waiter
from mongo import user
from mongo.embedded import EmbeddedMongo
from tests.counting import Counter
from tests.factories import ADMIN_KEY, EPOCH, Runner, Service, result_body
from tests.live import LiveService, prepare, start_service

LIMIT_S = 30
"""What a hanging test costs; nothing is measured by it."""
RUNNERS = 5


class Asleep:
    """Knows how many waiters have gone to sleep with the stream up."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asleep: set[Waiter] = set()
        self.looks = 0

    def slept(self, waiter: Waiter) -> None:
        with self._changed:
            self._asleep.add(waiter)
            self._changed.notify_all()

    def looked(self, waiter: Waiter) -> None:
        with self._changed:
            self._asleep.discard(waiter)
            self.looks += 1

    def until(self, count: int, ready: Callable[[], bool] = lambda: True) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._asleep) == count and ready(), LIMIT_S)
            self.looks = 0


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> Asleep:
    made = Asleep()
    wait, look = Waiter.wait, Waiter.look

    def slept(self: Waiter, timeout_s: float) -> bool:
        if not self.woken.is_set():
            made.slept(self)
        return wait(self, timeout_s)

    def looked(self: Waiter) -> Any:
        made.looked(self)
        return look(self)

    monkeypatch.setattr(Waiter, "wait", slept)
    monkeypatch.setattr(Waiter, "look", looked)
    # So that a condition that came true is seen soon.
    monkeypatch.setattr(waiting, "LISTENS_EVERY_S", 0.02)
    return made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(RUNNERS + 2) as made:
        yield made


@pytest.fixture
def counted(
    mongod: EmbeddedMongo, mongo_client: MongoClient[dict[str, Any]]
) -> Iterator[tuple[Service, Counter]]:
    with Counter.service(mongod, mongo_client, "waiting") as (service, counter):
        user.ensure_admin_key(ADMIN_KEY, now=EPOCH)
        service.user("ada")
        service.problem(1)
        yield service, counter
        service.services.wakeup.close()


def ask(pool: ThreadPoolExecutor, service: Service, runner: Runner) -> Future[Any]:
    return pool.submit(service.ok, "GET", runner.path("next-job?wait=30"), key=runner.token)


def is_up(service: Service) -> Callable[[], bool]:
    return lambda: service.services.feed.up


def test_waiting_runners_cost_no_operation_and_one_job_wakes_one(
    counted: tuple[Service, Counter],
    asleep: Asleep,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service, counter = counted
    monkeypatch.setattr(feeding, "TICK_EVERY_S", 0.02)
    runners = [service.runner(f"r{number}") for number in range(RUNNERS)]
    asked = [ask(pool, service, runner) for runner in runners]
    asleep.until(RUNNERS, is_up(service))
    with counter.counted() as sent:
        counter.by_feed.clear()
        while counter.watched.acquire(blocking=False):
            pass
        for _ in range(9):
            assert counter.watched.acquire(timeout=LIMIT_S)
    assert sent == [], "the waiting polls themselves"
    # One thread's: the stream, and a look for orphans and at the line, at times for pauses that
    # are over, however many wait.
    watched = counter.by_feed[:9]
    assert set(watched) <= {"getMore", "find"}
    assert watched.count("find") <= 3 * watched.count("getMore") + 5

    # No tick any more: what is woken now was told of.
    monkeypatch.setattr(Feed, "tick", lambda self, **_: None)
    asleep.until(RUNNERS, is_up(service))
    service.submit_over_http(service.keys["ada"], problem_id=1, language=2)
    asleep.until(RUNNERS - 1)
    assert sum(future.done() for future in asked) <= 1
    taken = [future for future in asked if future.done() or future.running()]
    assert len(taken) == RUNNERS
    service.services.wakeup.close()
    payloads = [future.result(LIMIT_S) for future in asked]
    assert sum(payload is not None for payload in payloads) == 1


def test_what_another_process_does_is_told_by_the_stream(
    counted: tuple[Service, Counter],
    asleep: Asleep,
    pool: ThreadPoolExecutor,
    mongod: EmbeddedMongo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job is entered, a verdict lands, a runner is revoked: each in the other process."""
    monkeypatch.setattr(Feed, "tick", lambda self, **_: None)
    monkeypatch.setattr(waiting, "READS_EVERY_S", LIMIT_S * 10)
    service, _ = counted
    other = start_service(
        mongod.uri_for("waiting"), tmp_path / "other.log", ADMIN_API_KEY=ADMIN_KEY
    )
    try:
        with other.admin() as admin:
            one, two = service.runner("one"), service.runner("two")
            claim = ask(pool, service, one)
            asleep.until(1, is_up(service))
            form = {"problem_id": "1", "language": "2", "username": "ada", "submission_id": "s1"}
            answer = admin.post("/submissions", data=form, files={"code": ("main.py", b"1")})
            assert answer.status_code == 201
            job_id = claim.result(LIMIT_S)["job_id"]

            read = pool.submit(service.ok, "GET", "/submissions/s1?wait=30")
            asleep.until(1, is_up(service))
            path = one.path(f"jobs/{job_id}/complete")
            landed = admin.put(
                path,
                json=result_body("AC"),
                headers={"Authorization": f"Bearer {one.token}"},
            )
            assert landed.status_code == 204, landed.text
            assert read.result(LIMIT_S)["verdict"] == "AC"

            refused = pool.submit(service.call, "GET", two.path("next-job?wait=30"), key=two.token)
            asleep.until(1, is_up(service))
            assert admin.delete(f"/runners/{two.runner_id}").status_code == 204
            assert refused.result(LIMIT_S).status_code == 401
    finally:
        other.stop()


@pytest.mark.parametrize("code", [40573, 286])
def test_without_a_stream_jobs_and_verdicts_are_found_all_the_same(
    service: Service,
    asleep: Asleep,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    """On a standalone server, or while the stream cannot be had: others' work is looked for."""

    def refused(token: Any) -> Any:
        raise OperationFailure("no change stream", code)

    monkeypatch.setattr(service.services.feed, "_open", refused)
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    claim = ask(pool, service, runner)
    asleep.until(1)
    # Past the handlers: nobody gives a notice in this process.
    service.submit("ada", 1, "sn_1")
    job_id = claim.result(LIMIT_S)["job_id"]
    read = pool.submit(service.ok, "GET", "/submissions/sn_1?wait=30")
    asleep.until(1)
    monkeypatch.setattr(Feed, "landed", lambda self: None)
    assert service.complete(runner, job_id, "AC").status_code == 204
    assert read.result(LIMIT_S)["verdict"] == "AC"


def test_i2_a_lease_that_runs_out_is_noticed_by_those_who_wait(
    service: Service, asleep: Asleep, pool: ThreadPoolExecutor
) -> None:
    """No write tells of it: the look that the process makes each second finds it."""
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    lost = service.claim(service.runner("silent"))
    claim = ask(pool, service, service.runner("waiting"))
    asleep.until(1, is_up(service))
    service.clock.advance(31)
    assert claim.result(LIMIT_S)["job_id"] == lost["job_id"]


def test_several_freed_jobs_wake_as_many(
    service: Service, asleep: Asleep, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue goes on: one notice, and each who finds a job has the next one look."""
    monkeypatch.setattr(Feed, "tick", lambda self, **_: None)
    service.user("ada")
    service.problem(1)
    service.ok("POST", "/queue/pause", json={"why": "testing"})
    for number in range(3):
        service.submit("ada", 1, f"sn_{number}")
    asked = [ask(pool, service, service.runner(f"r{number}")) for number in range(3)]
    asleep.until(3, is_up(service))
    service.ok("POST", "/queue/resume")
    found = {future.result(LIMIT_S)["submission_id"] for future in asked}
    assert found == {"sn_0", "sn_1", "sn_2"}


def test_a_notice_goes_on_from_who_may_not_have_the_job(
    service: Service, asleep: Asleep, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner that has just given the job back is woken first, and another one gets it."""
    monkeypatch.setattr(Feed, "tick", lambda self, **_: None)
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    gave_back, other = service.runner("one"), service.runner("other")
    job_id = service.claim(gave_back)["job_id"]
    holding = ask(pool, service, gave_back)
    asleep.until(1, is_up(service))
    claim = ask(pool, service, other)
    asleep.until(2, is_up(service))
    service.call(
        "PUT",
        gave_back.path(f"jobs/{job_id}/abort"),
        key=gave_back.token,
        json={"reason": "drain"},
    )
    assert claim.result(LIMIT_S)["submission_id"] == "sn_1"
    assert not holding.done()
    service.ok("DELETE", f"/runners/{gave_back.runner_id}")


# -- as many as there are threads for ------------------------------------------------------


def test_200_runners_wait_in_one_process_and_heartbeats_get_through(
    mongo_uri: str, tmp_path: Path
) -> None:
    """With the threads of the defaults; who finds no place is answered 204 at once."""
    service = start_service(mongo_uri, tmp_path / "service.log")
    try:
        with service.admin() as admin, ExitStack() as stack:
            prepare(admin)
            runner_id, token = _register(service)
            polls = [stack.enter_context(_poll(service, runner_id, token)) for _ in range(208)]
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=service.url, headers=headers, timeout=LIMIT_S) as runner:
                _until_full(runner, runner_id)
                beat = runner.post(f"/runners/{runner_id}/heartbeat", json={"active_job_ids": []})
                assert beat.status_code == 204
                full = runner.get(f"/runners/{runner_id}/next-job?wait=30")
                assert full.status_code == 204
            # The one that found out may have taken the place of another for a moment.
            assert sum(not _has_answer(poll) for poll in polls) >= 200
    finally:
        service.stop()


def _register(service: LiveService) -> tuple[str, str]:
    body = {"registration_token": service.environment["RUNNER_REGISTRATION_TOKEN"], "name": "r"}
    answer = httpx.post(f"{service.url}/runners/register", json=body).json()
    return answer["runner_id"], answer["token"]


def _poll(service: LiveService, runner_id: str, token: str) -> socket.socket:
    address = urlsplit(service.url)
    made = socket.create_connection((address.hostname, address.port))
    made.sendall(
        f"GET /runners/{runner_id}/next-job?wait=30 HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {token}\r\n\r\n".encode()
    )
    return made


def _until_full(runner: httpx.Client, runner_id: str) -> None:
    """A poll that finds a place is given up, and gives it back; one that does not is answered."""
    for _ in range(LIMIT_S):
        try:
            answer = runner.get(f"/runners/{runner_id}/next-job?wait=30", timeout=1)
        except httpx.TimeoutException:
            continue
        assert answer.status_code == 204
        return
    raise AssertionError("there is always a place")


def _has_answer(poll: socket.socket) -> bool:
    poll.setblocking(False)
    try:
        return poll.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return False
