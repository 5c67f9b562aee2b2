"""I8: a bulk rejudge whose process dies at any of its writes is gone on with, and ends the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pymongo.collection
import pytest

from mongo import check, rejudge_items, rejudging
from mongo.rejudging import WORK_LEASE
from tests.factories import Runner, Service

WRITES = (
    "insert_one",
    "update_one",
    "update_many",
    "find_one_and_update",
    "delete_one",
    "bulk_write",
)
SUBMISSIONS = ("s1", "s2", "s3")


class Killed(BaseException):
    """The process is gone: nothing of it runs on, and no handler sees it."""


class Fuse:
    """Counts writes to the database, and kills at one of them: before it, or after it."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
        self.writes = 0
        self.burnt = False
        self._at = at
        self._after = after
        for name in WRITES:
            original = getattr(pymongo.collection.Collection, name)
            patch.setattr(pymongo.collection.Collection, name, self._fused(original))

    def _fused(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **named: Any) -> Any:
            if self.burnt:
                raise Killed  # what a `finally` still wants to write
            self.writes += 1
            if self.writes != self._at:
                return original(*args, **named)
            self.burnt = True
            if self._after:
                original(*args, **named)
            raise Killed

        return write


@pytest.fixture
def runner(course: Service) -> Runner:
    runner = course.runner()
    for submission_id in SUBMISSIONS:
        course.submit("ada", 1, submission_id)
        course.judge(runner, submission_id, "AC")
    return runner


def start(course: Service, mode: Any) -> str:
    begun = course.services.judge.start_rejudge(filter={"problem_id": 1}, mode=mode, by="a test")
    return str(begun["rejudge_id"])


def go_on(course: Service) -> None:
    maintenance: Any = course.services.maintain
    while maintenance.advance_rejudges():
        pass


def judge_all(course: Service, runner: Runner) -> int:
    judged = 0
    while (payload := course.claim(runner)) is not None:
        assert course.complete(runner, payload["job_id"], "WA").status_code == 204
        judged += 1
    return judged


def killed_everywhere(work: Callable[[], None], course: Service) -> Iterator[int]:
    """Kill `work` at each write it makes, before and after it; yield where it died."""
    at, after = 1, False
    while True:
        with pytest.MonkeyPatch.context() as patch:
            fuse = Fuse(patch, at, after=after)
            with contextlib.suppress(Killed):
                work()
        if not fuse.burnt:
            return
        course.clock.advance(WORK_LEASE.total_seconds())
        yield at
        at, after = (at + 1, False) if after else (at, True)


def check_converged(course: Service) -> None:
    everything = check.scope(username=None, homework_id=None, problem_id=None)
    found = check.differences(everything, advance=lambda: None, pause=lambda: None)
    assert list(found) == []


def test_i8_killed_while_it_collects_and_queues(course: Service, runner: Runner) -> None:
    deaths = 0
    rejudge_id = start(course, "replace")
    for _ in killed_everywhere(lambda: go_on(course), course):
        deaths += 1
        # What it left is gone on with, to the end; then all anew for the next death.
        course.sweep()
        go_on(course)
        assert course.database["jobs"].count_documents({"state": "pending"}) == 3
        assert judge_all(course, runner) == 3
        go_on(course)
        seen = course.services.judge.view_rejudge(rejudge_id)
        assert (seen["state"], seen["counts"]["done"]) == ("done", 3), (deaths, seen)
        check_converged(course)
        rejudge_id = start(course, "replace")
    assert deaths > 20


def test_i6_killed_while_it_applies(course: Service, runner: Runner) -> None:
    def ready(verdict: str) -> str:
        rejudge_id = start(course, "preview")
        go_on(course)
        while (payload := course.claim(runner)) is not None:
            course.complete(runner, payload["job_id"], verdict)
        go_on(course)
        course.services.judge.apply_rejudge(rejudge_id)
        return rejudge_id

    deaths, verdict = 0, "WA"
    rejudge_id = ready(verdict)
    for _ in killed_everywhere(lambda: go_on(course), course):
        deaths += 1
        go_on(course)
        seen = course.services.judge.view_rejudge(rejudge_id)
        assert seen["state"] == "applied", (deaths, seen)
        assert {course.view(name)["verdict"] for name in SUBMISSIONS} == {verdict}
        check_converged(course)
        verdict = "AC" if verdict == "WA" else "WA"
        rejudge_id = ready(verdict)
    assert deaths > 20


def test_i8_killed_while_it_cancels(course: Service, runner: Runner) -> None:
    def cancelled() -> str:
        rejudge_id = start(course, "replace")
        go_on(course)
        course.services.judge.cancel_rejudge(rejudge_id)
        return rejudge_id

    deaths = 0
    rejudge_id = cancelled()
    for _ in killed_everywhere(lambda: go_on(course), course):
        deaths += 1
        course.sweep()
        go_on(course)
        seen = course.services.judge.view_rejudge(rejudge_id)
        assert (seen["state"], seen["counts"]["cancelled"]) == ("cancelled", 3), (deaths, seen)
        assert {course.view(name)["verdict"] for name in SUBMISSIONS} == {"AC"}
        assert course.claim(runner) is None
        check_converged(course)
        rejudge_id = cancelled()
    assert deaths > 10


@pytest.mark.parametrize("judged", ["before it goes on", "after it has gone on"])
def test_i8_a_preview_that_forgot_what_stood_is_applied_to_the_others(
    course: Service, runner: Runner, monkeypatch: pytest.MonkeyPatch, judged: str
) -> None:
    """Collected before its first verdict, and killed between its job and the note of what stood.

    Judged before that note could be made, it stays as it is: another result may have come between.
    """
    course.submit("ada", 1, "s4")
    rejudge_id = start(course, "preview")
    assert rejudging.advance(queue=course.services.maintain._domain_queue, now=course.clock)
    course.judge(runner, "s4", "AC")
    with monkeypatch.context() as patch:
        patch.setattr(rejudge_items, "queued", _killed)
        go_on(course)
    if judged == "before it goes on":
        assert judge_all(course, runner) == 4
    go_on(course)
    judge_all(course, runner)
    go_on(course)
    course.services.judge.apply_rejudge(rejudge_id)
    go_on(course)
    assert course.services.judge.view_rejudge(rejudge_id)["state"] == "applied"
    assert {course.view(one)["verdict"] for one in SUBMISSIONS} == {"WA"}
    assert course.view("s4")["verdict"] == ("AC" if judged == "before it goes on" else "WA")
    check_converged(course)


def _killed(*_: Any, **__: Any) -> None:
    raise ConnectionError("the process is gone")
