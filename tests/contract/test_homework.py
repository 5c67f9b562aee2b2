"""Edits of homeworks: refusals, what they recompute, and landings that run beside them (I6)."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from mongo import after_landing, check, recompute
from tests.digest import digest
from tests.factories import DAY, EPOCH, Service, handed_out

GOOD: dict[str, Any] = {
    "name": "first",
    "start": "2039-12-01T00:00:00Z",
    "end": "2040-02-01T00:00:00Z",
    "penalty": "score / 2",
    "problem_ids": [1, 2],
    "students": ["ada", "bob"],
}


@pytest.fixture
def course(service: Service) -> Service:
    """Two students, three problems; ada has 60 points in time and 100 a day and a half later."""
    for name in ("ada", "bob"):
        service.user(name)
    for problem_id in (1, 2, 3):
        service.problem(problem_id, (60, 1), (40, 1))
    service.submit("ada", 1, "sn_1")
    service.land("sn_1", "AC", "WA", given=_given())
    service.clock.at = EPOCH + 1.5 * DAY
    service.submit("ada", 1, "sn_2")
    service.land("sn_2", "AC", "AC", given=_given())
    return service


def _given() -> Any:
    return handed_out((60, 1), (40, 1))


def put(service: Service, homework_id: str = "hw", **changed: Any) -> Any:
    return service.call("PUT", f"/homeworks/{homework_id}", json=GOOD | changed)


def score(service: Service, username: str = "ada", problem_id: int = 1) -> Any:
    entry = service.standing("hw", username, problem_id)
    return None if entry is None else (entry["score"], entry["rawScore"], entry["submissionIds"])


def consistent() -> bool:
    return check.differences(check.scope(), advance=lambda: None) == []


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"end": "2039-11-30T23:59:59Z"}, "end"),
        ({"start": "2040-01-01"}, "start"),
        ({"start": "2040-01-01T00:00:00"}, "start"),
        ({"start": "2040-02-30T00:00:00Z"}, "start"),
        ({"start": "0000-01-01T00:00:00Z"}, "start"),
        ({"start": "0001-01-01T00:00:00+23:59"}, "start"),
        ({"end": "9999-12-31T23:59:59-23:59"}, "end"),
        ({"end": 1893456000}, "end"),
        ({"penalty": "days"}, "penalty"),
        ({"penalty": "score / overtime"}, "penalty"),
        ({"penalty": ""}, "penalty"),
        ({"penalty": "9 ** 9 ** 9"}, "penalty"),
        ({"penalty": "score * 0.5 ** 1e13"}, "penalty"),
        ({"penalty": "1e999999999 * score"}, "penalty"),
        ({"penalty": "9" * 400}, "penalty"),
        ({"penalty": "-" * 200 + "score"}, "penalty"),
        ({"penalty": "(0 - score) ** 0.5"}, "penalty"),
        ({"penalty": "score" + " " * 500}, "penalty"),
        ({"problem_ids": [1, 9]}, "problem_ids"),
        ({"problem_ids": [1, 1]}, "problem_ids"),
        ({"problem_ids": [1.0]}, "problem_ids"),
        ({"students": ["ada", "eve"]}, "students"),
        ({"students": ["ada", "ada"]}, "students"),
        ({"students": ["a/b"]}, "students"),
        ({"name": ""}, "name"),
    ],
)
def test_homeworks_that_are_refused(course: Service, changed: dict[str, Any], where: str) -> None:
    put(course)
    before = digest(course.database)
    answer = put(course, **changed)
    assert answer.status_code == 400
    assert answer.get_json(force=True)["detail"].startswith(where)
    assert digest(course.database) == before


@pytest.mark.parametrize("homework_id", ["a.b", "x" * 65, "%20", "é", "a%2Fb"])
def test_homework_ids_that_are_refused(course: Service, homework_id: str) -> None:
    assert put(course, homework_id).status_code in (400, 404)


def test_times_are_kept_to_the_millisecond(course: Service) -> None:
    put(course, start="2039-12-01T01:02:03.4567899+01:00", end="2040-02-01 00:00:00.0009z")
    seen = course.ok("GET", "/homeworks/hw")
    assert seen["start"] == "2039-12-01T00:02:03.456Z"
    assert seen["end"] == "2040-02-01T00:00:00.000Z"


def test_i6_a_new_homework_counts_what_was_handed_in_before(course: Service) -> None:
    put(course)
    assert score(course) == (100, 100, ["sn_1", "sn_2"])
    assert score(course, "bob") == (0, 0, [])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"end": "2040-01-01T12:00:00Z"}, (80, 100, ["sn_1", "sn_2"])),
        ({"end": "2040-01-01T11:59:59.999Z"}, (50, 100, ["sn_1", "sn_2"])),
        (
            {"end": "2040-01-01T12:00:00Z", "penalty": "score * 0.5 ** (overtime + 1)"},
            (70, 100, ["sn_1", "sn_2"]),
        ),
        ({"start": "2040-01-01T12:00:00.001Z"}, (100, 100, ["sn_2"])),
        ({"start": "2040-01-20T00:00:00Z"}, (0, 0, [])),
        ({"problem_ids": [2]}, None),
        ({"students": ["bob"]}, None),
    ],
)
def test_i6_every_edit_recomputes_and_can_be_taken_back(
    course: Service, changed: dict[str, Any], expected: Any
) -> None:
    put(course)
    at_first = digest(course.database)
    assert put(course, **changed).get_json()["recomputing"] is False
    assert score(course) == expected
    assert consistent()
    put(course)
    assert digest(course.database) == at_first


def test_a_removed_student_sees_it_no_more_and_comes_back_with_everything(
    course: Service,
) -> None:
    put(course)
    seen = course.ok("GET", "/homeworks/hw", key=course.keys["ada"])
    put(course, students=["bob"])
    assert list(course.ok("GET", "/homeworks/hw")["student_status"]) == ["bob"]
    assert course.call("GET", "/homeworks/hw", key=course.keys["ada"]).status_code == 404
    put(course)
    again = course.ok("GET", "/homeworks/hw", key=course.keys["ada"])
    assert again == seen


EDITS: dict[str, dict[str, Any]] = {
    "a student is removed": {"students": ["bob"]},
    "the problem is removed": {"problem_ids": [2]},
    "the end moves": {"end": "2040-01-01T00:00:00Z"},
    "the start moves": {"start": "2040-01-03T00:00:00Z"},
    "the penalty changes": {"end": "2040-01-01T00:00:00Z", "penalty": "score"},
}
MOMENTS = ["stand", "rules_of"]
"""Where a landing is interrupted: it has read the version and the settings, but not written."""


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("moment", ["basis", *MOMENTS])
@pytest.mark.parametrize("fresh", [False, True], ids=["standing kept", "no standing yet"])
def test_i6_an_edit_in_the_middle_of_a_landing(
    course: Service, monkeypatch: pytest.MonkeyPatch, edit: str, moment: str, fresh: bool
) -> None:
    """The edit runs whole after the landing has read what it computes from."""
    put(course)
    course.submit("ada", 1, "sn_3")
    if fresh:
        course.database["student_status"].delete_many({"username": "ada"})

    def interrupt() -> None:
        assert put(course, **EDITS[edit]).status_code == 200

    during(monkeypatch, moment, interrupt)
    course.land("sn_3", "AC", "AC", given=_given())
    assert consistent()
    if "removed" in edit:
        assert score(course) is None
        kept = course.database["student_status"].find_one({"username": "ada"})
        assert kept is not None
        assert "1" not in kept["problems"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_i6_a_landing_in_the_middle_of_an_edit(
    course: Service, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    put(course)
    course.submit("ada", 1, "sn_3")
    during(monkeypatch, moment, lambda: course.land("sn_3", "AC", "AC", given=_given()))
    put(course, penalty="score / 4")
    assert consistent()
    assert score(course)[2] == ["sn_1", "sn_2", "sn_3"]


@pytest.mark.parametrize("moment", ["basis", "_counters", *MOMENTS])
def test_i6_a_landing_in_the_middle_of_a_landing(
    course: Service, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The outer one has read everything when the inner one lands whole; then it writes."""
    put(course)
    course.submit("ada", 1, "sn_3")
    course.clock.advance(1)
    course.submit("ada", 1, "sn_4")
    during(monkeypatch, moment, lambda: course.land("sn_4", "AC", "AC", given=_given()))
    course.land("sn_3", "AC", "WA", given=_given())
    assert consistent()
    assert course.counters("ada") == (4, 2, [1])
    assert score(course)[2] == ["sn_1", "sn_2", "sn_3", "sn_4"]


