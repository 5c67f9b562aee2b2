"""One document that cannot be read holds up nothing but what it is itself about.

Each is broken in the database beside good ones, and every reader of many is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from dispatch import job as verbs
from dispatch.records import Job
from dispatch.retention import retire_jobs
from dispatch.runner import Runner as RunnerRecord
from dispatch.unreadable import UnreadableDocument
from mongo import unreadable
from mongo.submission import keep_fences
from tests.digest import blob_names
from tests.factories import DAY, Service

GONE = object()

pytestmark = pytest.mark.usefixtures("forgotten")


@pytest.fixture
def forgotten(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What other tests have met is forgotten, and what this one meets: the service is the same."""
    monkeypatch.setattr(unreadable, "_known", set())
    service.services.queue.recheck_unreadable()
    yield
    service.database["unreadable_documents"].delete_many({})
    service.services.queue.recheck_unreadable()


@pytest.fixture
def course(service: Service) -> Service:
    for name in ("ada", "ben"):
        service.user(name)
    service.problem(1)
    service.problem(2)
    service.homework("hw", [1, 2], ["ada", "ben"])
    return service


def broken(service: Service, collection: str, id_: Any, field: str, value: Any) -> None:
    update = {"$unset": {field: ""}} if value is GONE else {"$set": {field: value}}
    assert service.database[collection].update_one({"_id": id_}, update).matched_count == 1


def told(logs: list[Any]) -> list[str]:
    return [entry["document"] for entry in logs if entry["event"] == "document_unreadable"]


def everything_is_fine(service: Service) -> None:
    """Every list, page and sweep of an admin answers."""
    for path in (
        "/queue", "/runners", "/submissions", "/submissions?username=ada", "/readyz", "/rejudges",
        "/homeworks/hw", "/users/ada",
    ):  # fmt: skip
        service.ok("GET", path)
    assert "dispatch_database_up 1.0" in service.call("GET", "/metrics", key=None).text
    service.sweep()


# -- jobs ----------------------------------------------------------------------------------


PENDING_BROKEN = [
    ("job_id", 5),
    ("problem_id", GONE),
    ("problem_id", "1"),
    ("language", [2]),
    ("priority", "high"),
    ("priority", float("nan")),
    ("queued_at", GONE),
    ("queued_at", "yesterday"),
    ("fence", "x"),
    ("fence", {"a": 1}),
    ("attempts", "x"),
    ("attempts", 2**63 - 1),
    ("attempts", 0.5),
    ("attempts", True),
    ("drain_refunds", []),
    ("state", GONE),
    ("state", "of_a_newer_version"),
    ("state", 7),
    ("history", 5),
    ("history", {"a": 1}),
    ("replaced_ids", 5),
    ("handed_out", "x"),
    ("failed_by", 5),
    ("failed_by", [{}]),
    ("failed_until", 5),
    ("avoid_until", "x"),
    ("given_back", {}),
    ("outcome", "of_a_newer_version"),
    ("mark_due", "x"),
    ("leased_by", 5),
    ("preview", "x"),
    ("rejudge_id", 5),
]


@pytest.mark.parametrize(("field", "value"), PENDING_BROKEN)
def test_a_waiting_job_that_cannot_be_read_does_not_stop_the_line(
    course: Service, field: str, value: Any
) -> None:
    course.submit("ada", 1, "bad")
    course.clock.advance(1)
    course.submit("ben", 1, "good")
    broken(course, "jobs", "bad", field, value)
    runner = course.runner()
    payload = course.claim(runner)
    mended = payload is not None and payload["submission_id"] == "bad"
    if mended:
        # A claim replaces what is wrong; or the sweep came by, and had it judged afresh.
        assert field == "handed_out" or "repair" in _events(course, "bad")
        payload = course.claim(runner)
    assert payload is not None
    assert payload["submission_id"] == "good"
    everything_is_fine(course)
    assert course.complete(runner, payload["job_id"], "AC").status_code == 204
    # The sweep has it judged afresh, where what is broken lets it.
    afresh = course.claim(runner)
    assert mended or afresh is None or afresh["submission_id"] == "bad"


