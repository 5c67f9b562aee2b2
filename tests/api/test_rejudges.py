"""Bulk rejudges over HTTP, on the real server: one job each, behind fresh ones, to the end."""

from __future__ import annotations

from typing import Any

import pytest

from mongo import cancelling, check, landing, rejudge_items, storage
from tests.digest import blob_names
from tests.factories import DAY, EPOCH, Runner, Service, results

MANY = 2_000


@pytest.fixture
def course(service: Service) -> Service:
    for name in ("ada", "ben"):
        service.user(name)
    service.problem(1)
    service.problem(2)
    service.homework("hw", [1, 2], ["ada", "ben"])
    return service


@pytest.fixture
def runner(course: Service) -> Runner:
    return course.runner()


def judged(course: Service, runner: Runner, *submissions: tuple[str, str, int, str]) -> None:
    """Hand in and judge: (id, user, problem, verdict)."""
    for submission_id, username, problem_id, verdict in submissions:
        course.submit(username, problem_id, submission_id)
        course.judge(runner, submission_id, verdict)


def start(course: Service, **wish: Any) -> str:
    answer = course.call("POST", "/rejudges", json=wish)
    assert answer.status_code == 202, answer.text
    return str(answer.get_json()["rejudge_id"])


def go_on(course: Service) -> None:
    maintenance: Any = course.services.maintain
    while maintenance.advance_rejudges():
        pass


def view(course: Service, rejudge_id: str) -> Any:
    return course.ok("GET", f"/rejudges/{rejudge_id}")


def items(course: Service, rejudge_id: str) -> dict[str, Any]:
    found = course.ok("GET", f"/rejudges/{rejudge_id}/items")["items"]
    return {item["submission_id"]: item for item in found}


def judge_all(course: Service, runner: Runner, verdict: str = "AC") -> list[str]:
    """Judge whatever is handed out; return the submissions in that order."""
    order = []
    while (payload := course.claim(runner)) is not None:
        assert course.complete(runner, payload["job_id"], verdict).status_code == 204
        order.append(payload["submission_id"])
        go_on(course)
    return order


def standing(course: Service, username: str, problem_id: int) -> tuple[int, int | None]:
    entry = course.standing("hw", username, problem_id)
    return entry["score"], entry["problemStatus"]


def check_same_as_recomputed(course: Service) -> None:
    everything = check.scope(username=None, homework_id=None, problem_id=None)
    found = check.differences(everything, advance=lambda: None, pause=lambda: None)
    assert list(found) == []


# -- replace ---------------------------------------------------------------------------------


def test_a_problem_is_rejudged_to_the_end(course: Service, runner: Runner) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"), ("s2", "ben", 1, "WA"), ("s3", "ada", 2, "AC"))
    started = course.call("POST", "/problems/1/rejudge")
    assert started.status_code == 202
    rejudge_id = started.get_json()["rejudge_id"]
    assert started.get_json()["total"] == 2
    go_on(course)
    assert course.view("s1")["verdict"] == "PENDING"
    assert standing(course, "ada", 1) == (100, 0)
    assert view(course, rejudge_id)["queued"] == 2
    assert judge_all(course, runner, "WA") == ["s1", "s2"]
    seen = view(course, rejudge_id)
    assert (seen["state"], seen["total"], seen["done"], seen["skipped"]) == ("done", 2, 2, 0)
    assert seen["changes"] == [{"from": "AC", "to": "WA", "count": 1}]
    assert items(course, rejudge_id)["s1"]["score_before"] == 100
    assert items(course, rejudge_id)["s1"]["score_after"] == 0
    assert standing(course, "ada", 1) == (0, 1)
    check_same_as_recomputed(course)