def during(monkeypatch: pytest.MonkeyPatch, function: str, interrupt: Callable[[], Any]) -> None:
    """Run `interrupt` once, at the first call of the recompute's `function`: after it is done."""
    modules = [module for module in (after_landing, recompute) if hasattr(module, function)]
    original = getattr(modules[0], function)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        for module in modules:
            monkeypatch.setattr(module, function, original)
        result = original(*args, **kwargs)
        # Another process's, so not within the session that this one is bound to.
        contextvars.Context().run(interrupt)
        return result

    for module in modules:
        monkeypatch.setattr(module, function, wrapped)


def test_i8_an_edit_that_dies_before_its_recompute_is_finished_by_the_sweep(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(course)
    with monkeypatch.context() as patch:
        patch.setattr(recompute, "recompute_homework", _raise)
        answer = course.call(
            "PUT",
            "/homeworks/hw",
            json=GOOD | {"end": "2040-01-01T12:00:00Z", "students": ["ada"]},
            may_fail=True,
        )
        assert answer.status_code == 500
    assert course.ok("GET", "/homeworks/hw")["recomputing"] is True
    assert score(course) == (100, 100, ["sn_1", "sn_2"])
    course.sweep()
    seen = course.ok("GET", "/homeworks/hw")
    assert seen["recomputing"] is False
    assert score(course) == (80, 100, ["sn_1", "sn_2"])
    assert consistent()


def test_i8_a_recompute_overtaken_by_another_edit_leaves_its_mark_to_that(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit is saved while the recompute of the one before runs, and then dies."""
    put(course)

    def edit_that_dies() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(recompute, "recompute_homework", _raise)
            course.call(
                "PUT",
                "/homeworks/hw",
                json=GOOD | {"end": "2040-01-01T12:00:00Z"},
                may_fail=True,
            )

    during(monkeypatch, "stand", edit_that_dies)
    put(course, penalty="score / 4")
    assert course.ok("GET", "/homeworks/hw")["recomputing"] is True
    course.sweep()
    assert course.ok("GET", "/homeworks/hw")["recomputing"] is False
    assert score(course) == (80, 100, ["sn_1", "sn_2"])
    assert consistent()


def _raise(*_args: object, **_kwargs: object) -> None:
    raise RuntimeError("the process ends here")


@pytest.mark.parametrize("early", [timedelta(0), timedelta(milliseconds=1)])
def test_a_student_may_hand_in_from_the_start_on(course: Service, early: timedelta) -> None:
    start = EPOCH + 5 * DAY
    course.homework("only", [3], ["bob"], start=start, end=start + DAY)
    course.clock.at = start - early
    answer = course.submit_over_http(course.keys["bob"], problem_id=3, language=2)
    assert answer.status_code == (403 if early else 201)
    course.homework("earlier", [3], ["bob"], start=EPOCH, end=start + DAY)
    answer = course.submit_over_http(course.keys["bob"], problem_id=3, language=2)
    assert answer.status_code == 201
