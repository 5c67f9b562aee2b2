"""Runners are checked with known programs: over HTTP, on a real server."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from pymongo import MongoClient

from dispatch import checks, probation
from dispatch.check_store import CheckRecord
from dispatch.contract import Verdict
from dispatch.probation import FOLLOW_UP_EVERY
from mongo import engine, user
from mongo.embedded import EmbeddedMongo
from mongo.known_programs import PROBLEM_ID, known_programs
from tests.console.support import Operator
from tests.factories import ADMIN_KEY, EPOCH, ManualClock, Runner, Service, case_body
from tests.fixtures import build_app

C, CPP, PYTHON = 0, 1, 2
TEN_MINUTES_S = FOLLOW_UP_EVERY.total_seconds()
LEASE_S = 30
CEILING_S = 300
NAME = "checks_runners"
EXPECTED = {program.program_id: program.expected.name for program in known_programs()}


@pytest.fixture(scope="module")
def checking_app(mongod: EmbeddedMongo) -> Iterator[tuple[Flask, ManualClock]]:
    """An app that checks its runners, in a database of its own."""
    clock = ManualClock()
    yield build_app(mongod.uri_for(NAME), clock, runner_checks="on"), clock
    engine.disconnect()


@pytest.fixture
def service(
    checking_app: tuple[Flask, ManualClock], mongo_client: MongoClient[dict[str, Any]]
) -> Iterator[Service]:
    """A service that checks its runners, with ada and problem 1."""
    app, clock = checking_app
    clock.at = EPOCH
    database = mongo_client[NAME]
    user.ensure_admin_key(ADMIN_KEY, now=EPOCH)
    made = Service(app=app, clock=clock, database=database)
    made.user("ada")
    made.problem(1)
    yield made
    for collection in database.list_collection_names():
        database[collection].delete_many({})


def ask(service: Service, runner: Runner, **query: Any) -> Any:
    return service.ok("GET", runner.path("next-job"), key=runner.token, query_string=query)


def answer(
    service: Service, runner: Runner, payload: Any, status: str, expect: int = 204, **case: Any
) -> None:
    """Complete a job of one case."""
    path = runner.path(f"jobs/{payload['job_id']}/complete")
    body = {"lease_token": payload["lease_token"], "tasks": [[case_body(status, **case)]]}
    assert service.call("PUT", path, key=runner.token, json=body).status_code == expect


def give_back(
    service: Service, runner: Runner, payload: Any, reason: str, expect: int = 202
) -> None:
    path = runner.path(f"jobs/{payload['job_id']}/abort")
    sent = {"reason": reason, "lease_token": payload["lease_token"]}
    assert service.call("PUT", path, key=runner.token, json=sent).status_code == expect


def beat(service: Service, runner: Runner, *job_ids: str, **more: Any) -> Any:
    body = {"active_job_ids": list(job_ids), **more}
    return service.ok("POST", runner.path("heartbeat"), key=runner.token, json=body)


def is_check(payload: Any) -> bool:
    return payload is not None and payload["problem_id"] == PROBLEM_ID


def known(service: Service, payload: Any) -> str:
    """The verdict that is known of a check's program."""
    record = service.services.queue.checks.recorded(payload["job_id"])
    assert record is not None
    return EXPECTED[record.program_id]


def prove(service: Service, runner: Runner) -> list[tuple[str, int]]:
    """Judge checks right until a poll gets something else; return (verdict, language) of each."""
    passed: list[tuple[str, int]] = []
    for _ in range(8):
        payload = ask(service, runner)
        if not is_check(payload):
            assert payload is None
            return passed
        passed.append((known(service, payload), payload["language"]))
        answer(service, runner, payload, passed[-1][0])
    raise AssertionError(f"checks without end: {passed}")


def proven(service: Service, name: str = "runner", **wish: Any) -> Runner:
    runner = service.runner(name, **wish)
    prove(service, runner)
    return runner


def judge(service: Service, runner: Runner, status: str, **case: Any) -> str:
    """Hand a Python program in and have the runner judge it; return the submission."""
    submission_id = service.submit("ada", 1)
    payload = ask(service, runner)
    assert payload["submission_id"] == submission_id
    answer(service, runner, payload, status, **case)
    return submission_id