def test_2000_are_taken_in_at_once_and_fresh_ones_go_first(course: Service, runner: Runner) -> None:
    judged(course, runner, ("s", "ada", 1, "AC"))
    one = course.database["submissions"].find_one({"_id": "s"})
    job = course.database["jobs"].find_one({"_id": "s"})
    assert one is not None
    assert job is not None
    numbers = [f"{number:04}" for number in range(MANY - 1)]
    course.database["submissions"].insert_many([{**one, "_id": f"b{n}"} for n in numbers])
    course.database["jobs"].insert_many(
        [{**job, "_id": f"b{n}", "job_id": f"jb_{n}", "replaced_ids": []} for n in numbers]
    )
    answer = course.call("POST", "/problems/1/rejudge", json={"mode": "replace"})
    assert answer.status_code == 202
    assert answer.get_json()["total"] == MANY
    # Nothing was queued in the request itself.
    assert course.database["jobs"].count_documents({"state": "pending"}) == 0
    go_on(course)
    assert view(course, answer.get_json()["rejudge_id"])["queued"] == MANY
    assert course.database["jobs"].count_documents({"state": "pending"}) == MANY
    for number in range(50):
        fresh = course.submit("ben", 1, f"fresh{number}")
        course.judge(runner, fresh, "AC")
    payload = course.claim(runner)
    assert payload is not None
    assert not payload["submission_id"].startswith("fresh")


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"problem_id": 1}, {"s1", "s2"}),
        ({"homework_id": "hw"}, {"s1", "s2", "s3"}),
        ({"username": "ada"}, {"s1", "s3"}),
        ({"verdict": "WA"}, {"s2"}),
        ({"username": "ada", "problem_id": 2}, {"s3"}),
        ({"since": "2040-01-02T00:00:00Z"}, set()),
        ({"until": "2040-01-02T00:00:00Z"}, {"s1", "s2", "s3"}),
        ({"problem_id": 77}, set()),
        ({"runner_id": "rn_none"}, set()),
    ],
)
def test_a_filter_chooses(
    course: Service, runner: Runner, wish: dict[str, Any], expected: set[str]
) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"), ("s2", "ben", 1, "WA"), ("s3", "ada", 2, "AC"))
    rejudge_id = start(course, **wish)
    go_on(course)
    assert set(items(course, rejudge_id)) == expected
    if not expected:
        assert view(course, rejudge_id)["state"] == "done"


def test_a_filter_by_runner_finds_what_that_one_judged(course: Service, runner: Runner) -> None:
    other = course.runner("other")
    judged(course, runner, ("s1", "ada", 1, "AC"))
    judged(course, other, ("s2", "ben", 1, "AC"))
    rejudge_id = start(course, runner_id=other.runner_id)
    go_on(course)
    assert set(items(course, rejudge_id)) == {"s2"}


@pytest.mark.parametrize(
    "wish", [{}, {"mode": "preview"}, {"mode": "x", "problem_id": 1}, {"a": 1}]
)
def test_a_wish_that_names_nothing_is_refused(course: Service, wish: dict[str, Any]) -> None:
    assert course.call("POST", "/rejudges", json=wish).status_code == 400
    assert course.ok("GET", "/rejudges") == []


def test_what_is_not_there_is_404(course: Service) -> None:
    for path in ("/problems/9/rejudge", "/homeworks/none/rejudge"):
        assert course.call("POST", path).status_code == 404
    assert course.call("GET", "/rejudges/rj_none").status_code == 404
    for action in ("pause", "resume", "cancel", "apply", "discard"):
        assert course.call("POST", f"/rejudges/rj_none/{action}").status_code == 404


def test_pressed_twice_and_overlapping_each_still_has_one_job(
    course: Service, runner: Runner
) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"), ("s2", "ben", 1, "AC"), ("s3", "ben", 2, "AC"))
    first, second = start(course, problem_id=1), start(course, problem_id=1)
    third = start(course, username="ben")
    go_on(course)
    course.ok("POST", "/submissions/s1/rejudge")
    go_on(course)
    assert course.database["jobs"].count_documents({"state": "pending"}) == 3
    assert sorted(judge_all(course, runner, "WA")) == ["s1", "s2", "s3"]
    go_on(course)
    for rejudge_id in (first, second, third):
        seen = view(course, rejudge_id)
        assert seen["state"] == "done"
        assert seen["done"] + seen["skipped"] == seen["total"]
    assert view(course, first)["reasons"][0]["reason"].startswith("overtaken by rejudge")
    check_same_as_recomputed(course)


