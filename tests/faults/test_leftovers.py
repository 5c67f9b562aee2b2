"""I8: what a crash leaves between two writes of the domain is finished by whoever polls next."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mongo import landing, recompute, storage, stranded, submission, sweep
from mongo.stranded import Stranded
from mongo.sweep import BLOB_GRACE, Sweeper
from tests.digest import blob_names, digest
from tests.factories import Service

pytestmark = pytest.mark.usefixtures("blobs_apart")


class Crash(Exception):
    """The process ends here."""


def crash(*_args: object, **_kwargs: object) -> Any:
    raise Crash


def submit_and_crash(service: Service, monkeypatch: pytest.MonkeyPatch, where: Any) -> None:
    """Hand in over HTTP; the process ends in the function `where` = (object, name)."""
    with monkeypatch.context() as patch:
        patch.setattr(*where, crash)
        key = service.keys["ada"]
        form = {"problem_id": "1", "language": "2", "submission_id": "sn_1", "code": "print()"}
        answer = service.client.post(
            "/submissions", data=form, headers={"Authorization": f"Bearer {key}"},
            content_type="multipart/form-data",
        )  # fmt: skip
    assert answer.status_code == 500


def test_i8_a_submission_without_a_job_gets_its_own_job(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = type(course.services.judge._queue)  # type: ignore[attr-defined]
    submit_and_crash(course, monkeypatch, (queue, "enqueue"))
    view = course.ok("GET", "/submissions/sn_1")
    assert (view["verdict"], view["job"]) == ("PENDING", None)
    assert view["waits_because"] == "It is being put into the queue."
    minted = course.database["submissions"].find_one({})
    assert minted is not None
    runner = course.runner()
    assert course.claim(runner) is None
    course.sweep()
    assert course.view_job("sn_1")["job_id"] == minted["job_id"]
    course.judge(runner, "sn_1", "AC")
    assert course.counters("ada") == (1, 1, [1])
    again = course.submit_over_http(
        course.keys["ada"], problem_id=1, language=2, submission_id="sn_1"
    )
    assert again.status_code == 409


def test_i8_code_without_a_submission_is_dropped_and_the_id_stays_free(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_and_crash(course, monkeypatch, (submission, "_insert"))
    assert blob_names(course.database).count("code/sn_1") == 1
    course.sweep()
    assert "code/sn_1" not in blob_names(course.database)
    answer = course.submit_over_http(
        course.keys["ada"], problem_id=1, language=2, submission_id="sn_1"
    )
    assert answer.status_code == 201


def test_i8_a_rejudge_whose_mark_is_missing_is_marked(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = course.runner()
    course.submit("ada", 1, "sn_1")
    course.judge(runner, "sn_1", "AC")
    with monkeypatch.context() as patch:
        patch.setattr(submission, "mark_rejudged", crash)
        assert course.call("POST", "/submissions/sn_1/rejudge", may_fail=True).status_code == 500
    assert course.view("sn_1")["verdict"] == "AC"
    assert "mark_due" in course.view_job("sn_1")
    course.sweep()
    assert course.view("sn_1")["verdict"] == "PENDING"
    assert "mark_due" not in course.view_job("sn_1")
    course.judge(runner, "sn_1", "WA")
    assert course.view("sn_1")["verdict"] == "WA"


def test_i8_a_missing_mark_does_not_undo_a_result_that_landed_already(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = course.runner()
    course.submit("ada", 1, "sn_1")
    course.judge(runner, "sn_1", "AC")
    with monkeypatch.context() as patch:
        patch.setattr(submission, "mark_rejudged", crash)
        course.call("POST", "/submissions/sn_1/rejudge", may_fail=True)
    course.judge(runner, "sn_1", "WA")
    course.sweep()
    assert course.view("sn_1")["verdict"] == "WA"
    assert "mark_due" not in course.view_job("sn_1")
    assert course.counters("ada") == (1, 0, [])


def test_i8_the_sweep_leaves_those_alone_that_have_a_job(course: Service) -> None:
    course.submit("ada", 1, "sn_1")
    before, job = digest(course.database), course.view_job("sn_1")
    course.sweep()
    assert (digest(course.database), course.view_job("sn_1")) == (before, job)


def test_i8_the_sweep_comes_by_all_who_wait_a_few_at_a_time(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stranded, "WAITING_MAX", 2)
    for number in range(7):
        course.submit("ada", 1, f"sn_{number}")
    lost = ["sn_1", "sn_4", "sn_6"]
    course.database["jobs"].delete_many({"_id": {"$in": lost}})
    walk = Stranded(course.services.judge._queue)  # type: ignore[attr-defined]
    found = [walk.right_waiting() for _ in range(5)]
    assert sum(found) == 3
    assert max(found) <= 2
    assert course.database["jobs"].count_documents({}) == 7


def orphaned_outputs(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new result stands; the process ends before the old bundle is dropped."""
    service.submit("ada", 1, "sn_1")
    service.land("sn_1", "WA", fence=2)
    with monkeypatch.context() as patch:
        patch.setattr(landing, "drop_outputs", crash)
        with pytest.raises(Crash):
            service.land("sn_1", "AC", fence=3)


