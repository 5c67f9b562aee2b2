"""I4 and I6: a rejudge's mark that comes late does not undo what landed since."""

from __future__ import annotations

from typing import Any

import pytest

from dispatch.records import Job
from tests.factories import Runner, Service, handed_out, results

LEASE_OVER_S = 31
HEAD_START_S = 6


class Crash(Exception):
    """The process ends here."""


def crash(*_args: object, **_kwargs: object) -> Any:
    raise Crash


@pytest.fixture
def course(service: Service) -> Service:
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "s1")
    return service


def job(course: Service) -> Job:
    found = course.services.queue.jobs.get("s1")
    assert found is not None
    return found


def land_and_die(course: Service, runner: Runner) -> None:
    """Write a result in full; the process dies before the job's end is written."""
    begun = course.services.queue.jobs.begin_complete(
        job(course), runner_id=runner.runner_id, lease_token=None, now=course.clock()
    )
    assert begun is not None
    course.services.process_result(
        submission_id="s1",
        job_id=begun.job_id,
        fence=begun.fence,
        tasks=results("AC"),
        handed_out=handed_out((100, 1)),
    )


def use_up(course: Service, runner: Runner) -> None:
    """Give the job back until no attempt is left."""
    while job(course).state.value != "done":
        path = runner.path(f"jobs/{job(course).job_id}/abort")
        course.ok("PUT", path, key=runner.token, json={"reason": "rejected"})
        course.clock.advance(HEAD_START_S)
        course.claim(runner)


def test_i6_the_sweeps_mark_does_not_undo_the_rejudges_own_result(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = course.runner()
    with monkeypatch.context() as dying:
        dying.setattr("mongo.submission.mark_rejudged", crash)
        answer = course.call("POST", "/submissions/s1/rejudge", may_fail=True)
        assert answer.status_code == 500
    assert job(course).mark_due == job(course).fence
    course.claim(runner)
    land_and_die(course, runner)
    course.clock.advance(LEASE_OVER_S)
    course.claim(runner)
    course.sweep()
    assert job(course).mark_due is None
    # It landed under a newer fence than the rejudge's, if an older one than the job's by now.
    assert course.view("s1")["verdict"] == "AC"
    use_up(course, runner)
    assert job(course).outcome == "verdict"
    assert course.view("s1")["verdict"] == "AC"
    assert course.counters("ada") == (1, 1, [1])


def test_a_rejudge_whose_mark_is_missing_can_be_taken_back(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    course.judge(course.runner(), "s1", "AC")
    with monkeypatch.context() as dying:
        dying.setattr("mongo.submission.mark_rejudged", crash)
        course.call("POST", "/submissions/s1/rejudge", may_fail=True)
    assert course.view("s1")["verdict"] == "AC"
    assert job(course).state.value == "pending"
    course.ok("POST", "/submissions/s1/cancel")
    assert job(course).state.value == "done"
    course.sweep()
    assert course.view("s1")["verdict"] == "AC"
    assert course.call("POST", "/submissions/s1/cancel").status_code == 409