def advance_rejudges(service: Service) -> None:
    maintenance: Any = service.services.maintain
    while maintenance.advance_rejudges():
        pass


def entry(service: Service, runner: Runner) -> Any:
    found = service.ok("GET", "/runners")
    return next(one for one in found if one["runner_id"] == runner.runner_id)


# -- probation -------------------------------------------------------------------------------


def test_a_runner_judges_known_programs_before_its_first_job(service: Service) -> None:
    submission_id = service.submit("ada", 1)
    runner = service.runner()
    given = []
    while is_check(payload := ask(service, runner)):
        assert entry(service, runner)["checks"]["on_probation"] is True
        given.append((known(service, payload), payload["language"]))
        answer(service, runner, payload, given[-1][0])
    assert given == [("AC", C), ("AC", CPP), ("AC", PYTHON), ("WA", PYTHON)]
    assert payload["submission_id"] == submission_id
    answer(service, runner, payload, "AC")
    assert ask(service, runner) is None
    assert entry(service, runner)["checks"] == {
        "on_probation": False,
        "unproven": [],
        "share": 0,
        "failed": None,
    }


def test_only_what_is_offered_is_checked(service: Service) -> None:
    assert prove(service, service.runner(languages=[C])) == [("AC", C), ("WA", C)]
    assert prove(service, service.runner(languages=[])) == []


def test_a_language_that_is_proven_is_judged_while_another_is_not(service: Service) -> None:
    submission_id = service.submit("ada", 1, language=PYTHON)
    in_c = service.submit("ada", 1, language=C)
    runner = service.runner(languages=[C, PYTHON])
    in_hand = ask(service, runner)
    assert in_hand["language"] == C
    python = ask(service, runner)
    assert python["language"] == PYTHON
    answer(service, runner, python, "AC")
    answer(service, runner, ask(service, runner), "WA")
    payload = ask(service, runner)
    assert payload["submission_id"] == submission_id
    answer(service, runner, payload, "AC")
    assert ask(service, runner) is None
    answer(service, runner, in_hand, "AC")
    assert ask(service, runner)["submission_id"] == in_c


def test_a_check_looks_like_any_job(service: Service) -> None:
    runner = proven(service, languages=[PYTHON])
    service.submit("ada", 1)
    job = ask(service, runner)
    checked = service.runner("checked")
    check = ask(service, checked)
    assert not is_check(job)
    assert is_check(check)
    assert {key: type(value) for key, value in check.items()} == {
        key: type(value) for key, value in job.items()
    }
    assert (check["job_id"][:3], check["submission_id"][:3]) == ("jb_", "sn_")
    with zipfile.ZipFile(io.BytesIO(service.client.get(check["code_url"]).data)) as code:
        assert code.namelist() == ["main.c"]
    data = service.client.get(check["testdata_url"])
    assert data.headers["ETag"] == f'"{check["testdata_sha256"]}"'
    with zipfile.ZipFile(io.BytesIO(data.data)) as packed:
        assert packed.namelist() == ["0000.in", "0000.out"]
    kept = {"If-None-Match": f'"{check["testdata_sha256"]}"'}
    assert service.client.get(check["testdata_url"], headers=kept).status_code == 304
    answer(service, checked, check, "AC")
    for link in ("code_url", "testdata_url"):
        assert service.client.get(check[link]).status_code == 403


@pytest.mark.parametrize("verdict", ["AC", "WA", "CE", "RE", "TLE"])
def test_a_runner_that_says_the_same_of_everything_gets_no_job(
    service: Service, verdict: str
) -> None:
    submission_id = service.submit("ada", 1)
    runner = service.runner()
    for _ in range(10):
        payload = ask(service, runner)
        if payload is not None:
            assert is_check(payload)
            answer(service, runner, payload, verdict)
        service.clock.advance(60)
    assert service.view_job(submission_id)["attempts"] == 0
    assert entry(service, runner)["set_aside"] is not None


def test_several_slots_of_one_that_accepts_everything_get_no_job_either(service: Service) -> None:
    service.submit("ada", 1)
    runner = service.runner()
    for _ in range(5):
        in_hand = [ask(service, runner) for _ in range(4)]
        for payload in in_hand:
            if payload is not None:
                assert is_check(payload)
                answer(service, runner, payload, "AC", expect=204)
    assert entry(service, runner)["set_aside"] is not None