def unborn_outputs(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundle is stored; the process ends before the result."""
    service.submit("ada", 1, "sn_1")
    service.land("sn_1", "AC", fence=2)
    with monkeypatch.context() as patch:
        patch.setattr(landing, "write_result", crash)
        with pytest.raises(Crash):
            service.land("sn_1", "WA", fence=3)


@pytest.mark.parametrize("leave", [orphaned_outputs, unborn_outputs])
def test_i8_outputs_that_nothing_refers_to_are_dropped(
    course: Service,
    monkeypatch: pytest.MonkeyPatch,
    leave: Callable[[Service, pytest.MonkeyPatch], None],
) -> None:
    leave(course, monkeypatch)
    before = digest(course.database)
    assert blob_names(course.database).count("outputs/sn_1") == 2
    course.sweep()
    assert blob_names(course.database).count("outputs/sn_1") == 1
    assert digest(course.database) == before
    assert course.services.judge.read_output("sn_1", 0, 0, "stdout") == b"AC\n"


def test_young_blobs_are_left_alone(course: Service) -> None:
    """One may belong to a write that is still under way."""
    storage.put(b"x", name="code/sn_1")
    sweeper = Sweeper()
    now = datetime.now(UTC)
    assert sweeper.drop_blobs(now=now + BLOB_GRACE - timedelta(minutes=5)) == 0
    assert "code/sn_1" in blob_names(course.database)
    assert sweeper.drop_blobs(now=now + BLOB_GRACE + timedelta(minutes=5)) == 1


def test_the_sweep_of_blobs_comes_by_all_and_drops_no_other(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "BLOBS_MAX", 2)
    for number in range(5):
        course.submit("ada", 1, f"sn_{number}")
        course.land(f"sn_{number}", "AC")
    kept = blob_names(course.database)
    for number in range(5):
        storage.put(b"x", name=f"code/sn_{number}")
        storage.put(b"x", name=f"outputs/gone_{number}")
    sweeper = Sweeper()
    dropped = sum(sweeper.drop_blobs(now=course.clock()) for _ in range(30))
    assert blob_names(course.database) == kept
    assert dropped == 10


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_blobs_of_one_name_on_two_pages_are_all_come_by(
    course: Service, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    orphaned_outputs(course, monkeypatch)
    storage.put(b"x", name="outputs/sn_1")
    monkeypatch.setattr(sweep, "BLOBS_MAX", limit)
    sweeper = Sweeper()
    for _ in range(8):
        sweeper.drop_blobs(now=course.clock())
    assert blob_names(course.database).count("outputs/sn_1") == 1
    assert course.services.judge.read_output("sn_1", 0, 0, "stdout") == b"AC\n"


def test_test_data_is_never_swept(course: Service) -> None:
    names = blob_names(course.database)
    assert "testdata/1" in names
    course.sweep()
    assert blob_names(course.database) == names


def test_replaced_test_data_goes_after_a_day(course: Service) -> None:
    course.problem(1, text="2\n")
    assert blob_names(course.database).count("testdata/1") == 2
    course.clock.advance(24 * 3600)
    course.problem(1, text="3\n")
    assert blob_names(course.database).count("testdata/1") == 2
    course.clock.advance(24 * 3600 - 1)
    course.problem(1, text="4\n")
    assert blob_names(course.database).count("testdata/1") == 3


def test_a_race_for_the_test_data_leaves_no_blob(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another edit wins while the data is being stored; the loser stores it anew."""
    original = storage.put
    raced: list[bool] = []

    def put(*args: Any, **kwargs: Any) -> str:
        blob_id = original(*args, **kwargs)
        if not raced:
            raced.append(True)
            course.problem(1, text="theirs\n")
        return blob_id

    monkeypatch.setattr(storage, "put", put)
    course.problem(1, text="ours\n")
    assert blob_names(course.database).count("testdata/1") == 3
    problem = course.database["problems"].find_one({"_id": 1})
    assert problem is not None
    assert len(problem["testdata"]) == 3
    assert problem["ready"]


def test_the_sweep_of_blobs_reads_a_page_and_no_more(course: Service) -> None:
    for number in range(30):
        storage.put(b"x", name=f"code/sn_{number:02d}")
    late = datetime.now(UTC) + timedelta(days=1)
    [place] = storage.older_than("code/", late, after=None, limit=1)
    files = course.database["blobs.files"]
    plans: list[Any] = []
    original = type(files).find

    def explained(self: Any, *args: Any, **kwargs: Any) -> Any:
        cursor = original(self, *args, **kwargs)
        plans.append(cursor)
        return cursor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(files), "find", explained)
        page = storage.older_than("code/", late, after=place, limit=5)
    assert [found.name for found in page] == [f"code/sn_{number:02d}" for number in range(1, 6)]
    stats = plans[0].clone().explain()["executionStats"]
    assert stats["totalKeysExamined"] <= 10
    assert stats["totalDocsExamined"] <= 10


def test_i8_one_homework_that_cannot_be_recomputed_keeps_no_other_waiting(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.user("ada")
    service.problem(1)
    names = ["a-broken", "b-broken", "c-fine"]
    for name in names:
        service.homework(name, [1], ["ada"])
    service.database["homeworks"].update_many({}, {"$set": {"recompute_due": True}})
    whole = recompute.recompute_homework

    def recompute_some(homework_id: str) -> None:
        if "broken" in homework_id:
            raise RuntimeError("this one never works")
        whole(homework_id)

    monkeypatch.setattr(recompute, "recompute_homework", recompute_some)
    maintain: Any = service.services.maintain
    for _ in range(len(names)):
        maintain._each(maintain._sweeps())
    due = service.database["homeworks"].find({"recompute_due": True}).distinct("_id")
    assert due == ["a-broken", "b-broken"]
