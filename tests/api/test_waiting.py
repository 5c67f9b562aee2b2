"""`?wait=`: an answer is held until there is one, by a bounded number of requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from api.services import Waiters
from dispatch.wakeup import Interest, Waiter, Wakeup
from tests.factories import Service

LIMIT_S = 30
"""What a hanging test costs; nothing is measured by it."""


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set when somebody has looked in vain and waits."""
    entered = threading.Event()
    original = Waiter.wait

    def wait(self: Waiter, timeout_s: float) -> bool:
        entered.set()
        return original(self, timeout_s)

    monkeypatch.setattr(Waiter, "wait", wait)
    return entered


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def test_reading_waits_for_the_verdict(
    service: Service, waiting: threading.Event, pool: ThreadPoolExecutor
) -> None:
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    read: Future[Any] = pool.submit(service.ok, "GET", "/submissions/sn_1?wait=30")
    assert waiting.wait(LIMIT_S)
    assert not read.done()
    service.judge(service.runner(), "sn_1", "AC")
    assert read.result(LIMIT_S)["verdict"] == "AC"


def test_asking_waits_for_a_job(
    service: Service, waiting: threading.Event, pool: ThreadPoolExecutor
) -> None:
    key = service.user("ada")
    service.problem(1)
    runner = service.runner()
    path = runner.path("next-job?wait=30")
    claim: Future[Any] = pool.submit(service.ok, "GET", path, key=runner.token)
    assert waiting.wait(LIMIT_S)
    assert not claim.done()
    answer = service.submit_over_http(key, problem_id=1, language=2)
    assert claim.result(LIMIT_S)["job_id"] == answer.get_json()["job_id"]


@pytest.mark.parametrize("mend", ["resume", "problem"])
def test_what_frees_a_job_wakes_those_who_wait(
    service: Service, waiting: threading.Event, pool: ThreadPoolExecutor, mend: str
) -> None:
    service.user("ada")
    service.problem(1)
    task = {"task_score": 100, "memory_limit_kib": 1, "time_limit_ms": 1, "case_count": 2}
    settings = {"name": "p", "tasks": [task]}
    if mend == "resume":
        service.ok("POST", "/queue/pause", json={"why": "testing"})
    else:
        service.ok("PUT", "/problems/1", json=settings)
    service.submit("ada", 1, "sn_1")
    runner = service.runner()
    path = runner.path("next-job?wait=30")
    claim: Future[Any] = pool.submit(service.ok, "GET", path, key=runner.token)
    assert waiting.wait(LIMIT_S)
    if mend == "resume":
        service.ok("POST", "/queue/resume")
    else:
        service.ok("PUT", "/problems/1", json=settings | {"tasks": [task | {"case_count": 1}]})
    assert claim.result(LIMIT_S)["submission_id"] == "sn_1"


def test_without_a_wait_the_answer_comes_at_once(
    service: Service, waiting: threading.Event
) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    assert service.claim(runner) is None
    service.submit("ada", 1, "sn_1")
    assert service.ok("GET", "/submissions/sn_1")["verdict"] == "PENDING"
    assert service.ok("GET", "/submissions/sn_1?wait=0")["verdict"] == "PENDING"
    assert not waiting.is_set()


def test_a_short_wait_ends_with_the_plain_answer(
    service: Service, waiting: threading.Event
) -> None:
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    assert service.ok("GET", "/submissions/sn_1?wait=0.5")["verdict"] == "PENDING"
    assert waiting.is_set()


def test_nobody_waits_beyond_the_places_and_places_are_given_back() -> None:
    waiters = Waiters(2)
    with waiters.place() as first, waiters.place() as second, waiters.place() as third:
        assert (first, second, third) == (True, True, False)
    with waiters.place() as first, waiters.place() as second:
        assert (first, second) == (True, True)
    with Waiters(0).place() as none:
        assert none is False


def test_a_failure_while_waiting_gives_the_place_back() -> None:
    waiters = Waiters(1)

    def fail_in_place() -> None:
        with waiters.place() as taken:
            assert taken
            raise RuntimeError

    for _ in range(3):
        with pytest.raises(RuntimeError):
            fail_in_place()


def test_closing_ends_all_waiting(pool: ThreadPoolExecutor) -> None:
    wakeup = Wakeup()
    entered = threading.Event()

    def wait_until_closed() -> bool:
        with wakeup.waiter(Interest(runner_id="rn")) as waiter:
            while not wakeup.closed:
                waiter.look()
                entered.set()
                waiter.wait(LIMIT_S)
        return True

    waiting = pool.submit(wait_until_closed)
    assert entered.wait(LIMIT_S)
    wakeup.close()
    assert waiting.result(LIMIT_S)