def test_nothing_of_a_check_is_seen_elsewhere(service: Service) -> None:
    def seen() -> dict[str, Any]:
        queue = service.ok("GET", "/queue")
        return {
            **{name: queue[name] for name in ("depth", "oldest_pending_age_s", "landed_per_min")},
            "submissions": service.ok("GET", "/submissions")["submissions"],
            "export": service.call("GET", "/submissions.csv").text,
            "ada": service.ok("GET", "/users/ada"),
            "rows": {
                name: service.database[name].count_documents({})
                for name in ("jobs", "submissions", "users", "problems", "student_status")
            },
        }

    before = seen()
    runner = service.runner()
    assert is_check(ask(service, runner))
    assert seen() == before
    service.clock.advance(LEASE_S + 1)
    prove(service, runner)
    service.clock.advance(120)
    assert prove(service, runner)
    assert seen() == before
    told = entry(service, runner)
    assert (told["done"], told["active_jobs"]) == (0, [])


# -- the wire --------------------------------------------------------------------------------


def test_a_repeated_wish_gets_the_same_check(service: Service) -> None:
    runner = service.runner()
    first = ask(service, runner, claim_id="wish-1")
    again = ask(service, runner, claim_id="wish-1")
    same = ("job_id", "submission_id", "lease_token", "language")
    assert [first[name] for name in same] == [again[name] for name in same]
    other = ask(service, runner, claim_id="wish-2")
    assert other["job_id"] != first["job_id"]


def test_a_wish_that_was_granted_a_job_is_granted_it_again_when_a_check_is_due(
    service: Service,
) -> None:
    runner = proven(service)
    service.submit("ada", 1)
    service.clock.advance(TEN_MINUTES_S - LEASE_S / 2)
    job = ask(service, runner, claim_id="wish")
    assert not is_check(job)
    service.clock.advance(LEASE_S / 2)
    assert ask(service, runner, claim_id="wish")["job_id"] == job["job_id"]
    assert is_check(ask(service, runner, claim_id="another"))