def _events(course: Service, submission_id: str) -> list[str]:
    job = course.database["jobs"].find_one({"_id": submission_id}) or {}
    return [entry["event"] for entry in job["history"]]


HELD_BROKEN = [
    ("lease_deadline", "x"),
    ("landing_deadline", 5),
    ("handed_out", {"tasks": []}),
    ("handed_out.tasks", [{"task_score": "x"}]),
    ("handed_out.tasks.0.case_count", "x"),
    ("handed_out.tasks", 5),
    ("lease_token", 5),
    ("history", 5),
    ("fence", "x"),
    ("attempts", []),
    ("queued_at", GONE),
    ("job_id", GONE),
]


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize(("field", "value"), HELD_BROKEN)
def test_a_leased_job_that_cannot_be_read_stops_neither_sweep_nor_line(
    course: Service, field: str, value: Any, attempts: int
) -> None:
    runner = course.runner()
    course.submit("ada", 1, "bad")
    course.submit("ben", 1, "good")
    course.claim(runner)
    course.claim(runner)
    course.database["jobs"].update_many({}, {"$set": {"attempts": attempts}})
    broken(course, "jobs", "bad", field, value)
    everything_is_fine(course)
    if field != "job_id":
        # Who lists what runners hold has met it.
        known = course.ok("GET", "/queue")["unreadable"]
        assert known == 1 or "repair" in _events(course, "bad")
    course.clock.advance(100)
    everything_is_fine(course)
    if attempts == 3:
        assert course.view("good")["verdict"] == "JE"
    else:
        while (payload := course.claim(runner)) is not None:
            assert course.complete(runner, payload["job_id"], "AC").status_code == 204
        assert course.view("good")["verdict"] == "AC"
    everything_is_fine(course)


