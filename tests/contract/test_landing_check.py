"""`recompute --check | --repair`: finds and mends whatever is wrong, and nothing that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

import cli
from mongo import check, homework, landing, recompute
from tests.digest import digest
from tests.factories import DAY, EPOCH, Service

Change = dict[str, Any]
JUST_LOOK = {"advance": lambda: None}


@pytest.fixture
def course(service: Service) -> Service:
    """Two students, two problems, two homeworks; ada stands somewhere in each."""
    for name in ("ada", "a.b"):
        service.user(name)
    for problem_id in (1, 2):
        service.problem(problem_id)
    service.homework("hw", [1, 2], ["ada", "a.b"], end=EPOCH - DAY, penalty="score / 2")
    service.homework("late", [1], ["ada"], end=EPOCH + DAY)
    for number, (username, problem_id, verdict) in enumerate(
        [("ada", 1, "WA"), ("ada", 1, "AC"), ("ada", 2, "TLE"), ("a.b", 1, "AC")]
    ):
        service.clock.advance(1)
        service.submit(username, problem_id, f"sn_{number}")
        service.land(f"sn_{number}", verdict)
    assert check.differences(check.scope(), **JUST_LOOK) == []
    return service


@pytest.fixture
def run(course: Service, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run `recompute` with arguments, expect an exit code, return what it printed."""
    monkeypatch.setattr(cli, "LOOK_AGAIN_S", 0)
    runner = course.app.test_cli_runner()

    def run(*arguments: str, exit_code: int = 0) -> str:
        result: Result = runner.invoke(args=["recompute", *arguments], catch_exceptions=False)
        assert result.exit_code == exit_code, result.output
        return result.output

    return run


COUNTERS: dict[str, Change] = {
    "submission too high": {"$inc": {"submission": 1}},
    "submission too low": {"$inc": {"submission": -1}},
    "submission gone": {"$unset": {"submission": ""}},
    "AC_submission too high": {"$inc": {"AC_submission": 1}},
    "AC_submission too low": {"$inc": {"AC_submission": -1}},
    "AC_problem_ids too many": {"$push": {"AC_problem_ids": 2}},
    "AC_problem_ids twice": {"$push": {"AC_problem_ids": 1}},
    "AC_problem_ids empty": {"$set": {"AC_problem_ids": []}},
    "AC_problem_ids null": {"$set": {"AC_problem_ids": None}},
    "tally too high": {"$inc": {"tally.1.judged": 1}},
    "tally of a problem gone": {"$unset": {"tally.1": ""}},
    "tally of no problem": {"$set": {"tally.7": {"judged": 1, "accepted": 0}}},
}
STANDINGS: dict[str, Change] = {
    "score": {"$inc": {"problems.1.score": 1}},
    "score gone": {"$unset": {"problems.1.score": ""}},
    "rawScore": {"$inc": {"problems.1.rawScore": -1}},
    "problemStatus": {"$set": {"problems.1.problemStatus": 1}},
    "problemStatus null": {"$set": {"problems.1.problemStatus": None}},
    "submissionIds twice": {"$push": {"problems.1.submissionIds": "sn_0"}},
    "submissionIds one less": {"$pop": {"problems.1.submissionIds": 1}},
    "submissionIds turned around": {"$set": {"problems.1.submissionIds": ["sn_1", "sn_0"]}},
    "an entry gone": {"$unset": {"problems.1": ""}},
    "an entry too many": {"$set": {"problems.7": {"score": 1}}},
    "all entries gone": {"$set": {"problems": {}}},
}


@pytest.mark.parametrize("change", COUNTERS)
def test_every_counter_that_is_wrong_is_found_and_mended(
    course: Service, run: Callable[..., str], change: str
) -> None:
    healthy = digest(course.database)
    course.database["users"].update_one({"_id": "ada"}, COUNTERS[change])
    printed = run("--check", exit_code=1)
    assert "1 differ" in printed
    assert "ada" in printed
    assert "1 rebuilt" in run("--repair")
    assert digest(course.database) == healthy
    assert "0 differ" in run("--check")