def test_one_wish_sent_many_times_at_once_gets_one_check(service: Service) -> None:
    runner = service.runner()
    got: list[Any] = []

    def poll() -> None:
        got.append(ask(service, runner, claim_id="wish"))

    threads = [threading.Thread(target=poll) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({payload["job_id"] for payload in got}) == 1
    assert len(service.database["runner_checks"].distinct("_id")) == 1


def test_polls_at_once_get_one_check_a_language(service: Service) -> None:
    runner = service.runner()
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(ask(service, runner))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    given = [payload["language"] for payload in got if payload is not None]
    assert sorted(given) == [C, CPP, PYTHON]


def test_a_follow_up_is_given_to_one_of_many_polls(service: Service) -> None:
    runner = proven(service)
    service.clock.advance(TEN_MINUTES_S)
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(ask(service, runner))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(payload is not None for payload in got) == 1


def test_a_resent_answer_is_taken_once(service: Service) -> None:
    runner = service.runner(languages=[PYTHON])
    check = ask(service, runner)
    for _ in range(3):
        answer(service, runner, check, "AC")
    # Not even another answer counts any more.
    answer(service, runner, check, "CE")
    assert entry(service, runner)["set_aside"] is None
    give_back(service, runner, check, "drain", expect=409)


def test_an_answer_sent_many_times_at_once_is_taken_once(service: Service) -> None:
    runner = service.runner(languages=[PYTHON])
    check = ask(service, runner)
    threads = [
        threading.Thread(target=answer, args=(service, runner, check, "AC")) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    document = service.database["runners"].find_one({"_id": runner.runner_id})
    assert document is not None
    assert [ended["how"] for ended in document["checks"]["ended"]] == ["complete"]


def test_a_check_belongs_to_its_runner(service: Service) -> None:
    runner, other = service.runner("one"), service.runner("other")
    check = ask(service, runner)
    answer(service, other, check, "AC", expect=409)
    give_back(service, other, check, "prep_failed", expect=409)
    assert beat(service, other, check["job_id"], report_lost=True) == {
        "lost_job_ids": [check["job_id"]]
    }
    answer(service, runner, check, "AC")
    answer(service, other, check, "AC", expect=409)
    answer(service, runner, {**check, "job_id": "jb_nobody"}, "AC", expect=404)
    give_back(service, runner, {**check, "job_id": "jb_nobody"}, "drain", expect=404)


def test_a_wrong_lease_token_is_refused(service: Service) -> None:
    runner = service.runner()
    check = ask(service, runner)
    answer(service, runner, {**check, "lease_token": "x"}, "AC", expect=409)
    give_back(service, runner, {**check, "lease_token": "x"}, "drain", expect=409)
    answer(service, runner, check, "AC")


def test_a_result_that_does_not_fit_leaves_the_check(service: Service) -> None:
    runner = service.runner()
    check = ask(service, runner)
    path = runner.path(f"jobs/{check['job_id']}/complete")
    for tasks in ([], [[case_body()], [case_body()]], [[case_body(), case_body()]], [[]]):
        refused = service.call("PUT", path, key=runner.token, json={"tasks": tasks})
        assert refused.status_code == 400
        assert refused.get_json(force=True)["reason"] == "invalid_result"
    answer(service, runner, check, "AC")


def test_heartbeats_keep_a_check_alive_up_to_a_ceiling(service: Service) -> None:
    runner = service.runner(languages=[PYTHON])
    check = ask(service, runner)
    for _ in range(3):
        service.clock.advance(LEASE_S - 1)
        told = beat(service, runner, check["job_id"], report_lost=True)
        assert told == {"lost_job_ids": []}
    for _ in range(CEILING_S // 20):
        service.clock.advance(20)
        told = beat(service, runner, check["job_id"], report_lost=True)
    assert told == {"lost_job_ids": [check["job_id"]]}
    answer(service, runner, check, "AC", expect=409)


def test_a_check_that_ran_out_is_over_and_another_follows(service: Service) -> None:
    runner = service.runner(languages=[PYTHON])
    check = ask(service, runner)
    service.clock.advance(LEASE_S)
    # Over, and not at once again.
    assert ask(service, runner) is None
    answer(service, runner, check, "AC", expect=409)
    answer(service, runner, check, "CE", expect=409)
    assert entry(service, runner)["set_aside"] is None
    service.clock.advance(5)
    follower = ask(service, runner)
    assert is_check(follower)
    assert follower["job_id"] != check["job_id"]


def test_an_unanswered_check_of_one_whose_identity_went_on_is_told_late(service: Service) -> None:
    """Its own document remembers the last few; the record knows the rest."""
    runner = service.runner()
    record = CheckRecord(
        job_id="jb_old", runner_id=runner.runner_id, program_id="ac-0", language=C, at=EPOCH
    )
    service.services.queue.checks.record(record)
    late = {"job_id": "jb_old", "lease_token": "x"}
    answer(service, runner, late, "AC", expect=409)
    give_back(service, runner, late, "drain", expect=409)
    service.database["runner_checks"].update_one({"_id": "jb_old"}, {"$set": {"passed": True}})
    answer(service, runner, late, "AC")


@pytest.mark.parametrize("reason", ["prep_failed", "rejected"])
def test_a_check_given_back_is_asked_again_later_each_time_and_costs_no_standing(
    service: Service, reason: str
) -> None:
    runner = service.runner(languages=[PYTHON])
    for pause_s in (5, 30, 120, 120):
        check = ask(service, runner)
        give_back(service, runner, check, reason)
        give_back(service, runner, check, reason)
        service.clock.advance(pause_s - 1)
        assert ask(service, runner) is None
        service.clock.advance(1)
    told = entry(service, runner)
    assert (told["set_aside"], told["checks"]["on_probation"]) == (None, True)
    assert prove(service, runner) == [("AC", PYTHON), ("WA", PYTHON)]


def test_a_drained_check_costs_nothing(service: Service) -> None:
    runner = service.runner(languages=[PYTHON])
    give_back(service, runner, ask(service, runner), "drain")
    assert is_check(ask(service, runner))


def test_a_judge_error_is_no_wrong_verdict(service: Service) -> None:
    runner = service.runner(languages=[PYTHON])
    check = ask(service, runner)
    answer(service, runner, check, "JE")
    answer(service, runner, check, "JE")
    assert ask(service, runner) is None
    told = entry(service, runner)
    assert (told["set_aside"], told["checks"]["unproven"]) == (None, [PYTHON])


# -- races: what a poll has read of its runner is old by the time it writes -----------------


def stale(service: Service, runner: Runner) -> Any:
    """The runner as a poll has read it."""
    found = service.services.queue.runners.get(runner.runner_id)
    assert found is not None
    return found


def give(service: Service, seen: Any, claim_id: str | None = None, now: Any = None) -> Any:
    """Hand out what is due to a runner as it was seen, as a poll that was slow does."""
    queue = service.services.queue
    at = now or service.clock()
    due = probation.due(seen.checks, checks.offered(queue, seen), queue.known_programs, at)
    assert due is not None
    return checks._give(queue, seen, due, claim_id, at)


def test_a_wish_is_granted_one_check_whatever_was_read_before(service: Service) -> None:
    runner = service.runner()
    seen = stale(service, runner)
    assert give(service, seen, "wish") is not None
    later = replace(seen, checks=replace(seen.checks, proven={C: EPOCH}))
    assert give(service, later, "wish") is None
    assert give(service, later, "another") is not None


def test_one_turn_is_one_follow_up_whatever_was_read_before(service: Service) -> None:
    runner = proven(service)
    service.clock.advance(TEN_MINUTES_S)
    seen = stale(service, runner)
    check = ask(service, runner)
    answer(service, runner, check, known(service, check))
    assert give(service, seen) is None


@pytest.mark.parametrize("done", ["set aside", "drain", "revoke"])
def test_one_that_gets_nothing_gets_no_check_whatever_was_read_before(
    service: Service, done: str
) -> None:
    runner, runners = service.runner(), service.services.queue.runners
    seen = stale(service, runner)
    match done:
        case "set aside":
            runners.set_aside(runner.runner_id, why="x", now=service.clock())
        case "drain":
            runners.ask_to_drain(runner.runner_id, by="x", now=service.clock())
        case _:
            runners.revoke(runner.runner_id, now=service.clock())
    assert give(service, seen) is None


def test_a_program_that_was_proven_meanwhile_is_not_handed_out_again(service: Service) -> None:
    runner = service.runner(languages=[PYTHON])
    at_first = stale(service, runner)
    answer(service, runner, ask(service, runner), "AC")
    assert give(service, at_first) is None
    once_proven = stale(service, runner)
    answer(service, runner, ask(service, runner), "WA")
    assert give(service, once_proven) is None


def test_a_check_that_ended_twice_does_not_end_the_next(service: Service) -> None:
    runner, store = service.runner(languages=[PYTHON]), service.services.queue.checks
    ask(service, runner)
    ((_, first),) = stale(service, runner).checks.open.items()
    assert store.ended(runner.runner_id, first, how="drain", pause=None) is not None
    second = ask(service, runner)
    assert store.ended(runner.runner_id, first, how="drain", pause=None) is None
    answer(service, runner, second, "AC")


# -- follow-ups ------------------------------------------------------------------------------


def test_all_kinds_follow_between_jobs_one_in_ten_minutes(service: Service) -> None:
    runner = proven(service)
    seen = []
    for _ in range(15):
        service.clock.advance(TEN_MINUTES_S - 1)
        assert ask(service, runner) is None
        service.clock.advance(1)
        check = ask(service, runner)
        assert is_check(check)
        seen.append((known(service, check), check["language"]))
        # It goes on judging meanwhile.
        submission_id = service.submit("ada", 1, language=(check["language"] + 1) % 3)
        job = ask(service, runner)
        assert job["submission_id"] == submission_id
        answer(service, runner, job, "AC")
        answer(service, runner, check, seen[-1][0])
    for language, expected in (
        (C, {"WA", "CE", "TLE", "MLE", "RE"}),
        (CPP, {"WA", "CE", "TLE", "MLE", "RE"}),
        (PYTHON, {"WA", "CE", "TLE", "RE"}),
    ):
        assert {verdict for verdict, of in seen if of == language} == expected


def test_memory_that_is_refused_is_as_right_as_a_program_that_is_ended(service: Service) -> None:
    runner = proven(service, languages=[C])
    for _ in range(5):
        service.clock.advance(TEN_MINUTES_S)
        check = ask(service, runner)
        verdict = known(service, check)
        answer(service, runner, check, "RE" if verdict == "MLE" else verdict)
    assert entry(service, runner)["set_aside"] is None


# -- failing ---------------------------------------------------------------------------------


def fail_a_follow_up(service: Service, runner: Runner) -> None:
    service.clock.advance(TEN_MINUTES_S)
    check = ask(service, runner)
    assert is_check(check)
    answer(service, runner, check, "AC")


def test_one_that_fails_is_set_aside_with_the_list_of_what_it_judged_since(
    service: Service,
) -> None:
    runner = proven(service, languages=[PYTHON])
    other = proven(service, "other", languages=[PYTHON])
    service.clock.advance(1)
    before = judge(service, runner, "AC")
    service.clock.advance(TEN_MINUTES_S)
    check = ask(service, runner)
    answer(service, runner, check, known(service, check))
    since = service.clock()
    service.clock.advance(1)
    doubtful = [judge(service, runner, "AC") for _ in range(3)]
    prove(service, other)
    others = judge(service, other, "AC")
    fail_a_follow_up(service, runner)
    told = entry(service, runner)
    assert told["set_aside"]["why"].startswith("It said AC of a check that is ")
    failed = told["checks"]["failed"]
    assert (failed["answer"], failed["language"], failed["until"]) == ("AC", PYTHON, None)
    assert failed["total"] == 3
    assert failed["submission_ids"] == doubtful
    assert failed["since"] == since.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert ask(service, runner) is None
    started = service.ok("POST", f"/runners/{runner.runner_id}/rejudge")
    assert started["total"] == 3
    advance_rejudges(service)
    pending = {one for one in (before, others, *doubtful) if service.view(one)["status"] == -1}
    assert pending == set(doubtful)
    assert entry(service, runner)["checks"]["failed"]["total"] == 0


def test_one_that_is_reinstated_is_on_probation(service: Service) -> None:
    runner = proven(service, languages=[PYTHON])
    fail_a_follow_up(service, runner)
    service.clock.advance(1)
    service.call("POST", f"/runners/{runner.runner_id}/reinstate")
    told = entry(service, runner)
    assert told["set_aside"] is None
    assert told["checks"]["on_probation"] is True
    assert prove(service, runner) == [("AC", PYTHON), ("WA", PYTHON)]
    # What it judges from now on is not doubtful.
    service.clock.advance(1)
    judge(service, runner, "AC")
    assert entry(service, runner)["checks"]["failed"]["total"] == 0
    assert service.ok("POST", f"/runners/{runner.runner_id}/rejudge")["total"] == 0


def test_there_is_nothing_to_rejudge_of_one_that_failed_nothing(service: Service) -> None:
    runner = service.runner()
    answered = service.call("POST", f"/runners/{runner.runner_id}/rejudge")
    assert (answered.status_code, answered.get_json(force=True)["reason"]) == (
        409,
        "nothing_doubtful",
    )
    assert service.call("POST", "/runners/rn_nobody/rejudge").status_code == 404
    assert service.call("POST", "/runners/rn_x/rejudge", key=service.keys["ada"]).status_code == 403


def test_one_that_drained_and_is_reinstated_is_on_probation(service: Service) -> None:
    runner = proven(service, languages=[PYTHON])
    service.call("POST", f"/runners/{runner.runner_id}/drain")
    service.call("POST", f"/runners/{runner.runner_id}/reinstate")
    assert prove(service, runner) == [("AC", PYTHON), ("WA", PYTHON)]


def test_one_that_others_set_aside_first_stays_so_for_their_reason(service: Service) -> None:
    runner = service.runner()
    check = ask(service, runner)
    service.services.queue.runners.set_aside(runner.runner_id, why="first", now=service.clock())
    answer(service, runner, check, "CE")
    told = entry(service, runner)
    assert told["set_aside"]["why"] == "first"
    assert told["checks"]["failed"]["answer"] == "CE"


# -- suspicion -------------------------------------------------------------------------------


def test_two_compile_errors_in_a_row_put_the_language_on_probation(service: Service) -> None:
    runner = proven(service)
    judge(service, runner, "CE")
    judge(service, runner, "AC")
    judge(service, runner, "CE")
    assert entry(service, runner)["checks"]["unproven"] == []
    judge(service, runner, "CE")
    assert entry(service, runner)["checks"]["unproven"] == [PYTHON]
    in_c = service.submit("ada", 1, language=C)
    check = ask(service, runner)
    assert (known(service, check), check["language"]) == ("AC", PYTHON)
    service.submit("ada", 1, language=PYTHON)
    job = ask(service, runner)
    assert job["submission_id"] == in_c
    answer(service, runner, check, "AC")
    job = ask(service, runner)
    assert not is_check(job)
    # The row began anew.
    answer(service, runner, job, "CE")
    assert entry(service, runner)["checks"]["unproven"] == []


def test_compile_errors_in_two_languages_are_no_row(service: Service) -> None:
    runner = proven(service)
    for language in (C, PYTHON):
        service.submit("ada", 1, language=language)
        answer(service, runner, ask(service, runner), "CE")
    assert entry(service, runner)["checks"]["unproven"] == []


def test_a_compile_error_without_a_text_puts_the_language_on_probation(service: Service) -> None:
    runner = proven(service)
    judge(service, runner, "CE", stdout="", stderr=" \n")
    assert entry(service, runner)["checks"]["unproven"] == [PYTHON]


@pytest.mark.parametrize("mode", ["replace", "preview"])
def test_runners_that_contradict_one_another_are_both_on_probation(
    service: Service, mode: str
) -> None:
    one = proven(service, "one")
    submission_id = judge(service, one, "AC")
    other = proven(service, "other")
    service.ok("POST", "/rejudges", json={"problem_id": 1, "mode": mode})
    advance_rejudges(service)
    job = ask(service, other)
    assert job["submission_id"] == submission_id
    answer(service, other, job, "WA")
    for runner in (one, other):
        assert entry(service, runner)["checks"]["unproven"] == [PYTHON]
        assert prove(service, runner) == [("AC", PYTHON), ("WA", PYTHON)]


@pytest.mark.parametrize("change", ["data", "verdict", "judge error", "runner"])
def test_what_contradicts_nobody_is_not_suspicious(service: Service, change: str) -> None:
    one = proven(service, "one")
    submission_id = judge(service, one, "AC")
    other = one if change == "runner" else proven(service, "other")
    if change == "data":
        service.problem(1, text="2\n")
    service.ok("POST", f"/submissions/{submission_id}/rejudge")
    job = ask(service, other)
    answer(service, other, job, {"verdict": "AC", "judge error": "JE"}.get(change, "WA"))
    for runner in (one, other):
        assert entry(service, runner)["checks"]["on_probation"] is False


def test_a_time_far_off_the_fleet_s_puts_the_language_on_probation_once(service: Service) -> None:
    fleet = [service.runner(f"usual-{number}", languages=[C]) for number in range(3)]
    slow = service.runner("slow", languages=[C])
    for runner in (*fleet, slow):
        for _ in range(2):
            check = ask(service, runner)
            answer(service, runner, check, known(service, check), execTime=100)
    service.clock.advance(TEN_MINUTES_S)
    check = ask(service, slow)
    while known(service, check) != "WA":
        answer(service, slow, check, known(service, check))
        service.clock.advance(TEN_MINUTES_S)
        check = ask(service, slow)
    answer(service, slow, check, "WA", execTime=5000)
    assert entry(service, slow)["checks"]["unproven"] == [C]
    check = ask(service, slow)
    assert known(service, check) == "AC"
    # It is simply slow, and goes on.
    answer(service, slow, check, "AC", execTime=5000)
    told = entry(service, slow)
    assert (told["checks"]["on_probation"], told["set_aside"]) == (False, None)


def test_languages_that_a_heartbeat_adds_are_on_probation(service: Service) -> None:
    runner = proven(service, languages=[PYTHON])
    beat(service, runner, languages=[PYTHON, C])
    assert entry(service, runner)["checks"]["unproven"] == [C]
    assert prove(service, runner) == [("AC", C)]
    # One that goes and comes back is a new one, too.
    beat(service, runner, languages=[C])
    beat(service, runner, languages=[C, PYTHON])
    assert prove(service, runner) == [("AC", PYTHON)]
    beat(service, runner, languages=[C, PYTHON])
    assert prove(service, runner) == []


# -- beside all that -------------------------------------------------------------------------


def test_a_runner_on_probation_is_nobody_whom_others_wait_for(service: Service) -> None:
    """A job that somebody failed at is offered to others first, if they may have it."""
    lone = proven(service, "lone")
    service.runner("new")
    service.submit("ada", 1)
    job = ask(service, lone)
    give_back(service, lone, job, "prep_failed")
    assert ask(service, lone)["submission_id"] == job["submission_id"]


def test_a_submission_says_that_its_runners_are_on_probation(service: Service) -> None:
    submission_id = service.submit("ada", 1)
    runner = service.runner()

    def reason() -> str:
        view = service.ok("GET", f"/submissions/{submission_id}")
        return str(view["waits_because"])

    assert "have yet to pass a check" in reason()
    while is_check(payload := ask(service, runner)):
        answer(service, runner, payload, known(service, payload))
    give_back(service, runner, payload, "drain")
    assert "have yet to pass" not in reason()


def test_a_runner_that_gets_nothing_gets_no_check(service: Service) -> None:
    runner = service.runner()
    service.call("POST", f"/runners/{runner.runner_id}/drain")
    assert ask(service, runner) is None


def test_a_poll_on_probation_is_not_held_long(service: Service) -> None:
    runner = service.runner(languages=[PYTHON])
    ask(service, runner)
    timer = threading.Timer(5, lambda: None)
    timer.start()
    assert ask(service, runner, wait=30) is None
    assert timer.is_alive()
    timer.cancel()


def test_what_checks_cost_is_measured(service: Service) -> None:
    runner = service.runner(languages=[PYTHON])
    service.clock.advance(100)
    check = ask(service, runner)
    service.clock.advance(2)
    answer(service, runner, check, "AC")
    service.clock.advance(98)
    beat(service, runner)
    assert entry(service, runner)["checks"]["share"] == 0.01
    text = service.call("GET", "/metrics", key=None).text
    assert "dispatch_check_share 0.01" in text
    assert "dispatch_runners_on_probation 1.0" in text
    service.clock.advance(3600)
    assert entry(service, runner)["checks"]["share"] == 0


def test_records_are_forgotten_and_their_queries_have_indexes(service: Service) -> None:
    records = service.database["runner_checks"].index_information()
    assert records["old"]["expireAfterSeconds"] == 7 * 24 * 3600
    assert {"times", "by_runner"} <= records.keys()


def test_the_console_names_it_and_rejudges(service: Service) -> None:
    operator = Operator(service)
    assert operator.sign_in().status_code == 303
    runner = proven(service, "desk 7", languages=[PYTHON])
    service.runner("desk 8", languages=[C])
    assert "yet to judge a known program right in C." in operator.page("/console/runners")
    service.clock.advance(1)
    submission_id = judge(service, runner, "AC")
    fail_a_follow_up(service, runner)
    page = operator.page("/console/runners")
    assert "set aside" in page
    assert "1 doubtful" in page
    assert f">{submission_id}</a>" in page
    answered = operator.post(f"/console/runners/{runner.runner_id}/rejudge")
    assert answered.status_code == 303
    assert "The rejudge has begun" in operator.page(answered.headers["Location"])
    advance_rejudges(service)
    assert service.view(submission_id)["verdict"] == "PENDING"
    assert "0 doubtful" in operator.page("/console/runners")
    assert operator.post("/console/runners/rn_none/rejudge").status_code == 404


def test_the_command_line_names_it_and_rejudges(service: Service) -> None:
    runner = proven(service, languages=[PYTHON])
    service.clock.advance(1)
    judge(service, runner, "AC")
    fail_a_follow_up(service, runner)
    told = service.app.test_cli_runner().invoke(args=["runners", "--json"])
    assert '"doubtful": 1' in told.output
    done = service.app.test_cli_runner().invoke(args=["runners", "rejudge", runner.runner_id])
    assert (done.exit_code, done.output.strip()[-15:]) == (0, "1 submission(s)")
    refused = service.app.test_cli_runner().invoke(args=["runners", "rejudge", "rn_nobody"])
    assert refused.exit_code == 3


def test_verdicts_are_known_for_every_language() -> None:
    for language in (C, CPP, PYTHON):
        of = {one.expected for one in known_programs() if one.language == language}
        assert of >= {Verdict.AC, Verdict.WA, Verdict.CE, Verdict.RE, Verdict.TLE}
