"""One broken machine must not burn everybody's attempts; and a machine can be asked to drain."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dispatch.invariants import check_database
from dispatch.job import CANDIDATES_MAX
from tests.factories import ADMIN_KEY, REGISTRATION_TOKEN, Runner, Service

LEASE_S = 30
REST_S = 600


@pytest.fixture
def judging(service: Service) -> Service:
    """A service with one user and one problem."""
    service.user("ada")
    service.problem(1)
    return service


def abort(service: Service, runner: Runner, job_id: str, reason: str = "prep_failed") -> None:
    path = runner.path(f"jobs/{job_id}/abort")
    # Its problem is not held for that.
    body = {"reason": reason, "at_fault": "machine"}
    assert service.call("PUT", path, key=runner.token, json=body).status_code == 202


def fail(service: Service, runner: Runner, reason: str = "prep_failed") -> str | None:
    """Claim a job and give it back; return its submission, or None: there was none."""
    payload = service.claim(runner)
    if payload is None:
        return None
    abort(service, runner, payload["job_id"], reason)
    service.clock.advance(1)
    return str(payload["submission_id"])


def judge_all(service: Service, runner: Runner) -> list[str]:
    judged = []
    while (payload := service.claim(runner)) is not None:
        assert service.complete(runner, payload["job_id"], "AC").status_code == 204
        judged.append(payload["submission_id"])
        service.clock.advance(1)
    return judged


def entry(service: Service, runner: Runner) -> Any:
    (found,) = [
        one for one in service.ok("GET", "/runners") if one["runner_id"] == runner.runner_id
    ]
    return found


def beat(service: Service, *runners: Runner) -> None:
    for runner in runners:
        service.ok("POST", runner.path("heartbeat"), key=runner.token, json={"active_job_ids": []})


def test_a_broken_runner_is_set_aside_once_others_judged_its_jobs(judging: Service) -> None:
    broken, healthy = judging.runner("broken"), judging.runner("healthy")
    for number in range(40):
        judging.submit("ada", 1, f"sn_{number:02}")
    failed = [fail(judging, broken) for _ in range(40)]
    assert [one for one in failed if one] == [f"sn_{number:02}" for number in range(5)]
    assert entry(judging, broken)["resting"]
    assert entry(judging, broken)["set_aside"] is None, "nobody judged those jobs yet"
    assert entry(judging, broken)["aborts"] == 5
    assert len(judge_all(judging, healthy)) == 40
    aside = entry(judging, broken)["set_aside"]
    assert "5 jobs in a row that others then judged" in aside["why"]
    assert entry(judging, healthy)["set_aside"] is None
    assert entry(judging, healthy)["done"] == 40
    assert judging.counters("ada")[0] == 40

    judging.submit("ada", 1, "sn_late")
    judging.clock.advance(2 * REST_S)
    beat(judging, broken)
    assert judging.claim(broken) is None, "however long it has been, and though it is alone"
    waits = judging.ok("GET", "/submissions/sn_late")["waits_because"]
    assert waits == "The runners that take its language are set aside or drain."
    assert judging.call("POST", broken.path("reinstate")).status_code == 204
    assert judging.claim(broken)["submission_id"] == "sn_late"
    assert entry(judging, broken)["aborts"] == 0, "its failures are forgotten"


def test_the_failures_of_one_set_aside_cost_nothing(judging: Service) -> None:
    broken, healthy = judging.runner("broken"), judging.runner("healthy")
    for number in range(8):
        judging.submit("ada", 1, f"sn_{number}")
    held = [judging.claim(broken)["job_id"] for _ in range(8)]
    for job_id in held[:5]:
        abort(judging, broken, job_id)
    judging.clock.advance(1)
    assert len(judge_all(judging, healthy)) == 5
    assert entry(judging, broken)["set_aside"] is not None
    for job_id in held[5:]:
        abort(judging, broken, job_id)
    assert judging.view_job("sn_7")["attempts"] == 0
    assert judging.claim(healthy)["attempt"] == 1
    assert check_database(judging.database) == []


def test_a_lone_runner_that_fails_is_not_starved(judging: Service) -> None:
    alone = judging.runner("alone")
    for number in range(8):
        judging.submit("ada", 1, f"sn_{number}")
    assert [fail(judging, alone) for _ in range(8)] == [f"sn_{number}" for number in range(8)]


def test_when_all_have_failed_they_all_go_on(judging: Service) -> None:
    """As after an outage of what they fetch: for the whole room to rest would be an outage more."""
    runners = [judging.runner(f"desk {number}") for number in range(3)]
    for number in range(30):
        judging.submit("ada", 1, f"sn_{number:02}")
    for _ in range(5):
        for runner in runners:
            assert fail(judging, runner)
    beat(judging, *runners)
    for runner in runners:
        assert judging.claim(runner) is not None


def test_one_that_rests_is_given_what_nobody_else_can_judge(judging: Service) -> None:
    broken = judging.runner("broken")
    judging.runner("no python", languages=[0, 1])
    for number in range(5):
        judging.submit("ada", 1, f"sn_{number}", language=0)
    assert all(fail(judging, broken) for _ in range(5))
    judging.submit("ada", 1, "sn_c", language=1)
    assert judging.claim(broken) is None
    judging.submit("ada", 1, "sn_py", language=2)
    assert judging.claim(broken)["submission_id"] == "sn_py"


def test_jobs_that_fail_on_everybody_are_the_jobs_fault(judging: Service) -> None:
    runners = [judging.runner(f"desk {number}") for number in range(3)]
    for number in range(6):
        submission_id = judging.submit("ada", 1, f"sn_{number}")
        assert [fail(judging, runner) for runner in runners] == [submission_id] * 3
        assert judging.view(submission_id)["verdict"] == "JE"
    for runner in runners:
        assert not entry(judging, runner)["resting"]
        assert entry(judging, runner)["set_aside"] is None


def test_a_job_judged_in_between_ends_the_row(judging: Service) -> None:
    shaky, healthy = judging.runner("shaky"), judging.runner("healthy")
    for number in range(4):
        judging.submit("ada", 1, f"sn_{number}")
        assert fail(judging, shaky)
    judging.judge(healthy, "sn_0", "AC")
    judging.submit("ada", 1, "sn_good")
    judge_all(judging, healthy)
    judging.submit("ada", 1, "sn_better")
    judging.judge(shaky, "sn_better", "AC")
    judging.clock.advance(1)
    for number in range(4):
        judging.submit("ada", 1, f"sn_again_{number}")
        assert fail(judging, shaky)
    judge_all(judging, healthy)
    assert entry(judging, shaky)["set_aside"] is None
    assert not entry(judging, shaky)["resting"]


def lose(service: Service, runner: Runner, *, while_alive: bool) -> None:
    """Have the runner claim a job and let its lease run out."""
    assert service.claim(runner) is not None
    service.clock.advance(LEASE_S + 2)
    if while_alive:
        beat(service, runner)


@pytest.mark.parametrize("alive", [True, False])
def test_leases_lost_count_only_against_one_that_was_there(judging: Service, alive: bool) -> None:
    forgetful, healthy = judging.runner("forgetful"), judging.runner("healthy")
    for number in range(5):
        judging.submit("ada", 1, f"sn_{number}")
        lose(judging, forgetful, while_alive=alive)
        assert judge_all(judging, healthy) == [f"sn_{number}"]
    assert (entry(judging, forgetful)["set_aside"] is not None) is alive


def test_one_that_reports_judge_errors_rests(judging: Service) -> None:
    broken = judging.runner("broken")
    judging.runner("healthy")
    for number in range(7):
        judging.submit("ada", 1, f"sn_{number}")
    for number in range(5):
        judging.judge(broken, f"sn_{number}", "JE")
        judging.clock.advance(1)
    assert judging.claim(broken) is None
    assert entry(judging, broken)["judge_errors"] == 5


def test_a_rest_ends_and_one_more_failure_begins_it_anew(judging: Service) -> None:
    broken, other = judging.runner("broken"), judging.runner("other")
    for number in range(9):
        judging.submit("ada", 1, f"sn_{number}")
    assert all(fail(judging, broken) for _ in range(5))
    assert judging.claim(broken) is None
    judging.clock.advance(REST_S)
    beat(judging, other)
    assert fail(judging, broken)
    assert judging.claim(broken) is None


def test_one_asked_to_drain_is_told_and_gets_nothing_more(judging: Service) -> None:
    runner = judging.runner()
    judging.submit("ada", 1, "sn_held")
    judging.submit("ada", 1, "sn_waits")
    held = judging.claim(runner)
    ask = {"active_job_ids": [held["job_id"]], "report_drain": True}
    path = runner.path("heartbeat")
    assert judging.ok("POST", path, key=runner.token, json=ask) == {"drain": False}
    assert judging.call("POST", runner.path("drain")).status_code == 204
    assert judging.ok("POST", path, key=runner.token, json={**ask, "report_lost": True}) == {
        "lost_job_ids": [],
        "drain": True,
    }
    silent = judging.call("POST", path, key=runner.token, json={"active_job_ids": []})
    assert silent.status_code == 204, "one that does not ask is not told"
    assert judging.claim(runner) is None
    assert entry(judging, runner)["drain"]["by"] == "admin"
    assert judging.complete(runner, held["job_id"], "AC").status_code == 204
    waits = judging.ok("GET", "/submissions/sn_waits")["waits_because"]
    assert waits == "The runners that take its language are set aside or drain."
    assert judging.call("POST", runner.path("reinstate")).status_code == 204
    assert judging.claim(runner)["submission_id"] == "sn_waits"


def test_nobody_waits_for_a_runner_that_drains(judging: Service) -> None:
    leaving, staying = judging.runner("leaving"), judging.runner("staying")
    judging.submit("ada", 1, "sn_1")
    assert fail(judging, staying)
    assert judging.claim(staying) is None, "the other one comes first"
    assert judging.call("POST", leaving.path("drain")).status_code == 204
    assert judging.claim(staying) is not None


def test_one_problem_that_nobody_can_judge_does_not_stop_the_room(judging: Service) -> None:
    judging.problem(2)
    runners = [judging.runner("one"), judging.runner("two")]
    for number in range(10):
        judging.submit("ada", 1, f"sn_{number}")
    judging.clock.advance(1)
    for runner in runners:
        judging.complete(runner, judging.claim(runner)["job_id"], "JE")
        judging.clock.advance(1)
    judging.submit("ada", 2, "sn_good")
    assert judging.claim(runners[0])["submission_id"] == "sn_good"


def test_nobody_waits_for_one_that_rests(judging: Service) -> None:
    once, resting = judging.runner("failed once"), judging.runner("resting")
    for number in range(5):
        judging.submit("ada", 1, f"sn_{number}")
    assert all(fail(judging, resting) for _ in range(5))
    assert fail(judging, once) == "sn_0"
    judging.clock.advance(20)
    beat(judging, once, resting)
    assert judge_all(judging, once)[-1] == "sn_0"


def test_old_failures_are_no_row_whatever_is_rejudged_since(judging: Service) -> None:
    runner, other = judging.runner("runner"), judging.runner("other")
    judged = []
    for number in range(6):
        judging.submit("ada", 1, f"sn_bad_{number}")
        assert fail(judging, runner) == f"sn_bad_{number}"
        judging.judge(other, f"sn_bad_{number}", "AC")
        judging.clock.advance(5 * 3600)
        judged.append(judging.submit("ada", 1, f"sn_good_{number}"))
        judging.judge(runner, judged[-1], "AC")
        judging.clock.advance(5 * 3600)
    for submission_id in judged:
        judging.ok("POST", f"/submissions/{submission_id}/rejudge")
    beat(judging, runner, other)
    assert fail(judging, runner)
    assert len(judge_all(judging, other)) == 6
    assert entry(judging, runner)["set_aside"] is None


def test_what_is_kept_for_others_does_not_hide_the_line(judging: Service) -> None:
    judging.problem(2)
    picky = judging.runner("cannot judge problem 1")
    for _ in range(CANDIDATES_MAX):
        judging.submit("ada", 1)
        judging.submit("ada", 2)
    busy = judging.runner("busy", languages=[2])
    failed = 0
    while failed < CANDIDATES_MAX:
        payload = judging.claim(picky)
        if payload["problem_id"] == 1:
            abort(judging, picky, payload["job_id"])
            failed += 1
        else:
            judging.complete(picky, payload["job_id"], "AC")
        judging.clock.advance(0.1)
    while (payload := judging.claim(picky)) is not None:
        assert payload["problem_id"] == 2
        judging.complete(picky, payload["job_id"], "AC")
    beat(judging, picky, busy)
    fresh = judging.submit("ada", 2)
    assert judging.claim(picky)["submission_id"] == fresh


def test_one_that_was_cut_off_with_its_hands_full_is_not_blamed(judging: Service) -> None:
    back, other = judging.runner("back"), judging.runner("other")
    for number in range(8):
        judging.submit("ada", 1, f"sn_{number}")
    assert all(judging.claim(back) for _ in range(8))
    judging.clock.advance(LEASE_S + 1)
    judging.judge(other, "sn_0", "AC")
    judging.claim(back)  # its poll comes before its heartbeat, and before others are through
    judge_all(judging, other)
    assert entry(judging, back)["set_aside"] is None


@pytest.mark.parametrize("verb", ["drain", "reinstate"])
def test_an_unknown_or_revoked_runner_is_404(judging: Service, verb: str) -> None:
    gone = judging.runner()
    assert judging.call("DELETE", gone.path("").rstrip("/")).status_code == 204
    for runner_id in (gone.runner_id, "rn_never", "$where"):
        answer = judging.call("POST", f"/runners/{runner_id}/{verb}", key=ADMIN_KEY)
        assert answer.get_json()["reason"] == "unknown_runner"


def test_why_a_submission_waits(judging: Service) -> None:
    def why(submission_id: str) -> str:
        sentence = judging.ok("GET", f"/submissions/{submission_id}")["waits_because"]
        assert isinstance(sentence, str)
        return sentence

    judging.submit("ada", 1, "sn_1")
    assert why("sn_1") == "No runner is alive."
    judging.runner("only C", languages=[0])
    assert why("sn_1") == "No runner that is alive takes its language."
    judging.runner()
    assert why("sn_1") == "It is the next in line for a free runner."
    for number in range(2, 5):
        judging.clock.advance(1)
        judging.submit("ada", 1, f"sn_{number}")
    assert why("sn_4") == "It is number 4 in line."
    judging.ok("POST", "/submissions/sn_4/front")
    assert why("sn_4") == "It is the next in line for a free runner."
    assert why("sn_1") == "It is number 2 in line."


def test_a_held_rejudge_says_so(judging: Service) -> None:
    runner = judging.runner()
    judging.submit("ada", 1, "sn_1")
    judging.judge(runner, "sn_1", "AC")
    rejudge_id = judging.ok("POST", "/problems/1/rejudge")["rejudge_id"]
    for _ in range(3):
        judging.sweep()
    beat(judging, runner)
    judging.ok("POST", f"/rejudges/{rejudge_id}/pause")
    waits = judging.ok("GET", "/submissions/sn_1")["waits_because"]
    assert waits == "The rejudge it belongs to is on hold."


# -- a runner that crashed and came back ---------------------------------------------------------


def replacing(judging: Service, former: Any, **changed: str) -> Any:
    body = {
        "registration_token": REGISTRATION_TOKEN,
        "name": "again",
        "replaces": {"runner_id": former.runner_id, "token": former.token, **changed},
    }
    return judging.call("POST", "/runners/register", key=None, json=body, may_fail=True)


def test_i2_what_a_crashed_runner_held_is_free_as_soon_as_it_is_back(judging: Service) -> None:
    judging.submit("ada", 1, "s1")
    crashed, other = judging.runner("crashed"), judging.runner("other")
    held = judging.claim(crashed)
    assert held is not None
    answer = replacing(judging, crashed)
    assert answer.status_code == 201
    assert answer.get_json()["runner_id"] != crashed.runner_id
    judging.clock.advance(0.5)
    again = judging.claim(other)
    assert again is not None
    assert (again["job_id"], again["attempt"]) == (held["job_id"], 2)
    assert judging.complete(crashed, held["job_id"], "AC", may_fail=True).status_code == 401
    assert replacing(judging, crashed).status_code == 401, "it is revoked"


@pytest.mark.parametrize("wrong", [{"token": "rk_wrong"}, {"runner_id": "rn_nobody"}])
def test_nobody_else_ends_a_runners_leases(judging: Service, wrong: dict[str, str]) -> None:
    judging.submit("ada", 1, "s1")
    runner, other = judging.runner("mine"), judging.runner("other")
    held = judging.claim(runner)
    assert held is not None
    deadline = judging.view_job("s1")["lease_deadline"]
    answer = replacing(judging, runner, **wrong)
    assert answer.status_code == 401
    assert judging.view_job("s1")["lease_deadline"] == deadline
    judging.clock.advance(1)
    assert judging.claim(other) is None
    assert judging.complete(runner, held["job_id"], "AC").status_code == 204
    assert len(judging.ok("GET", "/runners")) == 2, "nobody was registered"


def test_a_landing_under_way_is_not_taken_from_a_runner_that_came_back(judging: Service) -> None:
    judging.submit("ada", 1, "s1")
    crashed = judging.runner("crashed")
    assert judging.claim(crashed) is not None
    deadline = judging.clock() + timedelta(seconds=30)
    landing = {"state": "landing", "landing_deadline": deadline, "lease_deadline": deadline}
    judging.database["jobs"].update_one({"_id": "s1"}, {"$set": landing})
    assert replacing(judging, crashed).status_code == 201
    job = judging.database["jobs"].find_one({"_id": "s1"})
    assert job is not None
    assert job["lease_deadline"] == deadline