def test_a_user_without_a_tally_is_healthy_and_counted_whole_by_the_next_landing(
    course: Service, run: Callable[..., str]
) -> None:
    course.submit("ada", 2, "later")
    course.database["users"].update_many({}, {"$unset": {"tally": ""}})
    assert "0 differ" in run("--check")
    course.land("later", "AC")
    kept = course.database["users"].find_one({"_id": "ada"})
    assert kept is not None
    assert sum(entry["judged"] for entry in kept["tally"].values()) == kept["submission"]
    assert "0 differ" in run("--check")


@pytest.mark.parametrize("change", STANDINGS)
def test_every_standing_that_is_wrong_is_found_and_mended(
    course: Service, run: Callable[..., str], change: str
) -> None:
    healthy = digest(course.database)
    course.database["student_status"].update_one({"_id": "hw/ada"}, STANDINGS[change])
    assert "hw/ada" in run("--check", exit_code=1)
    run("--repair")
    assert digest(course.database) == healthy
    assert "0 differ" in run("--check")


def test_a_standing_whose_document_is_gone_is_made_anew(
    course: Service, run: Callable[..., str]
) -> None:
    healthy = digest(course.database)
    course.database["student_status"].delete_one({"_id": "hw/a.b"})
    assert "2 differ" in run("--check", exit_code=1)
    run("--repair")
    assert digest(course.database) == healthy


def test_what_somebody_who_left_still_has_is_found(
    course: Service, run: Callable[..., str]
) -> None:
    course.homework("late", [1], ["a.b"])
    course.database["student_status"].update_one(
        {"_id": "late/ada"}, {"$set": {"problems": {"1": {"score": 100}}}}
    )
    assert "late/ada" in run("--check", exit_code=1)
    run("--repair")
    kept = course.database["student_status"].find_one({"_id": "late/ada"})
    assert kept is not None
    assert kept["problems"] == {}


def test_every_difference_is_counted_however_many_are_shown(
    course: Service, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "DIFFERENCES_SHOWN_MAX", 2)
    course.database["users"].update_many({}, {"$inc": {"submission": 1, "AC_submission": 1}})
    printed = run("--check", exit_code=1)
    assert "4 differ" in printed
    assert "and 2 more" in printed


# -- scope ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), {"ada", "a.b", "hw/ada", "hw/a.b", "late/ada"}),
        (("--user", "ada"), {"ada", "hw/ada", "late/ada"}),
        (("--homework", "hw"), {"hw/ada", "hw/a.b"}),
        (("--homework", "hw", "--user", "a.b"), {"hw/a.b"}),
        (("--problem", "2"), {"ada", "hw/ada", "hw/a.b", "late/ada"}),
        (("--problem", "2", "--homework", "hw", "--user", "ada"), {"hw/ada"}),
        (("--user", "nobody"), set()),
        (("--homework", "none"), set()),
        (("--problem", "9"), set()),
    ],
)
def test_only_what_is_asked_for_is_looked_at_and_mended(
    course: Service, run: Callable[..., str], arguments: tuple[str, ...], found: set[str]
) -> None:
    healthy = digest(course.database)
    course.database["users"].update_many({}, {"$inc": {"submission": 1}})
    course.database["student_status"].update_many(
        {}, {"$inc": {"problems.1.score": 1, "problems.2.score": 1}}
    )
    corrupt = digest(course.database)
    run("--check", *arguments, exit_code=1 if found else 0)
    assert digest(course.database) == corrupt
    run("--repair", *arguments)
    mended = digest(course.database)
    assert {
        str(key)
        for name in ("users", "student_status")
        for key, kept in mended[name].items()
        if kept != corrupt[name][key]
    } == found
    run("--repair")
    assert digest(course.database) == healthy


# -- while judging goes on -----------------------------------------------------------------


