"""I6: a landing that fails in the middle of `finish_judging`, and is repeated, leaves what one
undisturbed landing leaves. Directly, and through the seam with the runner's resend.
"""

from __future__ import annotations

from typing import Any

import pytest

from mongo import after_landing, recompute
from tests.digest import blob_names, digest
from tests.factories import EPOCH, Service, handed_out

pytestmark = pytest.mark.usefixtures("blobs_apart")


class Stopped(Exception):
    """The work ends here."""


@pytest.fixture
def course(service: Service) -> Service:
    prepare(service)
    return service


def prepare(service: Service) -> None:
    """Ada, problem 1, and two homeworks with both."""
    service.user("ada")
    service.problem(1)
    for homework_id in ("h1", "h2"):
        service.homework(homework_id, [1], ["ada"])


def emptied(service: Service) -> None:
    for name in service.database.list_collection_names():
        service.database[name].delete_many({})
    service.clock.at = EPOCH


def failing(original: Any, *, on_call: int, error: Exception) -> Any:
    """Wrap a function so that one of its calls raises."""
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == on_call:
            raise error
        return original(*args, **kwargs)

    return wrapped


MIDDLES = {
    "before anything was read": (after_landing, "basis", 1),
    "before the counters": (after_landing, "_counters", 1),
    "after the counters, before the homeworks": (after_landing, "_write_standings", 1),
    "inside the first homework": (after_landing, "stand", 1),
    "inside the second homework": (after_landing, "stand", 2),
    "before the counters are written": (recompute, "write_counters", 1),
    "before the homeworks are written": (after_landing, "upsert_each", 1),
}


@pytest.mark.parametrize("middle", MIDDLES)
@pytest.mark.parametrize("retried", [1, 2])
def test_i6_a_failure_in_the_middle_of_finish_judging_then_the_retry(
    course: Service, monkeypatch: pytest.MonkeyPatch, middle: str, retried: int
) -> None:
    course.submit("ada", 1, "undisturbed")
    course.land("undisturbed", "AC")
    expected = digest(course.database)
    emptied(course)
    prepare(course)
    course.submit("ada", 1, "undisturbed")
    module, function, on_call = MIDDLES[middle]
    with monkeypatch.context() as patch:
        wrapped = failing(getattr(module, function), on_call=on_call, error=Stopped(middle))
        patch.setattr(module, function, wrapped)
        with pytest.raises(Stopped):
            course.land("undisturbed", "AC")
    assert digest(course.database) != expected
    for number in range(retried):
        course.land("undisturbed", "AC", fence=2 + number)
    assert digest(course.database) == expected
    course.sweep()
    assert blob_names(course.database).count("outputs/undisturbed") == 1


@pytest.mark.parametrize("middle", MIDDLES)
def test_i6_the_same_through_the_seam_and_the_runner_s_resend(
    course: Service, monkeypatch: pytest.MonkeyPatch, middle: str
) -> None:
    runner = course.runner()
    course.submit("ada", 1, "sn_1")
    job_id = course.claim(runner)["job_id"]
    module, function, on_call = MIDDLES[middle]
    with monkeypatch.context() as patch:
        wrapped = failing(getattr(module, function), on_call=on_call, error=Stopped(middle))
        patch.setattr(module, function, wrapped)
        assert course.complete(runner, job_id, "AC", may_fail=True).status_code == 500
    job = course.view_job("sn_1")
    assert (job["state"], job["leased_by"]) == ("leased", runner.runner_id)
    assert job["history"][-1]["event"] == "complete_restore"
    assert course.complete(runner, job_id, "AC").status_code == 204
    assert course.complete(runner, job_id, "AC").status_code == 204
    assert course.counters("ada") == (1, 1, [1])
    for homework_id in ("h1", "h2"):
        assert course.standing(homework_id, "ada", 1) == {
            "score": 100,
            "rawScore": 100,
            "problemStatus": 0,
            "submissionIds": ["sn_1"],
        }
    assert course.view_job("sn_1")["attempts"] == 1


def test_i6_a_landing_whose_problem_vanished_meanwhile_still_lands(course: Service) -> None:
    course.submit("ada", 1, "sn_1")
    course.database["problems"].delete_many({})
    course.land("sn_1", "AC", given=handed_out((100, 1)))
    assert course.counters("ada") == (1, 1, [1])
