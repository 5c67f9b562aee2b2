"""Programs and outputs that are small lie in the submission, others in blobs; nobody can tell."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pymongo.collection import Collection

from mongo import engine, storage
from tests.digest import blob_names
from tests.factories import ManualClock, Runner, Service, result_body
from tests.fixtures import build_app

# Text that no zip makes smaller than what is kept inline.
LARGE = "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=64 * 1024))


def submit(course: Service, submission_id: str, code: str) -> None:
    answer = course.submit_over_http(
        course.keys["ada"],
        problem_id=1,
        language=2,
        submission_id=submission_id,
        code=code.encode(),
    )
    assert answer.status_code == 201, answer.text


def judge(course: Service, runner: Runner, submission_id: str, stdout: str) -> None:
    job = course.claim(runner)
    assert job["submission_id"] == submission_id
    body = result_body("AC")
    body["tasks"][0][0]["stdout"] = stdout
    course.ok("PUT", runner.path(f"jobs/{job['job_id']}/complete"), key=runner.token, json=body)


def stored(course: Service, submission_id: str) -> dict[str, Any]:
    found = course.database["submissions"].find_one({"_id": submission_id})
    assert found is not None
    return found


def printed(course: Service, submission_id: str) -> str:
    return course.call("GET", f"/submissions/{submission_id}/outputs/0/0/stdout").text


@pytest.mark.parametrize(("code", "inline"), [("print()", True), (f"# {LARGE}", False)])
def test_a_program_comes_back_wherever_it_lies(course: Service, code: str, inline: bool) -> None:
    submit(course, "sn_1", code)
    assert isinstance(stored(course, "sn_1")["code_blob"], bytes) is inline
    assert blob_names(course.database).count("code/sn_1") == (not inline)
    admins = course.call("GET", "/submissions/sn_1/code")
    runner = course.runner()
    runners = course.call("GET", course.claim(runner)["code_url"], key=None)
    assert admins.status_code == runners.status_code == 200
    assert admins.data == runners.data == storage.read(stored(course, "sn_1")["code_blob"])


def test_outputs_move_with_their_size_and_leave_nothing_behind(course: Service) -> None:
    runner = course.runner()
    submit(course, "sn_1", "print()")
    for stdout, blobs in (("small\n", 0), (LARGE, 1), ("again\n", 0), (LARGE[1:], 1)):
        judge(course, runner, "sn_1", stdout)
        assert printed(course, "sn_1") == stdout
        assert blob_names(course.database).count("outputs/sn_1") == blobs
        course.ok("POST", "/submissions/sn_1/rejudge")


def test_what_a_blob_of_an_earlier_version_holds_is_read(course: Service) -> None:
    """They kept every program in a blob."""
    submit(course, "sn_1", "print()")
    code = stored(course, "sn_1")["code_blob"]
    blob_id = storage.put(code, name="code/sn_1")
    course.database["submissions"].update_one({}, {"$set": {"code_blob": blob_id}})
    assert course.call("GET", "/submissions/sn_1/code").data == code
    course.clock.advance(3600)
    course.sweep()
    assert course.call("GET", "/submissions/sn_1/code").data == code


def test_lists_and_views_ask_for_no_program_and_no_output(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = course.runner()
    submit(course, "sn_1", "print()")
    judge(course, runner, "sn_1", "small\n")
    asked: list[dict[str, Any]] = []
    original = Collection.find

    def find(collection: Any, *args: Any, **kwargs: Any) -> Any:
        cursor = original(collection, *args, **kwargs)
        if collection.name == "submissions":
            asked.extend(cursor.clone())
        return cursor

    monkeypatch.setattr(Collection, "find", find)
    for path in ("/submissions", "/submissions/sn_1", "/submissions.csv", "/submissions.jsonl"):
        assert course.call("GET", path).status_code == 200
    # `find_one` is a `find`, too.
    assert len(asked) >= 4
    for submission in asked:
        assert "code_blob" not in submission
        assert "outputs_blob" not in (submission.get("result") or {})


def test_a_setting_keeps_every_program_in_a_blob(
    mongo_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a while after an upgrade, so that the version before can read them all."""
    monkeypatch.setattr(storage, "INLINE_BYTES_MAX", storage.INLINE_BYTES_MAX)
    clock = ManualClock()
    app = build_app(mongo_uri, clock, inline_bytes_max=storage.NEVER_INLINE)
    try:
        course = Service(app=app, clock=clock, database=engine.users().database)
        course.user("ada")
        course.problem(1)
        submit(course, "sn_1", "print()")
        assert blob_names(course.database).count("code/sn_1") == 1
    finally:
        app.extensions["judge_dispatch"].wakeup.close()
        engine.disconnect()
