"""One broken runner must not burn the attempts of a queue while a healthy one stands by."""

from __future__ import annotations

from typing import Any

from dispatch.lease import LeaseRules
from tests.factories import Runner, Service


def _abort(service: Service, runner: Runner, job_id: str, reason: str = "prep_failed") -> None:
    answer = service.call(
        "PUT", runner.path(f"jobs/{job_id}/abort"), key=runner.token, json={"reason": reason}
    )
    assert answer.status_code == 202


def _stay_alive(service: Service, *runners: Runner) -> None:
    for runner in runners:
        service.call(
            "POST", runner.path("heartbeat"), key=runner.token, json={"active_job_ids": []}
        )


def test_i5_a_job_goes_to_another_runner_however_late_it_comes_up_again(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    broken, healthy = service.runner("broken"), service.runner("healthy")
    # Fewer than a runner may fail at before it gets nothing at all.
    ids = [service.submit("ada", 1) for _ in range(LeaseRules().failures_max - 1)]
    # The fastest failer goes through the whole line, again and again.
    for _ in range(30):
        payload: Any = service.claim(broken)
        if payload is not None:
            _abort(service, broken, payload["job_id"])
        service.clock.advance(20)
        _stay_alive(service, broken, healthy)
    assert {service.view_job(i)["attempts"] for i in ids} == {1}
    for _ in ids:
        payload = service.claim(healthy)
        assert service.complete(healthy, payload["job_id"], "AC").status_code == 204
    assert {service.view(i)["verdict"] for i in ids} == {"AC"}


def test_i8_a_lone_runner_gets_back_what_it_failed_at(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    lone = service.runner("lone")
    service.submit("ada", 1)
    for attempt in (1, 2, 3):
        payload = service.claim(lone)
        assert payload["attempt"] == attempt
        _abort(service, lone, payload["job_id"])
    assert service.claim(lone) is None


def test_i8_when_all_have_failed_at_it_anybody_gets_it(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    runners = [service.runner("one"), service.runner("two")]
    submission_id = service.submit("ada", 1)
    for runner in (*runners, runners[0]):
        payload = service.claim(runner)
        assert payload is not None
        _abort(service, runner, payload["job_id"])
    assert service.view(submission_id)["verdict"] == "JE"


def test_i8_a_runner_that_looks_alive_and_never_comes_holds_nothing_up_for_ever(
    service: Service,
) -> None:
    service.user("ada")
    service.problem(1)
    failed, idle = service.runner("failed"), service.runner("idle")
    service.submit("ada", 1)
    _abort(service, failed, service.claim(failed)["job_id"])
    for _ in range(25):
        service.clock.advance(20)
        _stay_alive(service, failed, idle)
    assert service.claim(failed) is None
    for _ in range(10):
        service.clock.advance(20)
        _stay_alive(service, failed, idle)
    assert service.claim(failed)["attempt"] == 2


def test_a_drain_is_no_failure(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    drained, other = service.runner("drained"), service.runner("other")
    service.submit("ada", 1)
    _abort(service, drained, service.claim(drained)["job_id"], "drain")
    assert service.claim(drained) is None
    service.clock.advance(6)
    _stay_alive(service, drained, other)
    assert service.claim(drained)["attempt"] == 1
