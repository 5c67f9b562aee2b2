"""`flask check`, and the check in the background: what is amiss is found, nothing else is, and
what can be put right is."""

from __future__ import annotations

import contextvars
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from click.testing import Result

from mongo import checks, inspection, rejudging, storage, stranded
from mongo.checks import WORK_LEASE
from mongo.inspection import NOTHING
from tests.factories import Service

MINUTES = timedelta(minutes=10)


@pytest.fixture
def run(course: Service) -> Callable[..., Result]:
    runner = course.app.test_cli_runner()

    def run(*arguments: str, exit_code: int = 0) -> Result:
        result: Result = runner.invoke(args=["check", *arguments], catch_exceptions=False)
        assert result.exit_code == exit_code, result.output
        return result

    return run


def judged(course: Service, count: int = 1) -> None:
    """Judged submissions s0 and so on, and one that waits."""
    runner = course.runner()
    for number in range(count):
        course.submit("ada", 1, f"s{number}")
        course.judge(runner, f"s{number}", "AC")
    course.submit("ada", 1, "waits")
    course.clock.advance(60)


def change(course: Service, collection: str, id_: str, **changed: Any) -> None:
    done = course.database[collection].update_one({"_id": id_}, {"$set": changed})
    assert done.matched_count == 1


# -- what is amiss -------------------------------------------------------------------------


def fence_ahead(course: Service) -> None:
    change(course, "submissions", "s0", fence=9, status=-1)


def fence_ahead_with_a_verdict(course: Service) -> None:
    change(course, "submissions", "s0", fence=9)


def pending_and_done(course: Service) -> None:
    change(course, "submissions", "s0", status=-1)


def unknown_state(course: Service) -> None:
    change(course, "jobs", "waits", state="of_a_newer_version")


def no_job(course: Service) -> None:
    course.database["jobs"].delete_one({"_id": "waits"})


def no_submission(course: Service) -> None:
    course.database["submissions"].delete_one({"_id": "waits"})


def wrong_counters(course: Service) -> None:
    change(course, "users", "ada", AC_submission=7)


def wrong_standing(course: Service) -> None:
    change(course, "student_status", "hw/ada", problems={})


def stuck_homework(course: Service) -> None:
    change(
        course,
        "homeworks",
        "hw",
        recompute_due=True,
        recompute_asked_at=course.clock() - MINUTES,
    )


def rejudge_stands_still(course: Service) -> None:
    rejudging.start({"problem_id": 1}, mode="replace", by="me", now=course.clock())
    course.clock.advance(MINUTES.total_seconds())


def forgotten_hold(course: Service) -> None:
    course.services.queue.control.hold_rejudge("rj_of_old")


AMISS: list[tuple[Callable[[Service], None], str, str]] = [
    # How, what the line says, what of it is named.
    (fence_ahead, "submission.fence 9 > job.fence 3", "job s0"),
    (fence_ahead_with_a_verdict, "submission.fence 9 > job.fence 3", "job s0"),
    (pending_and_done, "pending, and its job is done (verdict)", "job s0"),
    (unknown_state, "state is 'of_a_newer_version'", "job waits"),
    (no_job, "it waits, and has no job", "submission waits"),
    (no_submission, "a job without its submission", "job waits"),
    (wrong_counters, "AC_submission is 7, and should be 1", "counters ada"),
    (wrong_standing, "problem 1 is None", "standing hw/ada"),
    (stuck_homework, "an edit's recompute does not end", "homework hw"),
    (rejudge_stands_still, "nobody has moved it on", "rejudge rj_"),
    (forgotten_hold, "its jobs are held back", "rejudge rj_of_old"),
]


@pytest.mark.parametrize(
    ("put", "says", "names"), AMISS, ids=lambda case: getattr(case, "__name__", str(case)[:30])
)
def test_what_is_amiss_is_found_and_put_right(
    course: Service, run: Callable[..., Result], put: Callable[[Service], None], says: str,
    names: str,
) -> None:  # fmt: skip
    judged(course)
    assert "nothing is amiss" in run().output
    put(course)
    before = everything(course)
    told = json.loads(run("--json", exit_code=1).stdout)
    assert everything(course) == before, "a check only reads"
    assert told["found"] == told["left"] == len(told["findings"]) >= 1
    (finding,) = [one for one in told["findings"] if says in one["what"]]
    assert f"{finding['kind']} {finding['subject']}".startswith(names)
    assert finding["remedy"] != NOTHING
    shown = " ".join(run(exit_code=1).stdout.split())
    assert "amiss" in shown
    assert finding["invariant"] in shown
    run("--repair")
    course.sweep()
    assert "nothing is amiss" in run().output
    finish(course)
    assert "nothing is amiss" in run().output