def test_a_rejudge_on_hold_waits_and_fresh_ones_do_not(course: Service, runner: Runner) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"), ("s2", "ben", 1, "AC"))
    waiting = course.submit("ada", 1, "waiting")
    rejudge_id = start(course, problem_id=1)
    go_on(course)
    course.ok("POST", f"/rejudges/{rejudge_id}/pause")
    course.judge(runner, waiting, "AC")
    assert course.claim(runner) is None
    course.judge(runner, course.submit("ada", 1, "fresh"), "AC")
    course.ok("POST", "/submissions/s2/rejudge")
    course.judge(runner, "s2", "AC")
    course.ok("POST", f"/rejudges/{rejudge_id}/resume")
    assert judge_all(course, runner) == ["s1"]
    assert view(course, rejudge_id)["state"] == "done"
    assert course.call("POST", f"/rejudges/{rejudge_id}/pause").status_code == 409


def test_cancelled_what_was_not_claimed_keeps_its_result(course: Service, runner: Runner) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"), ("s2", "ben", 1, "AC"))
    never = course.submit("ben", 2, "never")
    rejudge_id = start(course, homework_id="hw")
    go_on(course)
    course.ok("POST", "/submissions/s1/front")
    payload = course.claim(runner)
    assert payload["submission_id"] == "s1"
    course.ok("POST", f"/rejudges/{rejudge_id}/cancel")
    go_on(course)
    assert course.view("s2")["verdict"] == "AC"
    assert course.view_job("s2")["outcome"] == "cancelled"
    assert course.view("s1")["verdict"] == course.view(never)["verdict"] == "PENDING"
    assert course.complete(runner, payload["job_id"], "WA").status_code == 204
    go_on(course)
    assert view(course, rejudge_id)["state"] == "cancelled"
    states = {name: item["state"] for name, item in items(course, rejudge_id).items()}
    assert states == {"s1": "done", "s2": "cancelled", "never": "skipped"}
    course.judge(runner, never, "AC")
    assert course.claim(runner) is None
    check_same_as_recomputed(course)


