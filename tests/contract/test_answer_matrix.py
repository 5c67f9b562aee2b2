"""What `complete` and `abort` answer, and change: each state of the job x each caller.

The tables below are the contract. In every row runner A had two leases of the job, the second
one last (but where the row says otherwise); B is another runner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from werkzeug.test import TestResponse

from dispatch.contract import new_job_id
from dispatch.control import HeldProblem
from dispatch.lease import LeaseRules
from dispatch.states import Outcome
from tests.factories import Runner, Service, result_body

LEASE_TTL_S = 30
LANDING_TTL_S = 10
HEAD_START_S = 5
RULES = LeaseRules(retry_jitter=0, max_concurrent_jobs=1)
"""The retry rule as it is, but for the jitter."""
REASONS = {401: "unauthorized", 404: "unknown_job", 409: "lease_lost", 503: "landing_in_flight"}

CALLERS = (
    "A, its token",
    "A, no token",
    "A, old token",
    "B, no token",
    "B, A's token",
    "A revoked",
)

COMPLETE = """
new                    | 409       | 409       | 409 | 409       | 409 | 401
given back             | 409       | 409       | 409 | 409       | 409 | 401
leased                 | 204 lands | 204 lands | 409 | 409       | 409 | 401
orphan                 | 204 lands | 204 lands | 409 | 409       | 409 | 401
landing                | 503       | 503       | 409 | 409       | 409 | 401
landing, deadline over | 204 lands | 204 lands | 409 | 409       | 409 | 401
landing failed         | 204 lands | 204 lands | 409 | 409       | 409 | 401
leased by B            | 409       | 409       | 409 | 204 lands | 409 | 401
landing by B           | 409       | 409       | 409 | 503       | 409 | 401
judge error landing    | 409       | 409       | 409 | 409       | 409 | 401
done by A              | 204       | 204       | 409 | 409       | 409 | 401
done by B              | 409       | 409       | 409 | 204       | 409 | 401
done by judge error    | 409       | 409       | 409 | 409       | 409 | 401
replaced, pending      | 204       | 204       | 204 | 204       | 204 | 401
replaced, leased by A  | 204       | 204       | 204 | 204       | 204 | 401
replaced, done by B    | 204       | 204       | 204 | 204       | 204 | 401
replaced long ago      | 404       | 404       | 404 | 404       | 404 | 401
unknown                | 404       | 404       | 404 | 404       | 404 | 401
"""

ABORT = """
new                    | 409       | 409       | 409 | 409       | 409 | 401
given back             | 202       | 202       | 409 | 409       | 409 | 401
leased                 | 202 back  | 202 back  | 409 | 409       | 409 | 401
orphan                 | 202 back  | 202 back  | 409 | 409       | 409 | 401
landing                | 503       | 503       | 409 | 409       | 409 | 401
landing, deadline over | 503       | 503       | 409 | 409       | 409 | 401
landing failed         | 202 back  | 202 back  | 409 | 409       | 409 | 401
leased by B            | 409       | 409       | 409 | 202 back  | 409 | 401
landing by B           | 409       | 409       | 409 | 503       | 409 | 401
judge error landing    | 409       | 409       | 409 | 409       | 409 | 401
done by A              | 409       | 409       | 409 | 409       | 409 | 401
done by B              | 409       | 409       | 409 | 409       | 409 | 401
done by judge error    | 409       | 409       | 409 | 409       | 409 | 401
replaced, pending      | 202       | 202       | 202 | 202       | 202 | 401
replaced, leased by A  | 202       | 202       | 202 | 202       | 202 | 401
replaced, done by B    | 202       | 202       | 202 | 202       | 202 | 401
replaced long ago      | 404       | 404       | 404 | 404       | 404 | 401
unknown                | 404       | 404       | 404 | 404       | 404 | 401
"""

JUDGE_ERROR = """
new                    | 409        | 409        | 409 | 409        | 409 | 401
given back             | 409        | 409        | 409 | 409        | 409 | 401
given back for a JE    | 204        | 204        | 409 | 409        | 409 | 401
leased                 | 204 failed | 204 failed | 409 | 409        | 409 | 401
orphan                 | 204 failed | 204 failed | 409 | 409        | 409 | 401
landing                | 503        | 503        | 409 | 409        | 409 | 401
landing, deadline over | 204 failed | 204 failed | 409 | 409        | 409 | 401
landing failed         | 204 failed | 204 failed | 409 | 409        | 409 | 401
leased by B            | 409        | 409        | 409 | 204 failed | 409 | 401
landing by B           | 409        | 409        | 409 | 503        | 409 | 401
judge error landing    | 409        | 409        | 409 | 409        | 409 | 401
done by A              | 204        | 204        | 409 | 409        | 409 | 401
done by B              | 409        | 409        | 409 | 204        | 409 | 401
done by judge error    | 409        | 409        | 409 | 409        | 409 | 401
replaced, pending      | 204        | 204        | 204 | 204        | 204 | 401
replaced, leased by A  | 204        | 204        | 204 | 204        | 204 | 401
replaced, done by B    | 204        | 204        | 204 | 204        | 204 | 401
replaced long ago      | 404        | 404        | 404 | 404        | 404 | 401
unknown                | 404        | 404        | 404 | 404        | 404 | 401
"""
"""`complete` with a judge error in the result: a failed attempt."""


def cells(table: str) -> list[Any]:
    """Return (state, caller, status, effect) of each cell."""
    found = []
    for line in table.strip().splitlines():
        state, *answers = (column.strip() for column in line.split("|"))
        for caller, answer in zip(CALLERS, answers, strict=True):
            status, _, effect = answer.partition(" ")
            cell = (state, caller, int(status), effect)
            found.append(pytest.param(*cell, id=f"{state}-{caller}"))
    return found


class Stage:
    """One job, runners A and B, and the ways into each state."""

    def __init__(self, service: Service) -> None:
        self.service = service
        service.user("ada")
        service.problem(1)
        self.a, self.b = service.runner("A"), service.runner("B")
        service.submit("ada", 1, "s1")
        self.job_id = self.job()["job_id"]
        self.old_token = self.token = "of-no-lease"

    def job(self) -> dict[str, Any]:
        return self.service.view_job("s1")

    def raw(self) -> list[Any]:
        """Everything that a call could change."""
        names = ("jobs", "submissions", "users", "fs.files")
        return [list(self.service.database[name].find().sort("_id", 1)) for name in names]

    def call(self, runner: Runner, verb: str, **body: Any) -> TestResponse:
        wish = result_body("AC") if verb == "complete" else {"reason": "drain"}
        path = runner.path(f"jobs/{self.job_id}/{verb}")
        body = {name: value for name, value in {**wish, **body}.items() if value is not None}
        return self.service.call("PUT", path, key=runner.token, may_fail=True, json=body)

    def prepare(self, state: str) -> None:
        """Bring the job into `state`."""
        if state == "new":
            return
        if state == "unknown":
            self.job_id = new_job_id()
            return
        self.leased_twice()
        ways: dict[str, Callable[[], None]] = {
            "given back": lambda: self.succeed(self.a, "abort", lease_token=self.token),
            "given back for a JE": lambda: self.succeed(
                self.a, "complete", **result_body("JE"), lease_token=self.token
            ),
            "leased": lambda: None,
            "orphan": lambda: self.wait(LEASE_TTL_S),
            "landing": self.begin,
            "landing, deadline over": lambda: (self.begin(), self.wait(LANDING_TTL_S)),
            "landing failed": self.begin_and_fail,
            "leased by B": self.lose_to_b,
            "landing by B": lambda: (self.lose_to_b(), self.begin()),
            "judge error landing": lambda: (self.exhaust(), None),
            "done by A": lambda: self.succeed(self.a, "complete"),
            "done by B": lambda: (self.lose_to_b(), self.succeed(self.b, "complete")),
            "done by judge error": lambda: (self.use_up(), self.service.sweep()),
            "replaced, pending": self.rejudge,
            "replaced, leased by A": lambda: (self.rejudge(), self.claimed(self.a)),
            "replaced, done by B": self.replaced_and_done,
            "replaced long ago": self.replaced_long_ago,
        }
        ways[state]()

    def claimed(self, runner: Runner) -> str:
        payload = self.service.claim(runner)
        assert payload is not None
        return str(payload["lease_token"])

    def leased_twice(self) -> None:
        self.old_token = self.claimed(self.a)
        self.succeed(self.a, "abort")
        self.wait(HEAD_START_S)
        self.token = self.claimed(self.a)

    def wait(self, seconds: float) -> None:
        self.service.clock.advance(seconds)

    def succeed(self, runner: Runner, verb: str, **body: Any) -> None:
        assert self.call(runner, verb, **body).status_code in (202, 204)

    def begin(self) -> Any:
        """Begin a landing for the holder; its process then dies."""
        jobs = self.service.services.queue.jobs
        job = jobs.get("s1")
        assert job is not None
        assert job.leased_by is not None
        begun = jobs.begin_complete(
            job, runner_id=job.leased_by, lease_token=None, now=self.service.clock()
        )
        assert begun is not None
        return begun

    def begin_and_fail(self) -> None:
        jobs = self.service.services.queue.jobs
        assert jobs.restore(self.begin(), now=self.service.clock(), note="a test") is not None

    def lose_to_b(self) -> None:
        self.wait(LEASE_TTL_S)
        self.claimed(self.b)

    def use_up(self) -> None:
        """Let the last lease that the budget allows run out."""
        self.service.database["jobs"].update_one(
            {"_id": "s1"}, {"$set": {"attempts": 3, "tried": 2}}
        )
        self.wait(LEASE_TTL_S)

    def exhaust(self) -> None:
        self.use_up()
        jobs = self.service.services.queue.jobs
        job = jobs.get("s1")
        assert job is not None
        assert jobs.begin_exhaust(job, now=self.service.clock()) is not None

    def rejudge(self) -> None:
        self.service.ok("POST", "/submissions/s1/rejudge")

    def replaced_and_done(self) -> None:
        self.rejudge()
        self.service.judge(self.b, "s1", "WA")

    def replaced_long_ago(self) -> None:
        for _ in range(9):
            self.rejudge()
            self.claimed(self.a)

    def call_as(self, caller: str, verb: str, **body: Any) -> TestResponse:
        runner = self.b if caller.startswith("B") else self.a
        token = {
            "A, its token": self.token,
            "A, old token": self.old_token,
            "B, A's token": self.token,
        }.get(caller)
        return self.call(runner, verb, lease_token=token, **body)


@pytest.fixture
def stage(service: Service) -> Stage:
    return Stage(service)


@pytest.fixture
def strict(stage: Stage) -> Iterator[Stage]:
    """The stage under `RULES`."""
    queue = stage.service.services.queue
    relaxed = queue.rules
    object.__setattr__(queue, "rules", RULES)
    queue.jobs.rules = RULES
    yield stage
    object.__setattr__(queue, "rules", relaxed)
    queue.jobs.rules = relaxed


def check_answer(answer: TestResponse, status: int) -> None:
    assert answer.status_code == status, answer.text
    if status >= 400:
        assert answer.get_json(force=True)["reason"] == REASONS[status]
    assert ("Retry-After" in answer.headers) == (status == 503)


def check_cell(
    stage: Stage, verb: str, state: str, caller: str, status: int, effect: str, **body: Any
) -> None:
    stage.prepare(state)
    if caller == "A revoked":
        stage.service.ok("DELETE", f"/runners/{stage.a.runner_id}")
    before, job = stage.raw(), stage.job()
    answer = stage.call_as(caller, verb, **body)
    check_answer(answer, status)
    if not effect:
        assert stage.raw() == before
    elif effect == "lands":
        check_landed(stage, job)
    elif effect == "failed":
        check_failed(stage, job)
    else:
        check_given_back(stage, job)


def check_landed(stage: Stage, before: dict[str, Any]) -> None:
    job = stage.job()
    assert (job["state"], job["outcome"]) == ("done", Outcome.VERDICT.value)
    assert (job["fence"], job["attempts"]) == (before["fence"] + 1, before["attempts"])
    submission = stage.service.database["submissions"].find_one({"_id": "s1"})
    assert submission is not None
    assert (submission["status"], submission["fence"]) == (0, job["fence"])
    assert submission["result"]["job_id"] == job["job_id"]
    assert stage.service.counters("ada") == (1, 1, [1])


def check_given_back(stage: Stage, before: dict[str, Any]) -> None:
    job = stage.job()
    assert (job["state"], job["fence"]) == ("pending", before["fence"])
    assert job["attempts"] == before["attempts"] - 1
    assert job["queued_at"] == stage.service.clock()
    assert not {"leased_by", "lease_token", "lease_deadline", "handed_out"} & job.keys()


def check_failed(stage: Stage, before: dict[str, Any]) -> None:
    job, now = stage.job(), stage.service.clock()
    assert (job["state"], job["fence"]) == ("pending", before["fence"])
    assert (job["attempts"], job["queued_at"]) == (before["attempts"], now)
    assert job["failed_by"][-1] == job["tried_by"][-1] == before["leased_by"]
    assert job["history"][-1]["reason"] == "judge_error"
    pause_s = RULES.retry_pauses_s[before["attempts"] - 1]
    assert job["not_before"] == now + timedelta(seconds=pause_s)
    assert not {"leased_by", "lease_token", "lease_deadline", "handed_out"} & job.keys()
    assert stage.service.view("s1")["verdict"] == "PENDING"


@pytest.mark.parametrize(("state", "caller", "status", "effect"), cells(COMPLETE))
def test_complete(stage: Stage, state: str, caller: str, status: int, effect: str) -> None:
    check_cell(stage, "complete", state, caller, status, effect)


@pytest.mark.parametrize(("state", "caller", "status", "effect"), cells(ABORT))
def test_abort(stage: Stage, state: str, caller: str, status: int, effect: str) -> None:
    check_cell(stage, "abort", state, caller, status, effect)


@pytest.mark.parametrize(("state", "caller", "status", "effect"), cells(JUDGE_ERROR))
def test_complete_with_a_judge_error(
    strict: Stage, state: str, caller: str, status: int, effect: str
) -> None:
    check_cell(strict, "complete", state, caller, status, effect, **result_body("JE"))


# -- what does not fit into a table --------------------------------------------------------


@pytest.mark.parametrize("reason", ["prep_failed", "rejected"])
def test_i5_only_a_drain_refunds_its_attempt(stage: Stage, reason: str) -> None:
    stage.leased_twice()
    attempts = stage.job()["attempts"]
    stage.succeed(stage.a, "abort", reason=reason)
    assert (stage.job()["state"], stage.job()["attempts"]) == ("pending", attempts)


def test_i5_a_drain_at_the_limit_is_refunded_too(stage: Stage) -> None:
    stage.leased_twice()
    stage.service.database["jobs"].update_one({"_id": "s1"}, {"$set": {"attempts": 3}})
    stage.succeed(stage.a, "abort")
    assert (stage.job()["state"], stage.job()["attempts"]) == ("pending", 2)


def test_i5_drains_are_refunded_a_bounded_number_of_times(stage: Stage) -> None:
    refunds_max = stage.service.services.queue.rules.drain_refunds_max
    for _ in range(refunds_max):
        stage.claimed(stage.a)
        stage.succeed(stage.a, "abort")
        assert stage.job()["attempts"] == 0
        stage.wait(HEAD_START_S)
    for attempts in (1, 2):
        stage.claimed(stage.a)
        stage.succeed(stage.a, "abort")
        assert stage.job()["attempts"] == attempts
        stage.wait(HEAD_START_S)
    stage.claimed(stage.a)
    stage.succeed(stage.a, "abort")
    assert (stage.job()["state"], stage.job()["outcome"]) == ("done", "judge_error")


def test_i5_an_abort_at_the_limit_lands_a_judge_error(stage: Stage) -> None:
    stage.leased_twice()
    stage.service.database["jobs"].update_one({"_id": "s1"}, {"$set": {"attempts": 3}})
    stage.succeed(stage.a, "abort", reason="prep_failed")
    job = stage.job()
    assert (job["state"], job["outcome"]) == ("done", "judge_error")
    assert not {"leased_by", "lease_token", "claim_id"} & job.keys()
    assert stage.service.view("s1")["verdict"] == "JE"
    # Said again, its answer having been lost: nothing more to give back.
    check_answer(stage.call(stage.a, "abort", reason="prep_failed"), 409)


def test_an_abort_for_another_reason_is_no_repeat(stage: Stage) -> None:
    stage.prepare("given back")
    before = stage.raw()
    check_answer(stage.call(stage.a, "abort", reason="rejected"), 409)
    assert stage.raw() == before


def test_a_resend_after_a_lost_answer_lands_nothing_twice(stage: Stage) -> None:
    stage.leased_twice()
    stage.succeed(stage.a, "complete", lease_token=stage.token)
    before = stage.raw()
    for token in (stage.token, None):
        check_answer(stage.call(stage.a, "complete", lease_token=token), 204)
    # Not even with another result in it.
    check_answer(stage.call(stage.a, "complete", **result_body("WA")), 204)
    assert stage.raw() == before


def test_a_resend_during_a_landing_lands_once_the_landing_is_given_up(stage: Stage) -> None:
    stage.prepare("landing")
    stage.wait(LANDING_TTL_S - 0.001)
    check_answer(stage.call(stage.a, "complete"), 503)
    # Heartbeats keep the lease, but do not keep a dead landing alive.
    beat = {"active_job_ids": [stage.job_id]}
    stage.service.ok("POST", stage.a.path("heartbeat"), key=stage.a.token, json=beat)
    check_answer(stage.call(stage.a, "complete"), 503)
    stage.wait(0.001)
    check_answer(stage.call(stage.a, "complete"), 204)
    assert stage.job()["outcome"] == "verdict"


def test_an_invalid_result_leaves_the_lease(stage: Stage) -> None:
    stage.leased_twice()
    answer = stage.call(stage.a, "complete", **result_body("AC", "AC"))
    assert (answer.status_code, answer.get_json(force=True)["reason"]) == (400, "invalid_result")
    job = stage.job()
    assert (job["state"], job["leased_by"]) == ("leased", stage.a.runner_id)
    assert job["lease_token"] == stage.token
    check_answer(stage.call(stage.a, "complete", lease_token=stage.token), 204)


def next_job(stage: Stage, runner: Runner, claim_id: str) -> Any:
    path = runner.path(f"next-job?claim_id={claim_id}")
    return stage.service.ok("GET", path, key=runner.token)


def test_a_claim_whose_answer_was_lost_is_answered_again(stage: Stage) -> None:
    lost = next_job(stage, stage.a, "wish-1")
    before = stage.job()
    again = next_job(stage, stage.a, "wish-1")
    urls = {"code_url", "testdata_url"}
    assert {name: again[name] for name in again.keys() - urls} == {
        name: lost[name] for name in lost.keys() - urls
    }
    assert stage.job() == before
    # The same words of another runner are another wish, and another wish is another job.
    assert next_job(stage, stage.b, "wish-1") is None
    assert next_job(stage, stage.a, "wish-2") is None


def test_a_claim_whose_answer_was_lost_strands_nothing(stage: Stage) -> None:
    next_job(stage, stage.a, "wish-1")
    stage.wait(LEASE_TTL_S)
    # The lease is over: not the same lease any more.
    assert next_job(stage, stage.a, "wish-1") is None
    assert next_job(stage, stage.b, "wish-1")["attempt"] == 2
    check_answer(stage.call(stage.b, "complete"), 204)


def test_a_problem_edited_under_a_lease_costs_no_attempt_and_no_verdict(stage: Stage) -> None:
    stage.leased_twice()
    handed_out = stage.job()["handed_out"]["testdata_sha256"]
    edited = stage.service.problem(1, (50, 1), (50, 2), text="2\n")
    assert edited != handed_out
    check_answer(stage.call(stage.a, "complete"), 204)
    view = stage.service.view("s1")
    assert (view["verdict"], view["score"]) == ("AC", 100)
    assert view["testdata_sha256"] == handed_out
    assert stage.job()["attempts"] == 1


def test_a_replaced_jobs_result_changes_nothing_of_the_new_one(stage: Stage) -> None:
    stage.leased_twice()
    stage.rejudge()
    new_job = stage.job()["job_id"]
    check_answer(stage.call(stage.a, "complete"), 204)
    assert stage.service.view("s1")["verdict"] == "PENDING"
    stage.service.judge(stage.b, "s1", "WA")
    assert (stage.job()["job_id"], stage.service.view("s1")["verdict"]) == (new_job, "WA")


# -- next-job ------------------------------------------------------------------------------


def test_next_job_is_not_one_that_pauses(strict: Stage) -> None:
    strict.prepare("given back for a JE")
    strict.wait(RULES.retry_pauses_s[0] - 0.001)
    assert strict.service.claim(strict.b) is None
    strict.wait(0.001)
    assert strict.claimed(strict.b)


def test_next_job_is_not_of_a_held_problem_until_its_probe(strict: Stage) -> None:
    now = strict.service.clock()
    held = HeldProblem(
        problem_id=1,
        testdata_sha256=strict.service.problem(1),
        since=now,
        why="a test",
        probe_at=now + timedelta(seconds=HEAD_START_S),
    )
    assert strict.service.services.queue.control.hold_problem(held)
    strict.wait(HEAD_START_S - 0.001)
    assert strict.service.claim(strict.a) is None
    strict.wait(0.001)
    assert strict.claimed(strict.a)


def test_next_job_is_none_at_the_bound_of_concurrent_jobs(strict: Stage) -> None:
    strict.service.submit("ada", 1, "s2")
    strict.claimed(strict.a)
    assert strict.service.claim(strict.a) is None
    assert strict.claimed(strict.b)


def test_a_judge_error_at_the_limit_lands_once_two_runners_had_the_job(strict: Stage) -> None:
    strict.leased_twice()
    jobs = strict.service.database["jobs"]
    jobs.update_one({"_id": "s1"}, {"$set": {"attempts": 3, "tried": 2}})
    check_answer(strict.call(strict.a, "complete", **result_body("JE")), 204)
    job = strict.job()
    assert (job["state"], job["outcome"]) == ("done", "judge_error")
    assert strict.service.view("s1")["verdict"] == "JE"
    # Said again, its answer having been lost: nothing more to give back.
    check_answer(strict.call(strict.a, "complete", **result_body("JE")), 409)


def test_a_judge_error_at_the_limit_is_tried_on_before_two_runners_had_the_job(
    strict: Stage,
) -> None:
    strict.leased_twice()
    strict.service.database["jobs"].update_one({"_id": "s1"}, {"$set": {"attempts": 3}})
    check_answer(strict.call(strict.a, "complete", **result_body("JE")), 204)
    assert (strict.job()["state"], strict.job()["attempts"]) == ("pending", 2)
