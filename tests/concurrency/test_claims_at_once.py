"""Many claims of one process, which all see the same head of the line: none runs in vain."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pymongo import MongoClient

from dispatch import job as verbs
from dispatch import tried
from dispatch.contract import HandedOut, TaskSpec, new_job_id
from dispatch.glance import Glance, glance
from dispatch.lease import LeaseRules
from dispatch.queue import Queue, open_queue
from dispatch.records import Job
from dispatch.runner import Runner
from dispatch.tried import Tried
from tests.stateful.bench import Time

AT_ONCE = 16
GIVEN = HandedOut(
    testdata_sha256="0" * 64,
    checker="default",
    tasks=(TaskSpec(task_score=100, memory_limit_kib=1024, time_limit_ms=1000, case_count=1),),
)


@dataclass
class Line:
    """A line of jobs, a runner, and how often a claim was written in vain."""

    queue: Queue
    runner: Runner
    now: Time
    in_vain: list[str] = field(default_factory=list)

    def wait_in_line(
        self,
        count: int,
        *,
        name: str = "s",
        priority: int = verbs.PRIORITY_FRESH,
        rejudge_id: str | None = None,
    ) -> None:
        for number in range(count):
            self.now.advance(1)
            verbs.enqueue_job(
                self.queue,
                submission_id=f"{name}{number:02}",
                job_id=new_job_id(),
                problem_id=1,
                language=0,
                submission_fence=0,
                now=self.now,
                priority=priority,
                rejudge_id=rejudge_id,
            )

    def claim(self, queue: Queue) -> Job | None:
        return verbs.claim_next_job(queue, self.runner, hand_out=lambda _: GIVEN, now=self.now)


@pytest.fixture
def line(
    mongo_client: MongoClient[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Line]:
    database = mongo_client["claims_at_once"]
    queue, now = open_queue(database, rules=LeaseRules()), Time()
    queue.create_indexes()
    runner, _ = queue.runners.register(name="r", languages=None, now=now())
    made = Line(queue, runner, now)
    store = type(queue.jobs)
    original = store.claim

    def claim(self: Any, job: Job, **wish: Any) -> Job | None:
        leased = original(self, job, **wish)
        if leased is None:
            made.in_vain.append(job.submission_id)
        return leased

    monkeypatch.setattr(store, "claim", claim)
    yield made
    mongo_client.drop_database("claims_at_once")


def all_see_the_same(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Have the first `count` looks be over before any of them is acted on."""
    together, looks = threading.Barrier(count), iter(range(count))

    def look(*args: Any, **kwargs: Any) -> Glance:
        seen = glance(*args, **kwargs)
        if next(looks, None) is not None:
            together.wait(30)
        return seen

    monkeypatch.setattr(verbs, "glance", look)


def claims_at_once(line: Line, queues: list[Queue]) -> list[str]:
    with ThreadPoolExecutor(len(queues)) as pool:
        leased = list(pool.map(line.claim, queues))
    return sorted(job.submission_id for job in leased if job is not None)


def test_each_of_many_claims_takes_another_job_of_the_head_at_its_first_try(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.wait_in_line(AT_ONCE + 5)
    all_see_the_same(monkeypatch, AT_ONCE)
    taken = claims_at_once(line, [line.queue] * AT_ONCE)
    assert taken == [f"s{number:02}" for number in range(AT_ONCE)]
    assert line.in_vain == []


def test_who_finds_all_that_it_saw_taken_looks_again(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "CANDIDATES_MAX", 4)
    line.wait_in_line(AT_ONCE)
    all_see_the_same(monkeypatch, AT_ONCE)
    assert len(claims_at_once(line, [line.queue] * AT_ONCE)) == AT_ONCE


def test_the_last_job_is_not_missed_by_all(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gives way to another claim tries after all, in case that one comes to nothing."""
    line.wait_in_line(1)
    all_see_the_same(monkeypatch, 2)
    store, tries, second = type(line.queue.jobs), iter(range(2)), threading.Event()
    original = store.claim

    def claim(self: Any, job: Job, **wish: Any) -> Job | None:
        if next(tries) == 0:
            second.wait(1)  # the other one gives way, then tries after all
            raise OSError("the cable is cut")
        second.set()
        return original(self, job, **wish)

    monkeypatch.setattr(store, "claim", claim)

    def one(_: int) -> Job | None:
        try:
            return line.claim(line.queue)
        except OSError:
            return None

    with ThreadPoolExecutor(2) as pool:
        leased = [job for job in pool.map(one, range(2)) if job is not None]
    assert [job.submission_id for job in leased] == ["s00"]


def test_processes_know_nothing_of_one_another_and_share_no_job(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.wait_in_line(AT_ONCE)
    all_see_the_same(monkeypatch, AT_ONCE)
    queues = [replace(line.queue, tried=Tried()) for _ in range(AT_ONCE)]
    assert claims_at_once(line, queues) == [f"s{number:02}" for number in range(AT_ONCE)]
    assert line.in_vain


def test_who_finds_all_taken_behind_a_held_rejudge_looks_again(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "CANDIDATES_MAX", 4)
    line.wait_in_line(4, name="held", priority=verbs.PRIORITY_BULK_REJUDGE, rejudge_id="rj_held")
    line.queue.control.hold_rejudge("rj_held")
    line.wait_in_line(AT_ONCE, priority=verbs.PRIORITY_BULK_REJUDGE)
    all_see_the_same(monkeypatch, AT_ONCE)
    taken = claims_at_once(line, [line.queue] * AT_ONCE)
    assert taken == [f"s{number:02}" for number in range(AT_ONCE)]


def test_a_claim_that_hangs_keeps_its_job_for_a_moment_only(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tried, "GONE_FOR_S", 0.2)
    line.wait_in_line(3)
    store, tries = type(line.queue.jobs), iter(range(100))
    original, hangs, go_on = store.claim, threading.Event(), threading.Event()

    def claim(self: Any, job: Job, **wish: Any) -> Job | None:
        if next(tries) == 0:
            hangs.set()
            go_on.wait(30)
            raise OSError("no answer in time")
        return original(self, job, **wish)

    monkeypatch.setattr(store, "claim", claim)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(line.claim, line.queue)
        assert hangs.wait(30)
        first = line.claim(line.queue)
        threading.Event().wait(0.3)
        second = line.claim(line.queue)
        go_on.set()
        with pytest.raises(OSError, match="no answer"):
            hanging.result(30)
    assert first is not None
    assert second is not None
    assert (first.submission_id, second.submission_id) == ("s01", "s00")