@pytest.mark.parametrize("mode", ["preview", "replace"])
def test_cancelled_while_a_step_enters_a_job_that_job_is_taken_back(
    course: Service, runner: Runner, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"))
    rejudge_id = start(course, homework_id="hw", mode=mode)
    note = rejudge_items.queued

    def after_a_cancel(item: dict[str, Any], **given: Any) -> bool:
        course.database["rejudge_items"].update_one(
            {"_id": item["_id"]}, {"$set": {"state": "cancelled"}}
        )
        return note(item, **given)

    with monkeypatch.context() as patch:
        patch.setattr(rejudge_items, "queued", after_a_cancel)
        go_on(course)
    course.ok("POST", f"/rejudges/{rejudge_id}/cancel")
    go_on(course)
    assert course.view_job("s1")["outcome"] == "cancelled"
    assert (course.claim(runner), course.view("s1")["verdict"]) == (None, "AC")
    assert view(course, rejudge_id)["state"] == "cancelled"


@pytest.mark.parametrize("mode", ["preview", "replace"])
def test_i8_a_step_that_died_at_a_job_is_cancelled_with_it(
    course: Service, runner: Runner, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"))
    rejudge_id = start(course, homework_id="hw", mode=mode)

    def die(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rejudge_items, "queued", die)
        with pytest.raises(KeyboardInterrupt):
            go_on(course)
    course.ok("POST", f"/rejudges/{rejudge_id}/cancel")
    go_on(course)
    assert course.view_job("s1")["outcome"] == "cancelled"
    assert (course.claim(runner), course.view("s1")["verdict"]) == (None, "AC")
    assert view(course, rejudge_id)["state"] == "cancelled"


# -- one submission ----------------------------------------------------------------------------


def test_i4_a_rejudge_taken_back_lands_nothing(course: Service, runner: Runner) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"))
    course.ok("POST", "/submissions/s1/rejudge")
    payload = course.claim(runner)
    assert course.ok("POST", "/submissions/s1/cancel")["verdict"] == "AC"
    before = course.database["submissions"].find_one({"_id": "s1"})
    late = course.complete(runner, payload["job_id"], "WA")
    assert (late.status_code, late.get_json(force=True)["reason"]) == (409, "lease_lost")
    assert course.database["submissions"].find_one({"_id": "s1"}) == before
    assert course.call("POST", "/submissions/s1/cancel").status_code == 409
    assert standing(course, "ada", 1) == (100, 0)
    # And it can be rejudged again.
    course.ok("POST", "/submissions/s1/rejudge")
    course.judge(runner, "s1", "WA")
    assert course.view("s1")["verdict"] == "WA"
    check_same_as_recomputed(course)


def test_a_first_judging_cannot_be_taken_back(course: Service, runner: Runner) -> None:
    course.submit("ada", 1, "s1")
    refused = course.call("POST", "/submissions/s1/cancel")
    assert (refused.status_code, refused.get_json(force=True)["reason"]) == (
        409,
        "nothing_to_cancel",
    )
    course.judge(runner, "s1", "AC")
    assert course.call("POST", "/submissions/s1/cancel").status_code == 409
    assert course.call("POST", "/submissions/none/cancel").status_code == 404


def test_i8_a_cancel_that_died_between_its_halves_is_finished(
    course: Service, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"))
    course.ok("POST", "/submissions/s1/rejudge")

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cancelling, "bring_back", die)
        with pytest.raises(KeyboardInterrupt):
            course.services.judge.cancel_submission("s1")
    assert course.view("s1")["verdict"] == "PENDING"
    course.sweep()
    assert course.view("s1")["verdict"] == "AC"
    assert "restore_due" not in course.view_job("s1")


def test_i8_a_landing_that_died_before_its_counters_is_counted_by_the_cancel(
    course: Service, runner: Runner
) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"))
    course.ok("POST", "/submissions/s1/rejudge")
    payload = course.claim(runner)
    queue = course.services.queue.jobs
    job = queue.by_job_id(payload["job_id"])
    assert job is not None
    begun = queue.begin_complete(
        job, runner_id=runner.runner_id, lease_token=None, now=course.clock()
    )
    assert begun is not None
    # The landing wrote its result; a second rejudge's mark came; its process died.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(landing, "finish_judging", lambda *_: None)
        course.services.process_result(
            submission_id="s1",
            job_id=begun.job_id,
            fence=begun.fence,
            tasks=results("WA"),
            handed_out=begun.handed_out,
        )
    course.ok("POST", "/submissions/s1/rejudge")
    course.ok("POST", "/submissions/s1/cancel")
    assert course.view("s1")["verdict"] == "WA"
    check_same_as_recomputed(course)


def test_moved_to_the_front_it_is_next(course: Service, runner: Runner) -> None:
    for number in range(3):
        course.submit("ada", 1, f"s{number}")
        course.clock.advance(1)
    course.ok("POST", "/submissions/s2/front")
    course.ok("POST", "/submissions/s1/front")
    assert judge_all(course, runner) == ["s1", "s2", "s0"]
    refused = course.call("POST", "/submissions/s1/front")
    assert (refused.status_code, refused.get_json(force=True)["reason"]) == (409, "not_waiting")
    assert course.call("POST", "/submissions/none/front").status_code == 404


# -- preview -----------------------------------------------------------------------------------


@pytest.fixture
def previewed(course: Service, runner: Runner) -> str:
    return preview_of_three(course, runner)


def preview_of_three(course: Service, runner: Runner) -> str:
    """Ada's s1 goes from AC to WA, Ben's s2 and late s3 from WA to AC; nothing counts yet."""
    course.homework("hw", [1], ["ada", "ben"], end=EPOCH + DAY, penalty="score = score * 0.5")
    judged(course, runner, ("s1", "ada", 1, "AC"), ("s2", "ada", 1, "WA"))
    course.clock.advance(2 * DAY.total_seconds())
    judged(course, runner, ("s3", "ben", 1, "WA"))
    rejudge_id = start(course, problem_id=1, mode="preview")
    go_on(course)
    for submission_id, verdict in (("s1", "WA"), ("s2", "WA"), ("s3", "AC")):
        course.judge(runner, submission_id, verdict)
    go_on(course)
    return rejudge_id


def stored(course: Service) -> Any:
    """Everything a grade is made of, but for the fences."""
    left_out = {"fence": 0}
    return [
        list(course.database[name].find({}, left_out).sort("_id", 1))
        for name in ("submissions", "users", "student_status")
    ]


def test_a_preview_touches_no_grade(course: Service, runner: Runner) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"))
    waiting = course.submit("ben", 1, "waiting")
    rejudge_id = start(course, problem_id=1, mode="preview")
    go_on(course)
    assert items(course, rejudge_id)[waiting]["state"] == "skipped"
    course.judge(runner, waiting, "AC")
    before = stored(course)
    course.judge(runner, "s1", "WA")
    go_on(course)
    assert stored(course) == before
    assert view(course, rejudge_id)["state"] == "ready"
    assert view(course, rejudge_id)["changes"] == [{"from": "AC", "to": "WA", "count": 1}]


def test_a_preview_reports_per_student_with_penalties(course: Service, previewed: str) -> None:
    students = course.ok("GET", f"/rejudges/{previewed}/students")["students"]
    told = {
        student["username"]: (
            student["gains"],
            student["loses"],
            *(student["homeworks"][0][name] for name in ("total_before", "total_after")),
            student["homeworks"][0]["crosses_60"],
        )
        for student in students
    }
    assert told == {"ada": (False, True, 100, 0, "down"), "ben": (True, False, 0, 50, None)}
    after = students[0]["homeworks"][0]["problems"]["1"]["after"]
    assert (after["score"], after["problemStatus"]) == (0, 1)


TOTALS = {
    "students": 2,
    "gain": 1,
    "lose": 1,
    "cross_60_up": 0,
    "cross_60_down": 1,
    "submissions_changed": 2,
}


@pytest.mark.parametrize("batch", [1, 200])
def test_the_first_page_of_students_totals_them(
    course: Service, previewed: str, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("mongo.rejudge_report.BATCH_STUDENTS", batch)
    path = f"/rejudges/{previewed}/students"
    first = course.ok("GET", f"{path}?limit=1")
    assert first["totals"] == TOTALS
    assert [student["username"] for student in first["students"]] == ["ada"]
    second = course.ok("GET", f"{path}?limit=1&cursor={first['next_cursor']}")
    assert second["totals"] is None
    assert [student["username"] for student in second["students"]] == ["ben"]
    assert second["next_cursor"] is None


def test_what_was_judged_by_another_road_is_not_among_the_totals(
    course: Service, runner: Runner, previewed: str
) -> None:
    course.ok("POST", "/submissions/s3/rejudge")
    course.judge(runner, "s3", "RE")
    course.ok("POST", f"/rejudges/{previewed}/apply")
    go_on(course)
    totals = course.ok("GET", f"/rejudges/{previewed}/students")["totals"]
    assert totals == {**TOTALS, "gain": 0, "submissions_changed": 1}


def test_totals_count_who_crosses_60_upwards_and_who_is_in_no_homework(
    course: Service, runner: Runner
) -> None:
    course.homework("hw", [1], ["ada"])
    judged(course, runner, ("s1", "ada", 1, "WA"), ("s2", "ben", 1, "AC"), ("s3", "ben", 2, "AC"))
    rejudge_id = start(course, problem_id=1, mode="preview")
    go_on(course)
    course.judge(runner, "s1", "AC")
    course.judge(runner, "s2", "WA")
    assert course.ok("GET", f"/rejudges/{rejudge_id}/students")["totals"] == {
        **TOTALS,
        "cross_60_up": 1,
        "cross_60_down": 0,
    }


def test_i6_applied_a_preview_counts_as_if_it_had_landed(course: Service, previewed: str) -> None:
    course.ok("POST", f"/rejudges/{previewed}/apply")
    go_on(course)
    assert view(course, previewed)["state"] == "applied"
    assert [course.view(name)["verdict"] for name in ("s1", "s2", "s3")] == ["WA", "WA", "AC"]
    assert standing(course, "ben", 1) == (50, 0)
    assert standing(course, "ada", 1) == (0, 1)
    assert course.ok("GET", f"/rejudges/{previewed}/students")["students"][1]["gains"]
    output = course.call("GET", "/submissions/s3/outputs/0/0/stdout")
    assert output.text == "AC\n"
    course.clock.advance(3600)
    course.sweep()
    assert course.call("GET", "/submissions/s3/outputs/0/0/stdout").text == "AC\n"
    check_same_as_recomputed(course)


@pytest.mark.parametrize("inline_bytes_max", [storage.NEVER_INLINE, storage.INLINE_BYTES_MAX])
def test_discarded_a_preview_leaves_nothing(
    course: Service, runner: Runner, monkeypatch: pytest.MonkeyPatch, inline_bytes_max: int
) -> None:
    monkeypatch.setattr(storage, "INLINE_BYTES_MAX", inline_bytes_max)
    previewed = preview_of_three(course, runner)
    before, blobs = stored(course), blob_names(course.database)
    kept = course.database["rejudge_items"].count_documents({"result.outputs_blob": {"$ne": None}})
    assert kept > 0
    course.ok("POST", f"/rejudges/{previewed}/discard")
    go_on(course)
    assert view(course, previewed)["state"] == "discarded"
    assert stored(course) == before
    assert course.call("POST", f"/rejudges/{previewed}/apply").status_code == 409
    left = course.database["rejudge_items"].count_documents({"result.outputs_blob": {"$ne": None}})
    assert left == 0
    gone = len(blobs) - len(blob_names(course.database))
    assert gone == (kept if inline_bytes_max == storage.NEVER_INLINE else 0)


def test_what_was_judged_by_another_road_is_reported_and_not_overwritten(
    course: Service, runner: Runner, previewed: str
) -> None:
    course.ok("POST", "/submissions/s1/rejudge")
    course.judge(runner, "s1", "TLE")
    course.ok("POST", "/submissions/s3/rejudge")
    course.ok("POST", f"/rejudges/{previewed}/apply")
    go_on(course)
    assert course.view("s1")["verdict"] == "TLE"
    assert course.view("s3")["verdict"] == "PENDING"
    reported = items(course, previewed)
    assert "another road" in reported["s1"]["reason"]
    assert "another road" in reported["s3"]["reason"]
    course.judge(runner, "s3", "WA")
    check_same_as_recomputed(course)


def test_a_rejudge_that_counts_turns_a_waiting_preview_off(course: Service, runner: Runner) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"))
    rejudge_id = start(course, problem_id=1, mode="preview")
    go_on(course)
    course.ok("POST", "/submissions/s1/rejudge")
    assert course.view("s1")["verdict"] == "PENDING"
    course.judge(runner, "s1", "WA")
    assert course.view("s1")["verdict"] == "WA"
    go_on(course)
    seen = view(course, rejudge_id)
    assert (seen["state"], seen["done"] + seen["skipped"]) == ("ready", 1)
    course.ok("POST", f"/rejudges/{rejudge_id}/apply")
    go_on(course)
    assert view(course, rejudge_id)["state"] == "applied"
    assert course.view("s1")["verdict"] == "WA"
    check_same_as_recomputed(course)


@pytest.mark.parametrize("preview_is", ["waiting", "leased", "done"])
def test_a_bulk_rejudge_after_a_preview_counts(
    course: Service, runner: Runner, preview_is: str
) -> None:
    judged(course, runner, ("s1", "ada", 1, "AC"))
    start(course, problem_id=1, mode="preview")
    go_on(course)
    if preview_is == "done":
        course.judge(runner, "s1", "RE")
    elif preview_is == "leased":
        course.claim(runner)
    rejudge_id = start(course, problem_id=1)
    go_on(course)
    assert not course.view_job("s1").get("preview")
    assert course.view("s1")["verdict"] == "PENDING"
    course.judge(runner, "s1", "WA")
    go_on(course)
    assert course.view("s1")["verdict"] == "WA"
    assert view(course, rejudge_id)["state"] == "done"
    check_same_as_recomputed(course)


@pytest.mark.usefixtures("blobs_apart")
def test_the_sweep_keeps_what_a_previewed_result_refers_to(course: Service, previewed: str) -> None:
    assert "outputs/s3" in blob_names(course.database)
    course.clock.advance(3600)
    course.sweep()
    course.sweep()
    course.ok("POST", f"/rejudges/{previewed}/apply")
    go_on(course)
    assert course.call("GET", "/submissions/s3/outputs/0/0/stdout").text == "AC\n"


@pytest.mark.usefixtures("blobs_apart")
@pytest.mark.parametrize("applied", ["just before", "just after"])
def test_the_sweep_keeps_outputs_that_are_applied_while_it_looks(
    course: Service, previewed: str, monkeypatch: pytest.MonkeyPatch, applied: str
) -> None:
    """Their reference moves from the items to the submissions around the read of the items."""
    older_than, original, swept = storage.older_than, rejudge_items.outputs_of, []

    def page(prefix: str, *args: Any, **kwargs: Any) -> Any:
        swept.append(prefix)
        return older_than(prefix, *args, **kwargs)

    def outputs_of(submission_ids: Any) -> set[str]:
        found = original(submission_ids) if applied == "just after" else set()
        if swept == ["code/", "outputs/"]:
            swept.append("applied")  # once: before it drops anything the sweep looks again
            course.ok("POST", f"/rejudges/{previewed}/apply")
            go_on(course)
            assert view(course, previewed)["state"] == "applied"
        return found or original(submission_ids)

    monkeypatch.setattr(storage, "older_than", page)
    monkeypatch.setattr(rejudge_items, "outputs_of", outputs_of)
    course.clock.advance(3600)
    course.sweep()
    assert swept == ["code/", "outputs/", "applied"]
    assert course.call("GET", "/submissions/s3/outputs/0/0/stdout").text == "AC\n"


def test_what_landed_just_before_its_preview_is_not_overwritten(
    course: Service, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preview has read what the submission shows; then a rejudge lands; then it asks."""
    judged(course, runner, ("s1", "ada", 1, "AC"))
    rejudge_id = start(course, problem_id=1, mode="preview")
    original, calls = rejudge_items.before, []

    def late(submission: Any) -> Any:
        shown = original(submission)
        calls.append(shown)
        if len(calls) == 2:
            course.ok("POST", "/submissions/s1/rejudge")
            course.judge(runner, "s1", "TLE")
        return shown

    monkeypatch.setattr(rejudge_items, "before", late)
    go_on(course)
    assert len(calls) == 2
    course.judge(runner, "s1", "WA")
    go_on(course)
    course.ok("POST", f"/rejudges/{rejudge_id}/apply")
    go_on(course)
    assert course.view("s1")["verdict"] == "TLE"
    assert "another road" in items(course, rejudge_id)["s1"]["reason"]