def everything(course: Service) -> dict[str, list[Any]]:
    names = ("jobs", "submissions", "users", "student_status", "homeworks", "rejudges")
    return {name: list(course.database[name].find().sort("_id", 1)) for name in names}


def finish(course: Service) -> None:
    """Whatever is open is judged; everything has a verdict."""
    maintain: Any = course.services.maintain
    runner = course.runner("late")
    for _ in range(5):
        while maintain.advance():
            pass
        while (payload := course.claim(runner)) is not None:
            assert course.complete(runner, payload["job_id"], "AC").status_code == 204
    assert course.database["submissions"].count_documents({"status": -1}) == 0
    course.clock.advance(60)


def test_programs_and_outputs_that_are_gone_are_named(
    course: Service, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "INLINE_BYTES_MAX", storage.NEVER_INLINE)
    judged(course)
    assert "nothing is amiss" in run().output
    course.database["blobs.files"].delete_many({"filename": {"$in": ["code/waits", "outputs/s0"]}})
    # No repair brings them back, and it says so.
    told = json.loads(run("--repair", "--json", exit_code=1).stdout)
    assert {(one["subject"], one["what"][:14], one["remedy"]) for one in told["findings"]} == {
        ("s0", "its output is ", NOTHING),
        ("waits", "its program is", NOTHING),
    }
    assert told["left"] == 2


def test_outputs_that_are_replaced_meanwhile_are_not_missed(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "INLINE_BYTES_MAX", storage.NEVER_INLINE)
    judged(course)
    runner = course.runner("again")
    real = storage.existing
    calls: list[int] = []

    def replace_them() -> None:
        course.database["jobs"].delete_one({"_id": "waits"})
        course.database["submissions"].delete_one({"_id": "waits"})
        course.ok("POST", "/submissions/s0/rejudge")
        course.judge(runner, "s0", "WA")

    def late(blob_ids: Any) -> set[str]:
        if not calls:
            calls.append(1)
            # Somebody else does, so not within the session that the check is bound to.
            contextvars.Context().run(replace_them)
        return real(blob_ids)

    monkeypatch.setattr(storage, "existing", late)
    step = inspector(course).step("submissions", "")
    assert calls
    assert step.findings == []


def test_a_submission_handed_in_this_moment_is_not_amiss(course: Service) -> None:
    course.submit("ada", 1, "s0")
    course.database["jobs"].delete_many({})
    assert inspector(course).step("submissions", "").findings == []