@pytest.mark.parametrize("field", ["mark_due", "restore_due"])
def test_a_job_that_cannot_be_read_leaves_the_marks_of_others_to_be_repaired(
    course: Service, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for submission_id in ("bad", "good"):
        course.submit("ada", 1, submission_id)
    course.database["jobs"].update_many({}, {"$set": {field: 1}})
    broken(course, "jobs", "bad", "fence", "x")
    course.sweep()
    assert field not in course.view_job("good")


def test_more_unreadable_jobs_than_a_claim_looks_at_do_not_hide_the_rest(course: Service) -> None:
    runner = course.runner()
    course.submit("ada", 1, "first")
    one = course.view_job("first")
    many = [
        {**one, "_id": f"bad{n:03}", "job_id": f"jb_{n}", "history": [], "fence": "x"}
        for n in range(3 * verbs.CANDIDATES_MAX)
    ]
    course.database["jobs"].insert_many(many)
    course.database["jobs"].update_one(
        {"_id": "first"}, {"$set": {"queued_at": course.clock() + DAY}}
    )
    found = [course.claim(runner) for _ in range(2)]
    assert "first" in [payload["submission_id"] for payload in found if payload]
    assert course.ok("GET", "/queue")["unreadable"] == len(many)


def test_it_is_told_once_counted_and_taken_up_again_when_it_is_mended(course: Service) -> None:
    runner = course.runner()
    course.submit("ada", 1, "bad")
    # (A history that is none can take no further entry; most else is judged afresh.)
    broken(course, "jobs", "bad", "history", 5)
    with capture_logs() as logs:
        for _ in range(3):
            assert course.claim(runner) is None
            course.clock.advance(60)
            course.sweep()
    assert told(logs) == ["jobs/'bad'"]
    assert course.ok("GET", "/queue")["unreadable"] == 1
    assert "dispatch_unreadable 1.0" in course.call("GET", "/metrics", key=None).text
    view = course.ok("GET", "/submissions/bad")
    assert view["waits_because"] == "Its job cannot be read; it waits for an admin."
    assert view["job"] is None
    broken(course, "jobs", "bad", "history", [])
    course.clock.advance(60)
    course.sweep()
    assert course.ok("GET", "/queue")["unreadable"] == 0
    course.services.queue.tried.forget()  # what a claim failed at it leaves alone for a moment
    course.judge(course.runner(), "bad", "AC")


def test_what_one_process_has_met_others_know_after_a_tidying(course: Service) -> None:
    course.submit("ada", 1, "bad")
    broken(course, "jobs", "bad", "problem_id", "1")
    course.claim(course.runner())
    other = type(course.services.queue.jobs.unreadable)(course.database)
    assert not other.knows("jobs", "bad")
    with capture_logs() as logs:
        other.met("jobs", "bad", "met here, too")
    assert told(logs) == []
    other = type(other)(course.database)
    readers = {"jobs": Job.from_document}
    other.recheck(readers)
    assert other.knows("jobs", "bad")
    course.database["jobs"].delete_many({})
    other.recheck(readers)
    assert (other.knows("jobs", "bad"), other.count()) == (False, 0)


def test_what_is_known_is_bounded(course: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatch.unreadable.KNOWN_MAX", 3)
    known = type(course.services.queue.jobs.unreadable)(course.database)
    with capture_logs() as logs:
        for number in range(10):
            known.met("jobs", f"s{number}", "x" * 10_000)
    assert len(told(logs)) == known.count() == 3
    assert max(len(entry["why"]) for entry in logs) <= 200


def test_acting_on_an_unreadable_job_fails_for_it_alone(course: Service) -> None:
    runner = course.runner()
    course.submit("ada", 1, "bad")
    payload = course.claim(runner)
    broken(course, "jobs", "bad", "fence", "x")
    assert course.complete(runner, payload["job_id"], "AC").status_code == 404
    assert course.call("POST", "/submissions/bad/rejudge", may_fail=True).status_code == 503
    broken(course, "jobs", "bad", "fence", 2)
    assert course.complete(runner, payload["job_id"], "AC").status_code == 204


def test_an_unreadable_job_that_is_done_keeps_no_other_from_retiring(
    course: Service,
) -> None:
    runner = course.runner()
    for submission_id in ("bad", "good"):
        course.submit("ada", 1, submission_id)
        course.judge(runner, submission_id, "AC")
    broken(course, "jobs", "bad", "fence", "x")
    gone = retire_jobs(
        course.services.queue, done_before=course.clock() + DAY, keep_fences=keep_fences
    )
    assert gone == 1
    assert [job["_id"] for job in course.database["jobs"].find()] == ["bad"]


def test_a_bulk_rejudge_skips_an_unreadable_job(course: Service) -> None:
    runner = course.runner()
    for submission_id in ("bad", "good"):
        course.submit("ada", 1, submission_id)
        course.judge(runner, submission_id, "AC")
    broken(course, "jobs", "bad", "fence", "x")
    course.ok("POST", "/problems/1/rejudge")
    maintenance: Any = course.services.maintain
    for _ in range(5):
        maintenance.advance_rejudges()
    course.judge(runner, "good", "WA")
    assert course.view("good")["verdict"] == "WA"


# -- runners -------------------------------------------------------------------------------


RUNNER_BROKEN = [
    ("name", GONE),
    ("name", 5),
    ("languages", "all"),
    ("languages", [None]),
    ("registered_at", "x"),
    ("set_aside", "x"),
    ("set_aside", {"at": 5}),
    ("drain", {"x": 1}),
    ("troubles", 5),
    ("judged_at", "x"),
    ("last_seen", "x"),
    ("token_sha256", GONE),
]


@pytest.mark.parametrize(("field", "value"), RUNNER_BROKEN)
def test_a_runner_that_cannot_be_read_leaves_the_others_be(
    course: Service, field: str, value: Any
) -> None:
    bad, good = course.runner("bad"), course.runner("good")
    broken(course, "runners", bad.runner_id, field, value)
    names = [runner["name"] for runner in course.ok("GET", "/runners")]
    assert "good" in names
    course.submit("ada", 1, "s1")
    course.submit("ada", 1, "s2")
    everything_is_fine(course)
    payload = course.claim(good)
    # Others come first for what it gave back: they are all looked at.
    abort = course.call(
        "PUT", good.path(f"jobs/{payload['job_id']}/abort"), key=good.token,
        json={"reason": "prep_failed"},
    )  # fmt: skip
    assert abort.status_code == 202
    assert course.claim(good)["submission_id"] == "s2"
    # What it is itself about: the runner registers anew.
    answer = course.call("GET", bad.path("next-job"), key=bad.token)
    assert answer.status_code == 401


def test_a_job_that_was_done_by_nobody_one_can_name_leaves_the_list_of_runners(
    course: Service,
) -> None:
    runner = course.runner()
    course.submit("ada", 1, "s1")
    course.judge(runner, "s1", "AC")
    broken(course, "jobs", "s1", "leased_by", {"a": 1})
    course.submit("ada", 1, "s2")
    course.judge(runner, "s2", "AC")
    assert [one["done"] for one in course.ok("GET", "/runners")] == [1]


def test_a_trouble_that_cannot_be_read_speaks_for_nobody(course: Service) -> None:
    runner = course.runner()
    broken(course, "runners", runner.runner_id, "troubles", [{}, {"kind": "x"}, 5])
    assert course.ok("GET", "/runners")[0]["name"] == "runner"
    course.submit("ada", 1, "s1")
    course.judge(runner, "s1", "AC")


@pytest.mark.parametrize(
    ("read", "document"), [(Job.from_document, {}), (RunnerRecord.from_document, {})]
)
def test_what_is_wrong_is_named(read: Any, document: Any) -> None:
    with pytest.raises(UnreadableDocument, match="_id is missing"):
        read(document)


# -- the domain ----------------------------------------------------------------------------


PROBLEM_BROKEN = [
    ("tasks", GONE),
    ("tasks", 5),
    ("tasks", [{"task_score": 100}]),
    ("tasks.0.case_count", "x"),
    ("testdata", 5),
    ("testdata", [5]),
    ("testdata", [{}]),
    ("testdata.0.sha256", 5),
    ("checker", 5),
]


@pytest.mark.parametrize(("field", "value"), PROBLEM_BROKEN)
def test_a_problem_that_cannot_be_read_does_not_stop_the_line(
    course: Service, field: str, value: Any
) -> None:
    course.submit("ada", 1, "bad")
    course.clock.advance(1)
    course.submit("ben", 2, "good")
    broken(course, "problems", 1, field, value)
    with capture_logs() as logs:
        assert course.claim(course.runner())["submission_id"] == "good"
        assert course.claim(course.runner()) is None
    assert told(logs) == ["problems/1"]
    everything_is_fine(course)


SUBMISSION_BROKEN = [
    ("username", GONE),
    ("username", 5),
    ("problem_id", "x"),
    ("language", GONE),
    ("submitted_at", GONE),
    ("submitted_at", "x"),
    ("status", 99),
    ("status", "x"),
    ("result", "x"),
    ("result.status", GONE),
    ("counted.score", GONE),
    ("counted.score", "x"),
    ("code_blob", GONE),
    ("code_blob", ["x"]),
    ("code_blob", 5),
    ("job_id", GONE),
    ("fence", GONE),
]


@pytest.mark.usefixtures("blobs_apart")
@pytest.mark.parametrize(("field", "value"), SUBMISSION_BROKEN)
def test_a_submission_that_cannot_be_read_leaves_the_others_be(
    course: Service, field: str, value: Any
) -> None:
    runner = course.runner()
    course.submit("ada", 1, "bad")
    course.judge(runner, "bad", "WA")
    blobs = blob_names(course.database)
    broken(course, "submissions", "bad", field, value)
    course.submit("ada", 1, "good")
    everything_is_fine(course)
    course.judge(runner, "good", "AC")
    assert course.standing("hw", "ada", 1)["score"] == 100
    listed = course.ok("GET", "/submissions")["submissions"]
    ids = [entry["submission_id"] for entry in listed]
    assert ids == ["good"] if field in unreadable.SUBMISSION else set(ids) >= {"good"}
    pages = course.ok("GET", "/submissions?limit=1")
    assert pages["submissions"][0]["submission_id"] == "good"
    course.clock.advance(3600)
    everything_is_fine(course)
    if field != "result":  # then nothing tells what it referred to
        assert set(blobs) <= set(blob_names(course.database))
    course.ok("POST", "/rejudges", json={"problem_id": 1})
    maintenance: Any = course.services.maintain
    while maintenance.advance_rejudges():
        pass
    while (payload := course.claim(runner)) is not None:
        course.complete(runner, payload["job_id"], "WA", may_fail=True)
    assert course.view("good")["verdict"] == "WA"


def test_a_page_that_ends_with_what_has_no_date_is_the_last(course: Service) -> None:
    for submission_id in ("good", "undated", "too"):
        course.submit("ada", 1, submission_id)
    for submission_id in ("undated", "too"):
        broken(course, "submissions", submission_id, "submitted_at", GONE)
    page = course.ok("GET", "/submissions?limit=2")
    assert [entry["submission_id"] for entry in page["submissions"]] == ["good"]
    assert page["next_cursor"] is None


@pytest.mark.parametrize("field", ["job_id", "problem_id", "language"])
def test_a_waiting_submission_that_cannot_be_read_keeps_no_other_out_of_the_queue(
    course: Service, field: str
) -> None:
    for submission_id in ("bad", "good"):
        course.submit("ada", 1, submission_id)
    course.database["jobs"].delete_many({})
    broken(course, "submissions", "bad", field, GONE)
    course.sweep()
    assert [job["_id"] for job in course.database["jobs"].find()] == ["good"]


HOMEWORK_BROKEN = [
    ("start", GONE),
    ("start", "x"),
    ("end", GONE),
    ("name", GONE),
    ("penalty", GONE),
    ("penalty", 5),
]


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize(("field", "value"), HOMEWORK_BROKEN)
def test_a_homework_that_cannot_be_read_stops_no_landing_and_no_list(
    course: Service, field: str, value: Any, fresh: bool
) -> None:
    course.homework("a-bad", [1], ["ada"])
    broken(course, "homeworks", "a-bad", field, value)
    broken(course, "homeworks", "a-bad", "recompute_due", True)
    if fresh:
        course.database["student_status"].delete_many({"homework_id": "a-bad"})
    course.homework("hw", [1, 2], ["ada", "ben"])
    runner = course.runner()
    course.submit("ada", 1, "s1")
    course.judge(runner, "s1", "AC")
    assert course.standing("hw", "ada", 1)["score"] == 100
    listed = course.services.judge.list_homeworks(limit=10)
    ids = [homework["homework_id"] for homework in listed]
    assert sorted(ids) == (["hw"] if field in unreadable.HOMEWORK else ["a-bad", "hw"])


@pytest.mark.parametrize("value", [GONE, "x"])
def test_one_may_hand_in_beside_a_homework_that_cannot_be_read(course: Service, value: Any) -> None:
    course.homework("a-bad", [1], ["ada"])
    broken(course, "homeworks", "a-bad", "start", value)
    answer = course.submit_over_http(course.keys["ada"], problem_id=1, language=2)
    assert answer.status_code == 201


def test_students_of_a_homework_that_are_no_list_leave_the_list_of_homeworks(
    course: Service,
) -> None:
    course.homework("a-bad", [1], ["ada"])
    broken(course, "homeworks", "a-bad", "students", 5)
    assert "hw" in [one["homework_id"] for one in course.services.judge.list_homeworks(limit=9)]


def test_what_the_domain_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "KNOWN_MAX", 3)
    with capture_logs() as logs:
        for number in (1, 1, 2, 3, 4, 5):
            unreadable.met("submissions", {"_id": number}, "x")
    assert told(logs) == ["submissions/1", "submissions/2", "submissions/3"]
