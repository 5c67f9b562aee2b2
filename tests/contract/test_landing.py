"""`process_result` (I4, I6): fences, judge errors, rejudges, names. On the real server."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest

from dispatch.contract import InvalidResult, Landed
from mongo import check, landing, outputs
from mongo.landing import process_result
from tests.digest import blob_names, digest
from tests.factories import DAY, EPOCH, Service, handed_out, results

pytestmark = pytest.mark.usefixtures("blobs_apart")

NAMES = ["a.b", "$x", "x y", "studentStatus", "名前", "ß" * 100, "a", "_id", "0", "__proto__"]


@pytest.fixture
def course(service: Service) -> Service:
    """Ada, problem 1 and a homework with both."""
    service.user("ada")
    service.problem(1)
    service.problem(2)
    service.homework("hw", [1], ["ada"], penalty="score / 2")
    return service


def differences() -> list[check.Difference]:
    return check.differences(check.scope(), advance=lambda: None)


def entry(score: int, status: int | None, *ids: str, raw: int | None = None) -> dict[str, Any]:
    return {
        "score": score,
        "rawScore": score if raw is None else raw,
        "problemStatus": status,
        "submissionIds": list(ids),
    }


# -- once, twice, refused ------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [("AC",), ("WA",), ("AC", "WA"), ()])
def test_i6_landing_twice_is_landing_once(course: Service, tasks: tuple[str, ...]) -> None:
    course.submit("ada", 1, "sn_1")
    course.land("sn_1", *tasks, fence=2)
    once, blobs = digest(course.database), blob_names(course.database)
    course.land("sn_1", *tasks, fence=2)
    assert digest(course.database) == once
    course.land("sn_1", *tasks, fence=3)
    assert digest(course.database) == once
    assert blob_names(course.database) == blobs
    assert differences() == []


def test_i4_a_result_under_an_old_fence_changes_nothing(course: Service) -> None:
    course.submit("ada", 1, "sn_1")
    assert course.land("sn_1", "AC", fence=5) is Landed.VERDICT
    before, blobs = digest(course.database), blob_names(course.database)
    assert course.land("sn_1", "WA", fence=4, job_id="jb_0") is Landed.REFUSED
    assert course.land("sn_1", fence=4, job_id="jb_0") is Landed.REFUSED
    assert digest(course.database) == before
    assert blob_names(course.database) == blobs
    assert course.database["submissions"].find_one({})["fence"] == 5  # type: ignore[index]


def test_i4_nothing_lands_in_a_submission_that_is_gone(course: Service) -> None:
    before = digest(course.database)
    assert course.land("gone", "AC") is Landed.REFUSED
    assert course.land("gone") is Landed.REFUSED
    assert digest(course.database) == before
    assert "outputs/gone" not in blob_names(course.database)


def test_a_result_that_does_not_fit_writes_nothing(course: Service) -> None:
    course.submit("ada", 1, "sn_1")
    before, blobs = digest(course.database), blob_names(course.database)
    for tasks in (("AC", "AC"), ("AC AC",)):
        with pytest.raises(InvalidResult):
            course.land("sn_1", *tasks, given=handed_out((100, 1)))
    with pytest.raises(InvalidResult):
        process_result(
            submission_id="sn_1",
            job_id="jb_1",
            fence=2,
            tasks=results("AC"),
            handed_out=None,
            now=course.clock,
        )
    assert digest(course.database) == before
    assert blob_names(course.database) == blobs


def test_a_result_is_scored_against_what_was_handed_out(course: Service) -> None:
    """The problem has other tasks by now; the lease remembers."""
    course.submit("ada", 1, "sn_1")
    course.problem(1, (10, 1), (20, 1), (70, 1), text="new\n")
    given = handed_out((30, 1), (70, 2), sha256="a" * 64)
    course.land("sn_1", "AC", "AC WA", given=given)
    view = course.view("sn_1")
    assert (view["score"], view["testdata_sha256"]) == (30, "a" * 64)
    assert [len(task["cases"]) for task in view["tasks"]] == [1, 2]


def test_a_new_result_replaces_the_old_whole(course: Service) -> None:
    course.submit("ada", 1, "sn_1")
    course.land("sn_1", "CE CE", "CE", fence=2, given=handed_out((50, 2), (50, 1)))
    course.land("sn_1", "AC", fence=3, job_id="jb_2", given=handed_out((100, 1)))
    view = course.view("sn_1")
    assert (view["verdict"], view["score"], len(view["tasks"])) == ("AC", 100, 1)
    assert blob_names(course.database).count("outputs/sn_1") == 1
    judge = course.services.judge
    assert judge.read_output("sn_1", 0, 0, "stdout") == b"AC\n"


# -- judge errors --------------------------------------------------------------------------


def test_a_judge_error_counts_where_nothing_else_does(course: Service) -> None:
    course.submit("ada", 1, "sn_1")
    assert course.land("sn_1") is Landed.JUDGE_ERROR
    assert course.view("sn_1")["verdict"] == "JE"
    assert course.counters("ada") == (1, 0, [])
    assert course.standing("hw", "ada", 1) == entry(0, 6, "sn_1")
    course.land("sn_1", "AC", fence=3, job_id="jb_2")
    assert course.counters("ada") == (1, 1, [1])
    assert course.standing("hw", "ada", 1) == entry(100, 0, "sn_1")


def test_i6_a_judge_error_never_replaces_a_real_result_of_the_same_job(course: Service) -> None:
    course.submit("ada", 1, "sn_1")
    course.land("sn_1", "AC", fence=2)
    before, blobs = digest(course.database), blob_names(course.database)
    assert course.land("sn_1", fence=3) is Landed.VERDICT
    assert digest(course.database) == before
    assert blob_names(course.database) == blobs
    kept = course.database["submissions"].find_one({"_id": "sn_1"})
    assert kept is not None
    assert kept["fence"] == 3


def test_i6_a_judge_error_after_a_stopped_landing_finishes_it(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    course.submit("ada", 1, "sn_1")
    with monkeypatch.context() as patch:
        patch.setattr("mongo.after_landing.recompute_landed", stop)
        with pytest.raises(Stopped):
            course.land("sn_1", "AC", fence=2)
    assert course.counters("ada") == (0, 0, [])
    assert course.land("sn_1", fence=3) is Landed.VERDICT
    assert course.counters("ada") == (1, 1, [1])
    assert course.standing("hw", "ada", 1) == entry(100, 0, "sn_1")


def test_i6_a_real_result_that_lands_while_the_judge_error_looks_stands(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge error has found no real result of its job; then one lands; then it writes."""
    course.submit("ada", 1, "sn_1")
    original = landing.write_result

    def late(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        other = contextvars.Context()  # another process, not bound to this one's session
        assert other.run(course.land, "sn_1", "AC", fence=2) is Landed.VERDICT
        return original(*args, **kwargs)

    monkeypatch.setattr(landing, "write_result", late)
    assert course.land("sn_1", fence=3) is Landed.VERDICT
    assert course.view("sn_1")["verdict"] == "AC"
    assert course.counters("ada") == (1, 1, [1])


def test_i8_a_judge_error_ends_a_rejudge_that_kept_the_waiting_job(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step over the protocol: the result is written, its landing fails, the runner drains,
    the job is rejudged while it waits and so keeps its id, then all its attempts are used up.
    """
    runner = course.runner()
    course.submit("ada", 1, "sn_1")
    job_id = course.claim(runner)["job_id"]
    with monkeypatch.context() as patch:
        patch.setattr("mongo.after_landing.recompute_landed", stop)
        assert course.complete(runner, job_id, "AC", may_fail=True).status_code == 500
    path = runner.path(f"jobs/{job_id}/abort")
    assert course.call("PUT", path, key=runner.token, json={"reason": "drain"}).status_code == 202
    assert course.ok("POST", "/submissions/sn_1/rejudge")["job_id"] == job_id
    assert course.view("sn_1")["verdict"] == "PENDING"
    for _ in range(3):
        course.clock.advance(40)
        assert course.claim(runner)["job_id"] == job_id
    course.clock.advance(40)
    course.sweep()
    assert course.view_job("sn_1")["state"] == "done"
    assert course.view("sn_1")["verdict"] == "JE"
    assert course.counters("ada") == (1, 1, [1])
    assert course.standing("hw", "ada", 1) == entry(100, 0, "sn_1")
    assert differences() == []


def test_a_judge_error_after_an_earlier_real_result_shows_but_does_not_count(
    course: Service,
) -> None:
    course.submit("ada", 1, "sn_1")
    course.land("sn_1", "AC", fence=2)
    assert course.land("sn_1", fence=4, job_id="jb_2") is Landed.JUDGE_ERROR
    view = course.view("sn_1")
    assert (view["verdict"], view["score"], view["tasks"]) == ("JE", 0, [])
    assert course.counters("ada") == (1, 1, [1])
    assert course.standing("hw", "ada", 1) == entry(100, 0, "sn_1")
    assert differences() == []
    course.land("sn_1", "WA", fence=6, job_id="jb_3")
    assert course.counters("ada") == (1, 0, [])
    assert course.standing("hw", "ada", 1) == entry(0, 1, "sn_1")


@pytest.mark.parametrize("tasks", [("AC", "JE"), ("JE OLE",), ("OLE", "JE")])
def test_a_judge_error_that_a_runner_reports_is_treated_the_same(
    course: Service, tasks: tuple[str, ...]
) -> None:
    course.submit("ada", 1, "sn_1")
    course.land("sn_1", "AC", fence=2)
    assert course.land("sn_1", *tasks, fence=4, job_id="jb_2") is Landed.JUDGE_ERROR
    assert course.view("sn_1")["verdict"] == "JE"
    assert course.counters("ada") == (1, 1, [1])
    assert course.standing("hw", "ada", 1) == entry(100, 0, "sn_1")


# -- rejudging -----------------------------------------------------------------------------


def test_i6_nothing_dips_while_a_rejudge_is_pending(course: Service) -> None:
    course.submit("ada", 1, "sn_1")
    runner = course.runner()
    course.judge(runner, "sn_1", "AC")
    counters, standing = course.counters("ada"), course.standing("hw", "ada", 1)
    course.services.judge.rejudge("sn_1")
    assert course.view("sn_1")["verdict"] == "PENDING"
    assert (course.counters("ada"), course.standing("hw", "ada", 1)) == (counters, standing)
    assert differences() == []
    course.submit("ada", 2, "sn_2")
    course.judge(runner, "sn_1", "AC")
    course.judge(runner, "sn_2", "WA")
    assert course.counters("ada") == (2, 1, [1])


def test_i6_an_ac_that_becomes_wa_leaves_ac_problem_ids_unless_another_stands(
    course: Service,
) -> None:
    runner = course.runner()
    for name in ("sn_1", "sn_2"):
        course.submit("ada", 1, name)
        course.judge(runner, name, "AC")
    assert course.counters("ada") == (2, 2, [1])
    course.services.judge.rejudge("sn_1")
    course.judge(runner, "sn_1", "WA")
    assert course.counters("ada") == (2, 1, [1])
    course.services.judge.rejudge("sn_2")
    course.judge(runner, "sn_2", "WA")
    assert course.counters("ada") == (2, 0, [])
    assert course.standing("hw", "ada", 1) == entry(0, 1, "sn_1", "sn_2")


def test_i6_ac_to_ac_five_times_changes_nothing(course: Service) -> None:
    runner = course.runner()
    course.submit("ada", 1, "sn_1")
    course.judge(runner, "sn_1", "AC")
    once = digest(course.database)
    for _ in range(5):
        course.services.judge.rejudge("sn_1")
        course.judge(runner, "sn_1", "AC")
    assert digest(course.database) == once
    assert blob_names(course.database).count("outputs/sn_1") == 1


def test_i6_a_lower_score_lowers(course: Service) -> None:
    runner = course.runner()
    course.problem(1, (40, 1), (60, 1))
    course.submit("ada", 1, "sn_1")
    course.judge(runner, "sn_1", "AC", "AC")
    assert course.standing("hw", "ada", 1) == entry(100, 0, "sn_1")
    course.services.judge.rejudge("sn_1")
    course.judge(runner, "sn_1", "AC", "WA")
    assert course.standing("hw", "ada", 1) == entry(40, 1, "sn_1")


def test_i4_the_old_job_s_result_is_dropped_after_a_rejudge(course: Service) -> None:
    runner = course.runner()
    course.submit("ada", 1, "sn_1")
    old = course.claim(runner)
    course.ok("POST", "/submissions/sn_1/rejudge")
    before, blobs = digest(course.database), blob_names(course.database)
    assert course.complete(runner, old["job_id"], "AC").status_code == 204
    assert digest(course.database) == before
    assert blob_names(course.database) == blobs
    course.judge(runner, "sn_1", "WA")
    assert course.view("sn_1")["verdict"] == "WA"


def test_i4_a_rejudge_in_the_middle_of_a_landing_wins(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The landing has begun; its outputs are stored; then comes the rejudge."""
    runner = course.runner()
    course.submit("ada", 1, "sn_1")
    old = course.claim(runner)
    original = outputs.store

    def store_then_rejudge(*args: Any) -> Any:
        bundle = original(*args)
        monkeypatch.undo()
        course.ok("POST", "/submissions/sn_1/rejudge")
        return bundle

    monkeypatch.setattr(outputs, "store", store_then_rejudge)
    assert course.complete(runner, old["job_id"], "AC").status_code == 204
    assert course.view("sn_1")["verdict"] == "PENDING"
    assert course.counters("ada") == (0, 0, [])
    assert "outputs/sn_1" not in blob_names(course.database)
    course.judge(runner, "sn_1", "WA")
    assert course.view("sn_1")["verdict"] == "WA"
    assert course.counters("ada") == (1, 0, [])


def test_a_judge_error_at_the_end_of_a_rejudge_over_the_whole_protocol(course: Service) -> None:
    runner = course.runner()
    course.submit("ada", 1, "sn_1")
    course.judge(runner, "sn_1", "AC")
    course.ok("POST", "/submissions/sn_1/rejudge")
    for _ in range(3):
        assert course.claim(runner)["submission_id"] == "sn_1"
        course.clock.advance(40)
    course.sweep()
    assert course.view("sn_1")["verdict"] == "JE"
    assert course.view_job("sn_1")["outcome"] == "judge_error"
    assert course.counters("ada") == (1, 1, [1])
    assert course.standing("hw", "ada", 1) == entry(100, 0, "sn_1")


# -- names ---------------------------------------------------------------------------------


def test_i6_every_name_comes_out_exact(service: Service) -> None:
    for name in NAMES:
        created = service.call("PUT", service.url("users", name), json={"display_name": name})
        assert created.status_code == 201, name
        service.keys[name] = service.ok("POST", service.url("users", name, "keys"))["key"]
    service.problem(1)
    body = {
        "name": "names",
        "start": "2039-01-01T00:00:00Z",
        "end": "2041-01-01T00:00:00Z",
        "problem_ids": [1],
        "students": NAMES,
    }
    service.ok("PUT", "/homeworks/hw", json=body)
    runner = service.runner()
    for number, name in enumerate(NAMES):
        fields = {"problem_id": 1, "language": 2, "submission_id": f"sn_{number}"}
        assert service.submit_over_http(service.keys[name], **fields).status_code == 201
        service.judge(runner, f"sn_{number}", "AC" if number % 2 else "WA")
    service.ok("POST", "/submissions/sn_1/rejudge")
    service.judge(runner, "sn_1", "WA")
    statuses = service.ok("GET", "/homeworks/hw")["student_status"]
    assert list(statuses) == NAMES
    for number, name in enumerate(NAMES):
        accepted = bool(number % 2) and number != 1
        counters = service.ok("GET", service.url("users", name), key=service.keys[name])
        assert counters == {
            "username": name,
            "display_name": name,
            "submission": 1,
            "AC_submission": int(accepted),
            "AC_problem_ids": [1] if accepted else [],
        }
        expected = entry(100 if accepted else 0, 0 if accepted else 1, f"sn_{number}")
        assert statuses[name] == {"1": expected}
        own = service.ok("GET", "/homeworks/hw", key=service.keys[name])["student_status"]
        assert own == {name: {"1": expected}}
        [listed] = service.ok("GET", "/submissions", key=service.keys[name])["submissions"]
        assert listed["username"] == name
    service.ok("PUT", "/homeworks/hw", json=body | {"students": NAMES[::-1]})
    assert service.ok("GET", "/homeworks/hw")["student_status"] == statuses
    assert differences() == []


def test_i6_names_that_start_alike_do_not_mix(service: Service) -> None:
    service.problem(1)
    for homework, name in (("a", "a"), ("a", "a.a"), ("a_a", "a")):
        service.user(name)
        service.homework(homework, [1], ["a", "a.a"] if homework == "a" and name != "a" else ["a"])
    service.submit("a", 1, "sn_1")
    service.land("sn_1", "AC")
    assert service.standing("a", "a.a", 1) == entry(0, None)
    assert service.standing("a", "a", 1) == entry(100, 0, "sn_1")
    assert service.counters("a.a") == (0, 0, [])


# -- what a landing reaches ----------------------------------------------------------------


def test_i6_a_landing_reaches_every_homework_of_the_student_and_no_other(
    service: Service,
) -> None:
    for name in ("ada", "bob"):
        service.user(name)
    for number in (1, 2):
        service.problem(number)
    service.homework("on-time", [1], ["ada"])
    service.homework("late", [1, 2], ["ada", "bob"], end=EPOCH - DAY, penalty="score * 0.5")
    service.homework("future", [1], ["ada"], start=EPOCH + DAY)
    service.homework("other-problem", [2], ["ada"])
    service.homework("other-student", [1], ["bob"])
    before = digest(service.database)["student_status"]
    service.submit("ada", 1, "sn_1")
    service.land("sn_1", "AC")
    assert service.standing("on-time", "ada", 1) == entry(100, 0, "sn_1")
    assert service.standing("late", "ada", 1) == entry(50, 0, "sn_1", raw=100)
    assert service.standing("future", "ada", 1) == entry(0, None)
    after = digest(service.database)["student_status"]
    for untouched in ("late/bob", "other-problem/ada", "other-student/bob"):
        assert after[untouched] == before[untouched]
    assert differences() == []


class Stopped(Exception):
    """The process ends here."""


def stop(*_args: object, **_kwargs: object) -> None:
    raise Stopped