def test_a_job_that_moves_while_its_submission_is_read_is_not_amiss(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its verdict lands, and it is rejudged, between the two reads."""
    course.submit("ada", 1, "s0")
    runner = course.runner()
    real = stranded.look_at
    calls: list[int] = []

    def late(ids: Any) -> Any:
        if not calls:
            calls.append(1)
            course.judge(runner, "s0", "AC")
            course.ok("POST", "/submissions/s0/rejudge")
        return real(ids)

    monkeypatch.setattr(stranded, "look_at", late)
    assert inspector(course).step("jobs", "").findings == []
    assert calls


def inspector(course: Service, *, repair: bool = False) -> Any:
    judge: Any = course.services.judge
    return judge.inspector(repair=repair)


def test_a_document_that_nobody_can_read_stops_nothing(
    course: Service, run: Callable[..., Result]
) -> None:
    judged(course)
    change(course, "jobs", "s0", history=[{"event": "claim"}], replaced_ids=7)
    told = json.loads(run("--json", exit_code=1).stdout)
    assert any("cannot be read" in one["what"] for one in told["findings"])
    assert told["looked_at"]["jobs"] == 2


def test_all_pages_are_come_by(
    course: Service, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "PAGE", 2)
    monkeypatch.setattr(inspection, "TOTALS_PAGE", 2)
    names = [f"user{number}" for number in range(5)]
    for name in names:
        course.user(name)
    course.homework("a-hw", [1], names)
    course.homework("a", [1], [*names, "ada"])
    judged(course, 5)
    for number in range(5):
        change(course, "submissions", f"s{number}", fence=9)
    for name in ("user0", "user4"):
        change(course, "users", name, AC_submission=7)
    for key in ("a/user1", "a-hw/user4", "hw/ada"):
        change(course, "student_status", key, problems={"1": {}})
    told = json.loads(run("--json", exit_code=1).stdout)
    assert told["looked_at"] == {
        "jobs": 6,
        "submissions": 6,
        "rejudges": 0,
        "homeworks": 3,
        "counters": 6,
        "standings": 12,
    }
    subjects = [one["subject"] for one in told["findings"]]
    assert subjects == [
        *(f"s{number}" for number in range(5)),
        "user0",
        "user4",
        "a/user1",
        "a-hw/user4",
        "hw/ada",
    ]


def test_findings_are_counted_also_where_they_are_too_many_to_show(
    course: Service, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commands.checking.FINDINGS_KEPT_MAX", 2)
    judged(course, 3)
    for number in range(3):
        change(course, "submissions", f"s{number}", fence=9)
    shown = run(exit_code=1).output
    assert "and 1 more" in shown
    assert "3 amiss" in shown


# -- in the background ---------------------------------------------------------------------


def advance(course: Service) -> bool:
    judge: Any = course.services.judge
    return checks.advance(queue=judge._queue, now=course.clock)


def test_a_check_goes_on_in_steps_to_its_end(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "PAGE", 2)
    judged(course, 4)
    fence_ahead(course)
    course.services.judge.start_check(repair=False, by="me")
    assert course.services.judge.last_check()["running"]  # type: ignore[index]
    assert not course.services.judge.start_check(repair=True, by="another")
    assert course.services.judge.last_check()["by"] == "me"  # type: ignore[index]
    steps = 0
    while advance(course):
        steps += 1
    assert steps >= 8
    last = course.services.judge.last_check()
    assert last is not None
    assert not last["running"]
    assert last["ended_at"] is not None
    assert last["looked_at"]["jobs"] == last["looked_at"]["submissions"] == 5
    assert (last["found"], [one["subject"] for one in last["findings"]]) == (1, ["s0"])
    # Another may begin now, and forgets what was found.
    course.services.judge.start_check(repair=True, by="me")
    assert course.services.judge.last_check()["found"] == 0  # type: ignore[index]
    while advance(course):
        pass
    assert course.view_job("s0")["history"][-1]["event"] == "repair"


def test_only_so_many_findings_are_kept(course: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "FINDINGS_MAX", 2)
    judged(course, 3)
    for number in range(3):
        change(course, "submissions", f"s{number}", fence=9)
    course.services.judge.start_check(repair=False, by="me")
    while advance(course):
        pass
    last = course.services.judge.last_check()
    assert last is not None
    assert (last["found"], len(last["findings"])) == (3, 2)


def test_one_process_at_a_time_and_another_after_its_death(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(course)
    course.services.judge.start_check(repair=False, by="me")
    steps: list[bool] = []
    real = inspection.Inspector.step

    def step(self: Any, stage: str, after: str) -> Any:
        # While one is at it, another passes by.
        steps.append(advance(course))
        raise KeyboardInterrupt

    monkeypatch.setattr(inspection.Inspector, "step", step)
    with pytest.raises(KeyboardInterrupt):
        advance(course)
    assert steps == [False]
    monkeypatch.setattr(inspection.Inspector, "step", real)
    assert not advance(course)
    course.clock.advance(WORK_LEASE.total_seconds())
    while advance(course):
        pass
    last = course.services.judge.last_check()
    assert last is not None
    assert (last["running"], last["looked_at"]["jobs"]) == (False, 2)


def test_a_step_that_another_did_counts_once(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that slept past its lease comes back when another has gone on."""
    judged(course)
    fence_ahead(course)
    course.services.judge.start_check(repair=False, by="me")
    real = inspection.Inspector.step
    slept: list[bool] = []

    def step(self: Any, stage: str, after: str) -> Any:
        done = real(self, stage, after)
        if not slept:
            slept.append(True)
            course.clock.advance(WORK_LEASE.total_seconds())
            assert advance(course)
        return done

    monkeypatch.setattr(inspection.Inspector, "step", step)
    while advance(course):
        pass
    last = course.services.judge.last_check()
    assert last is not None
    assert (last["found"], last["looked_at"]["jobs"]) == (1, 2)


def test_a_step_that_fails_is_tried_again(course: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(course)
    course.services.judge.start_check(repair=False, by="me")

    def fails(*_: Any) -> Any:
        raise ValueError("not today")

    with monkeypatch.context() as failing:
        failing.setattr(inspection.Inspector, "step", fails)
        assert not advance(course)
    course.clock.advance(WORK_LEASE.total_seconds())
    while advance(course):
        pass
    assert not course.services.judge.last_check()["running"]  # type: ignore[index]
