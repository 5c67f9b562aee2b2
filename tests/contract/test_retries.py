"""The retry rule over HTTP on a real server: pauses, last tries, held problems, ceilings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dispatch.lease import LeaseRules
from dispatch.states import Outcome
from tests.factories import Runner, Service

RULES = LeaseRules(retry_jitter=0, max_concurrent_jobs=3)


@pytest.fixture
def strict(service: Service) -> Iterator[Service]:
    """The service under the rules as they are, but for the jitter."""
    queue = service.services.queue
    relaxed = queue.rules
    object.__setattr__(queue, "rules", RULES)
    queue.jobs.rules = RULES
    service.user("ada")
    service.problem(1)
    yield service
    object.__setattr__(queue, "rules", relaxed)
    queue.jobs.rules = relaxed


def fail(service: Service, runner: Runner, job_id: str, **body: Any) -> None:
    answer = service.call(
        "PUT",
        runner.path(f"jobs/{job_id}/abort"),
        key=runner.token,
        json={"reason": "prep_failed", **body},
    )
    assert answer.status_code == 202


def beat(service: Service, *runners: Runner, jobs: tuple[str, ...] = ()) -> None:
    for runner in runners:
        body = {"active_job_ids": list(jobs)}
        service.call("POST", runner.path("heartbeat"), key=runner.token, json=body)


def fails_at(service: Service, runner: Runner) -> None:
    fail(service, runner, service.claim(runner)["job_id"])


def outcome(service: Service, submission_id: str) -> Any:
    return service.database["jobs"].find_one({"_id": submission_id}).get("outcome")


# -- pauses --------------------------------------------------------------------------------


def test_i9_a_lone_runner_pauses_between_its_tries_and_gives_up_after_five_minutes(
    strict: Service,
) -> None:
    submission_id = strict.submit("ada", 1)
    runner = strict.runner()
    tries, started = 0, strict.clock()
    while outcome(strict, submission_id) is None:
        payload = strict.claim(runner)
        if payload is not None:
            tries += 1
            fail(strict, runner, payload["job_id"])
        beat(strict, runner)
        strict.clock.advance(1)
    passed_s = (strict.clock() - started).total_seconds()
    assert outcome(strict, submission_id) == Outcome.JUDGE_ERROR
    assert passed_s >= RULES.give_up_s
    # At 0, 5, 35, 155, 275 and 395 s.
    assert tries == 6
    assert strict.view_job(submission_id)["attempts"] == RULES.max_attempts


def test_twenty_submissions_at_a_runner_that_fails_wait_for_one_that_does_not(
    strict: Service,
) -> None:
    ids = [strict.submit("ada", 1) for _ in range(20)]
    broken = strict.runner("broken")
    for _ in range(60):
        payload = strict.claim(broken)
        if payload is None:
            break
        # What is at fault is its own machine.
        fail(strict, broken, payload["job_id"], at_fault="machine")
    assert {strict.view(i)["verdict"] for i in ids} == {"PENDING"}
    healthy = strict.runner("healthy")
    strict.clock.advance(10)
    for _ in ids:
        payload = strict.claim(healthy)
        assert strict.complete(healthy, payload["job_id"], "AC").status_code == 204
    assert {strict.view(i)["verdict"] for i in ids} == {"AC"}


def test_a_pausing_job_says_until_when_and_an_admin_may_end_its_pause(strict: Service) -> None:
    submission_id = strict.submit("ada", 1)
    runner = strict.runner()
    fails_at(strict, runner)
    assert strict.claim(runner) is None
    view = strict.ok("GET", f"/submissions/{submission_id}")
    assert view["waits_because"] == (
        "A runner could not judge it. It is handed out again at 12:00:05 UTC."
    )
    assert view["job"]["not_before"] == "2040-01-01T12:00:05.000Z"
    strict.ok("POST", f"/submissions/{submission_id}/front")
    assert strict.claim(runner) is not None


def test_the_last_try_is_another_runners_and_then_it_is_given_up_at_once(strict: Service) -> None:
    submission_id = strict.submit("ada", 1)
    one, other = strict.runner("one"), strict.runner("other")
    for runner, wait_s in ((one, 5), (other, 30), (one, 0)):
        beat(strict, one, other)
        payload = strict.claim(runner)
        # Both have failed, so that neither waits for the other.
        assert payload is not None
        fail(strict, runner, payload["job_id"], at_fault="submission")
        strict.clock.advance(wait_s)
    assert outcome(strict, submission_id) == Outcome.JUDGE_ERROR


def test_i5_a_program_that_always_kills_its_lone_runner_is_given_up(strict: Service) -> None:
    submission_id = strict.submit("ada", 1)
    runner = strict.runner()
    tries, started = 0, strict.clock()
    while outcome(strict, submission_id) is None:
        tries += strict.claim(runner) is not None
        beat(strict, runner)
        strict.clock.advance(1)
        strict.sweep()
        assert strict.view_job(submission_id)["attempts"] <= RULES.max_attempts
    assert (strict.clock() - started).total_seconds() >= RULES.give_up_s
    # Three attempts of a lease each, and one more two minutes later.
    assert tries == 4
    assert strict.view(submission_id)["verdict"] == "JE"


# -- judge errors --------------------------------------------------------------------------


def test_i9_a_result_with_a_judge_error_is_a_failed_attempt(strict: Service) -> None:
    submission_id = strict.submit("ada", 1)
    runner, other = strict.runner("broken"), strict.runner("healthy")
    job_id = strict.claim(runner)["job_id"]
    assert strict.complete(runner, job_id, "JE").status_code == 204
    assert strict.view(submission_id)["verdict"] == "PENDING"
    assert strict.complete(runner, job_id, "JE").status_code == 204, "a resend"
    assert strict.claim(other) is None
    strict.clock.advance(5)
    assert strict.complete(other, strict.claim(other)["job_id"], "AC").status_code == 204
    assert strict.view(submission_id)["verdict"] == "AC"
    assert strict.counters("ada") == (1, 1, [1])


def test_a_judge_error_that_is_given_up_lands_with_what_the_runner_said(strict: Service) -> None:
    strict.problem(2, (40, 1), (60, 1))
    submission_id = strict.submit("ada", 2)
    one, other = strict.runner("one"), strict.runner("other")
    for runner, wait_s in ((one, 5), (other, 30), (one, 0)):
        job_id = strict.claim(runner)["job_id"]
        assert strict.complete(runner, job_id, "OLE", "JE").status_code == 204
        strict.clock.advance(wait_s)
        beat(strict, one, other)
    view = strict.view(submission_id)
    assert (view["verdict"], view["score"]) == ("JE", 0)
    assert [task["verdict"] for task in view["tasks"]] == ["OLE", "JE"]


def test_a_judge_error_of_the_wrong_shape_is_a_failure_too(strict: Service) -> None:
    submission_id = strict.submit("ada", 1)
    one, other = strict.runner("one"), strict.runner("other")
    for runner, wait_s in ((one, 5), (other, 30), (one, 0)):
        job_id = strict.claim(runner)["job_id"]
        assert strict.complete(runner, job_id, "JE", "AC", "AC").status_code == 204
        strict.clock.advance(wait_s)
        beat(strict, one, other)
    assert strict.view(submission_id)["verdict"] == "JE"


def test_a_result_that_never_fits_comes_back_after_its_lease_and_its_pause(
    strict: Service,
) -> None:
    submission_id = strict.submit("ada", 1)
    runner = strict.runner()
    job_id = strict.claim(runner)["job_id"]
    assert strict.complete(runner, job_id, "AC", "AC").status_code == 400
    assert strict.view_job(submission_id)["leased_by"] == runner.runner_id
    strict.clock.advance(RULES.lease_ttl_s + RULES.orphan_head_start_s)
    assert strict.claim(runner)["job_id"] == job_id
    entry = strict.view_job(submission_id)["history"][-1]
    assert (entry["event"], entry["reason"]) == ("reclaim", "invalid_result")


# -- held problems -------------------------------------------------------------------------


def hold(service: Service, *runners: Runner) -> None:
    """Have each of the runners fail at a job of problem 1 that is first in line."""
    for runner in runners:
        fails_at(service, runner)
    assert [held["problem_id"] for held in held_problems(service)] == [1]


def held_problems(service: Service) -> Any:
    return service.ok("GET", "/queue")["held_problems"]


def test_i10_a_problem_that_runners_cannot_prepare_holds_up_nobody_else(strict: Service) -> None:
    strict.problem(2)
    broken = [strict.submit("ada", 1) for _ in range(20)]
    healthy = [strict.submit("ada", 2) for _ in range(5)]
    runners = [strict.runner("one"), strict.runner("two")]
    started = strict.clock()
    while {strict.view(i)["verdict"] for i in healthy} != {"AC"}:
        for runner in runners:
            payload = strict.claim(runner)
            if payload is None:
                continue
            if payload["problem_id"] == 1:
                fail(strict, runner, payload["job_id"], detail="checksum differs")
            else:
                strict.complete(runner, payload["job_id"], "AC")
        strict.clock.advance(1)
    assert (strict.clock() - started).total_seconds() < 10
    (held,) = held_problems(strict)
    assert held["why"] == "Runners cannot prepare its jobs: checksum differs"
    assert {strict.view(i)["verdict"] for i in broken} == {"PENDING"}
    told = strict.ok("GET", f"/submissions/{broken[-1]}")["waits_because"]
    assert told.startswith("Its problem is on hold until 12:00:")
    assert told.endswith("Runners cannot prepare its jobs: checksum differs")
    assert sum(strict.view_job(i)["attempts"] for i in broken) <= 2
    # Nobody is blamed: both get what there is.
    strict.submit("ada", 2)
    strict.submit("ada", 2)
    assert None not in [strict.claim(runner) for runner in runners]


def test_new_test_data_releases_a_problem(strict: Service) -> None:
    ids = [strict.submit("ada", 1) for _ in range(3)]
    one, two = strict.runner("one"), strict.runner("two")
    hold(strict, one, two)
    strict.clock.advance(4)
    assert strict.claim(one) is None
    strict.problem(1, text="2\n")
    strict.clock.advance(1)
    for _ in ids:
        # Each has failed at one of them, which the other gets first.
        runner, payload = next(
            (runner, payload)
            for runner in (one, two)
            if (payload := strict.claim(runner)) is not None
        )
        strict.complete(runner, payload["job_id"], "AC")
    assert held_problems(strict) == []
    assert {strict.view(i)["verdict"] for i in ids} == {"AC"}


def test_an_admin_releases_a_problem(strict: Service) -> None:
    for _ in range(3):
        strict.submit("ada", 1)
    one, two = strict.runner("one"), strict.runner("two")
    hold(strict, one, two)
    assert strict.call("POST", "/problems/1/release").status_code == 204
    assert strict.claim(one) is not None
    answer = strict.call("POST", "/problems/1/release")
    assert (answer.status_code, answer.get_json()["reason"]) == (409, "not_held")
    assert strict.call("POST", "/problems/1/release", key=strict.keys["ada"]).status_code == 403


def test_one_job_every_five_minutes_is_tried_and_a_verdict_releases_the_rest(
    strict: Service,
) -> None:
    ids = [strict.submit("ada", 1) for _ in range(4)]
    one, two = strict.runner("one"), strict.runner("two")
    hold(strict, one, two)
    strict.clock.advance(RULES.problem_held_s)
    beat(strict, one, two)
    probe = strict.claim(one)
    assert probe is not None
    assert strict.claim(two) is None, "one probe at a time"
    fail(strict, one, probe["job_id"])
    assert strict.view_job(probe["submission_id"])["attempts"] == 0, "it cost nothing"
    strict.clock.advance(RULES.problem_held_s)
    beat(strict, one, two)
    probe = strict.claim(two)
    strict.complete(two, probe["job_id"], "AC")
    # What failed as a probe was to come after the next one.
    strict.clock.advance(2)
    for _ in range(3):
        strict.complete(one, strict.claim(one)["job_id"], "AC")
    assert {strict.view(i)["verdict"] for i in ids} == {"AC"}
    assert held_problems(strict) == []


def test_i8_one_broken_job_does_not_keep_its_problem_held_for_ever(strict: Service) -> None:
    """It is the first in line, and each probe would be it."""
    broken = strict.submit("ada", 1)
    sound = strict.submit("ada", 1)
    one, two = strict.runner("one"), strict.runner("two")
    hold(strict, one, two)
    strict.ok("POST", f"/submissions/{broken}/front")
    for _ in range(40):
        beat(strict, one, two)
        for runner in (two, one):
            payload = strict.claim(runner)
            if payload is None:
                continue
            if payload["submission_id"] == broken:
                fail(strict, runner, payload["job_id"])
            else:
                strict.complete(runner, payload["job_id"], "AC")
        strict.clock.advance(10)
    assert strict.view(sound)["verdict"] == "AC"


def test_a_problem_that_somebody_judges_is_not_held(strict: Service) -> None:
    """As where the queues of runners in the field are full: they abort what they are given."""
    for _ in range(3):
        strict.submit("ada", 1)
    one, two = strict.runner("one"), strict.runner("two")
    fails_at(strict, one)
    strict.clock.advance(1)
    strict.complete(two, strict.claim(two)["job_id"], "AC")
    strict.clock.advance(1)
    fails_at(strict, two)
    assert held_problems(strict) == []


def test_one_job_that_fails_everywhere_does_not_hold_its_problem(strict: Service) -> None:
    strict.submit("ada", 1)
    one, two = strict.runner("one"), strict.runner("two")
    fails_at(strict, one)
    strict.clock.advance(5)
    fails_at(strict, two)
    assert held_problems(strict) == []


def test_two_runners_that_say_it_is_the_problem_are_believed(strict: Service) -> None:
    strict.submit("ada", 1)
    one, two = strict.runner("one"), strict.runner("two")
    fail(strict, one, strict.claim(one)["job_id"], at_fault="problem")
    strict.clock.advance(5)
    fail(strict, two, strict.claim(two)["job_id"], at_fault="problem")
    assert [held["problem_id"] for held in held_problems(strict)] == [1]


@pytest.mark.parametrize("at_fault", ["machine", "submission"])
def test_what_is_not_the_problems_fault_does_not_hold_it(strict: Service, at_fault: str) -> None:
    for _ in range(3):
        strict.submit("ada", 1)
    for name in ("one", "two", "three"):
        runner = strict.runner(name)
        fail(strict, runner, strict.claim(runner)["job_id"], at_fault=at_fault)
    assert held_problems(strict) == []


def test_a_lone_runner_needs_three_jobs_to_hold_a_problem(strict: Service) -> None:
    for _ in range(4):
        strict.submit("ada", 1)
    lone = strict.runner()
    fails_at(strict, lone)
    fails_at(strict, lone)
    assert held_problems(strict) == []
    fails_at(strict, lone)
    assert [held["problem_id"] for held in held_problems(strict)] == [1]
    assert strict.claim(lone) is None


# -- ceilings and bounds -------------------------------------------------------------------


def test_i8_a_runner_that_heartbeats_for_ever_loses_the_job(strict: Service) -> None:
    submission_id = strict.submit("ada", 1)
    hung, other = strict.runner("hung"), strict.runner("other")
    job_id = strict.claim(hung)["job_id"]
    started = strict.clock()
    while strict.claim(other) is None:
        beat(strict, hung, jobs=(job_id,))
        beat(strict, other)
        strict.clock.advance(5)
        assert (strict.clock() - started).total_seconds() < 600
    assert (strict.clock() - started).total_seconds() >= 300
    entry = strict.view_job(submission_id)["history"][-1]
    assert (entry["reason"], entry["from_runner"]) == ("overdue", hung.runner_id)


def test_the_longest_lease_is_told(strict: Service) -> None:
    strict.submit("ada", 1)
    assert strict.ok("GET", "/queue")["longest_lease_s"] is None
    strict.claim(strict.runner())
    strict.clock.advance(20)
    assert strict.ok("GET", "/queue")["longest_lease_s"] == 20


def test_a_runner_gets_no_more_jobs_than_it_was_told(strict: Service) -> None:
    for _ in range(5):
        strict.submit("ada", 1)
    runner = strict.runner()
    taken = [strict.claim(runner) for _ in range(4)]
    assert [payload is None for payload in taken] == [False, False, False, True]
    strict.complete(runner, taken[0]["job_id"], "AC")
    assert strict.claim(runner) is not None
    # What it has lost is not counted.
    strict.clock.advance(RULES.lease_ttl_s + 1)
    assert strict.claim(runner) is not None


def test_a_wish_that_was_granted_is_granted_again_at_the_bound(strict: Service) -> None:
    for _ in range(3):
        strict.submit("ada", 1)
    runner = strict.runner()
    wishes = [f"wish-{number}" for number in range(3)]

    def ask(wish: str) -> Any:
        answer = strict.call("GET", runner.path(f"next-job?claim_id={wish}"), key=runner.token)
        return answer.get_json(silent=True)

    first = [ask(wish) for wish in wishes]
    assert [ask(wish)["job_id"] for wish in wishes] == [payload["job_id"] for payload in first]