def half_landed(course: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A landing that has stored its result, and nothing of what follows from it."""
    course.submit("ada", 2, "sn_9")
    with monkeypatch.context() as patch:
        patch.setattr(landing, "finish_judging", lambda username, problem_id: None)
        course.land("sn_9", "AC")


def test_a_landing_that_ends_meanwhile_is_no_difference(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_landed(course, monkeypatch)
    pauses = []

    def pause() -> None:
        pauses.append(None)
        if len(pauses) == check.LOOKS_MAX - 1:
            landing.finish_judging("ada", 2)

    assert check.differences(check.scope(), **JUST_LOOK, pause=pause) == []
    assert len(pauses) == check.LOOKS_MAX - 1


def test_what_stays_wrong_is_reported_after_a_few_looks(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_landed(course, monkeypatch)
    pauses: list[None] = []
    found = check.differences(check.scope(), **JUST_LOOK, pause=lambda: pauses.append(None))
    assert {one.whose for one in found} == {"ada", "hw/ada"}
    assert len(pauses) == check.LOOKS_MAX - 1


def test_a_healthy_database_is_looked_at_once(course: Service) -> None:
    assert check.differences(check.scope(), **JUST_LOOK, pause=_raise) == []


def test_a_document_that_changes_under_every_look_is_left_to_who_changes_it(
    course: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each recompute is overtaken by another landing: what was read belongs to two moments."""
    course.database["users"].update_one({"_id": "ada"}, {"$inc": {"submission": 1}})
    real = recompute.user_counters

    def overtaken(username: str) -> dict[str, Any]:
        course.database["users"].update_one({"_id": username}, {"$inc": {"version": 1}})
        return real(username)

    monkeypatch.setattr(recompute, "user_counters", overtaken)
    assert check.differences(check.scope(username="ada"), **JUST_LOOK) == []


def test_a_homework_whose_recompute_is_under_way_is_said_to_be(
    course: Service, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(homework.recompute, "recompute_homework", lambda homework_id: None)
        course.homework("hw", [1, 2], ["ada", "a.b"], end=EPOCH + DAY)
    printed = run("--check")
    assert "homework hw: its recompute after an edit is still under way" in printed
    course.database["users"].update_one({"_id": "ada"}, {"$inc": {"submission": 1}})
    assert "1 differ" in run("--check", exit_code=1)
    course.sweep()
    assert "still under way" not in run("--check", exit_code=1)


def test_a_homework_that_stays_due_is_stuck_and_repaired(
    course: Service, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(homework.recompute, "recompute_homework", lambda homework_id: None)
        # Nothing of it changes: no standing differs, yet whoever reads it is told to wait.
        course.homework("late", [1], ["ada"], end=EPOCH + DAY)
        assert "stuck" not in run("--check")
        course.clock.advance(check.STUCK_AFTER.total_seconds() - 1)
        # The sweep is at it, for the tenth time.
        recompute.claim_recompute("late", now=course.clock())
        assert "stuck" not in run("--check")
        course.clock.advance(1)
        assert "homework late: stuck" in run("--check", exit_code=1)
        assert "stuck" not in run("--check", "--homework", "hw")
        assert "homework late: stuck" in run("--check", "--homework", "late", exit_code=1)
        course.database["homeworks"].update_one(
            {"_id": "late"}, {"$unset": {"recompute_asked_at": ""}}
        )
        assert "homework late: stuck" in run("--check", exit_code=1)
    assert "homework late: recomputed" in run("--repair")
    assert "stuck" not in run("--check")
    assert not course.ok("GET", "/homeworks/late")["recomputing"]


def test_a_repair_that_was_stopped_is_started_again(course: Service) -> None:
    healthy = digest(course.database)
    course.database["users"].update_many({}, {"$inc": {"submission": 1}})
    course.database["student_status"].update_many({}, {"$inc": {"problems.1.score": 1}})
    seen: list[None] = []

    def stop_after_two() -> None:
        seen.append(None)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check.repair(check.scope(), advance=stop_after_two)
    left = check.repair(check.scope(), **JUST_LOOK)
    assert {one.whose for one in left} == {"hw/a.b", "hw/ada", "late/ada"}
    assert digest(course.database) == healthy
    assert check.repair(check.scope(), **JUST_LOOK) == []


def _raise() -> None:
    raise AssertionError("nothing differed")
