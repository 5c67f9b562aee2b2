"""The demo's own expectations and comparison: every planted difference must be reported."""

import copy
from collections import Counter
from typing import Any

import pytest

from demo import course
from demo.check import check_counters, check_reclaim, check_standings, check_submission
from demo.course import COUNTERS, EXAMPLES, KILLED, PROBLEMS, STANDINGS, STUDENTS, SUBMISSIONS

KILLED_RUNNER, OTHER_RUNNER = "rn_killed", "rn_other"
ROW = next(row for row in SUBMISSIONS if row.submission_id == "linus-oddecho-1")


def submission_answer() -> dict[str, Any]:
    return {
        "submission_id": "linus-oddecho-1",
        "username": "linus",
        "problem_id": 2,
        "language": 2,
        "status": 5,
        "verdict": "RE",
        "score": 50,
        "tasks": [{"verdict": "AC", "score": 50}, {"verdict": "RE", "score": 0}],
    }


def reclaimed_answer() -> dict[str, Any]:
    return {
        "submission_id": KILLED.submission_id,
        "job": {
            "state": "done",
            "attempts": 2,
            "history": [
                {"event": "enqueue", "runner_id": None},
                {"event": "claim", "runner_id": KILLED_RUNNER},
                {"event": "reclaim", "runner_id": OTHER_RUNNER},
                {"event": "complete_begins", "runner_id": OTHER_RUNNER},
                {"event": "complete_ends", "runner_id": OTHER_RUNNER},
            ],
        },
    }


def homework_answer() -> dict[str, Any]:
    return {
        "student_status": {
            student: {
                str(problem_id): {
                    "score": standing.score,
                    "rawScore": standing.raw_score,
                    "problemStatus": standing.status,
                    "submissionIds": list(standing.submission_ids),
                }
                for problem_id, standing in problems.items()
            }
            for student, problems in STANDINGS.items()
        }
    }


def plant(answer: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    planted = copy.deepcopy(answer)
    place: Any = planted
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return planted


# What is expected is itself worth a look: it is written by hand.


def test_the_course_is_complete() -> None:
    on_time = [row for row in SUBMISSIONS if not row.late]
    assert len(on_time) >= 16
    assert len(SUBMISSIONS) > len(on_time)
    verdicts = {row.verdict for row in SUBMISSIONS}
    assert verdicts == {"AC", "WA", "CE", "TLE", "MLE", "RE", "OLE"}
    assert {row.language for row in SUBMISSIONS} == {course.C, course.CPP, course.PYTHON}
    assert any(row.problem is course.ODDECHO and row.score == 50 for row in on_time)
    assert len(STUDENTS) == 5
    assert {row.student for row in SUBMISSIONS} == set(STUDENTS) == set(COUNTERS) == set(STANDINGS)
    assert KILLED.submission_id == "grace-different-1"
    assert len({row.submission_id for row in SUBMISSIONS}) == len(SUBMISSIONS)


def test_every_program_of_the_examples_has_its_place_in_the_course() -> None:
    files = {path for path in (EXAMPLES / "programs").rglob("*") if path.is_file()}
    assert {row.path for row in SUBMISSIONS} == files


def test_each_program_bears_its_verdict_in_its_name() -> None:
    for row in SUBMISSIONS:
        prefix = row.program.partition(".")[0].partition("_")[0]
        assert prefix.upper() == row.verdict or (prefix == "partial" and row.score == 50)
        assert len(row.task_scores) == len(row.problem.task_scores)


def test_the_hand_written_tables_speak_of_the_same_submissions() -> None:
    assert Counter(row.student for row in SUBMISSIONS) == {
        name: counters.submission for name, counters in COUNTERS.items()
    }
    for student, problems in STANDINGS.items():
        assert problems.keys() == {problem.problem_id for problem in PROBLEMS}
        for problem_id, standing in problems.items():
            assert list(standing.submission_ids) == [
                row.submission_id
                for row in SUBMISSIONS
                if row.student == student and row.problem.problem_id == problem_id
            ]


# Submissions


def test_a_submission_as_expected() -> None:
    assert check_submission(ROW, submission_answer()) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("submission_id",), "linus-oddecho-2"),
        (("username",), "ada"),
        (("problem_id",), 3),
        (("language",), 1),
        (("verdict",), "WA"),
        (("verdict",), "PENDING"),
        (("score",), 51),
        (("score",), 50.0),
        (("score",), None),
        (("tasks", 1, "score"), 50),
        (("tasks", 1), None),
        (("tasks",), []),
        (("tasks",), [{"score": 50}]),
        (("tasks",), None),
        (("tasks",), {"score": 50}),
    ],
)
def test_a_planted_difference_in_a_submission(path: tuple[str | int, ...], value: Any) -> None:
    (line,) = check_submission(ROW, plant(submission_answer(), path, value))
    assert line.startswith("submission linus-oddecho-1: ")
    assert str(path[0]).removesuffix("s") in line
    assert "expected" in line


def test_an_empty_answer_differs_in_everything() -> None:
    assert len(check_submission(ROW, {})) == 7


# Counters


def test_counters_as_expected() -> None:
    answer = {"username": "ada", "submission": 3, "AC_submission": 3, "AC_problem_ids": [1, 2, 3]}
    assert check_counters("ada", COUNTERS["ada"], answer) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("username", "grace"),
        ("submission", 4),
        ("submission", True),
        ("AC_submission", 2),
        ("AC_submission", None),
        ("AC_problem_ids", [1, 2]),
        ("AC_problem_ids", [1, 2, 3, 3]),
        ("AC_problem_ids", [True, 2, 3]),
        ("AC_problem_ids", "123"),
    ],
)
def test_a_planted_difference_in_counters(key: str, value: Any) -> None:
    answer = {"username": "ada", "submission": 3, "AC_submission": 3, "AC_problem_ids": [1, 2, 3]}
    (line,) = check_counters("ada", COUNTERS["ada"], answer | {key: value})
    assert line.startswith(f"user ada: {key}: expected ")


# Standings


def test_standings_as_expected() -> None:
    assert check_standings(STANDINGS, homework_answer()) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("score", 100),
        ("score", 90.0),
        ("rawScore", 90),
        ("problemStatus", 1),
        ("problemStatus", False),
        ("problemStatus", None),
        ("submissionIds", ["grace-oddecho-1"]),
        ("submissionIds", ["grace-oddecho-2", "grace-oddecho-1"]),
    ],
)
def test_a_planted_difference_in_a_standing(key: str, value: Any) -> None:
    planted = plant(homework_answer(), ("student_status", "grace", "2", key), value)
    (line,) = check_standings(STANDINGS, planted)
    assert line.startswith(f"student_status of grace, problem 2: {key}: expected ")


def test_missing_and_surplus_entries_of_the_standings() -> None:
    answer = homework_answer()
    del answer["student_status"]["ada"]["3"]
    del answer["student_status"]["dennis.r"]
    answer["student_status"]["grace"]["4"] = {}
    answer["student_status"]["eve"] = {}
    lines = check_standings(STANDINGS, answer)
    assert "student_status: unexpected student eve" in lines
    assert "student_status of grace: unexpected problem 4" in lines
    assert len([line for line in lines if "of ada, problem 3" in line]) == 4
    assert len([line for line in lines if "of dennis.r" in line]) == 12
    assert len(lines) == 18
    assert len(check_standings(STANDINGS, {})) == 60


# The reclaim


def test_a_reclaim_as_expected() -> None:
    assert check_reclaim(reclaimed_answer(), KILLED_RUNNER) == []


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("job", "state"), "leased", "state: expected 'done'"),
        (("job", "attempts"), 1, "attempts: expected 2"),
        (("job", "history", 2, "event"), "claim", "found 0"),
        (("job", "history", 3, "event"), "reclaim", "found 2"),
        (("job", "history", 2, "runner_id"), KILLED_RUNNER, "reclaimed by the runner that was"),
        (("job", "history", 1, "runner_id"), OTHER_RUNNER, "claim is not in its history"),
        (("job", "history", 1, "event"), "abort", "claim is not in its history"),
        (("job", "history", 1), None, "claim is not in its history"),
    ],
)
def test_a_planted_difference_in_the_reclaim(
    path: tuple[str | int, ...], value: Any, sentence: str
) -> None:
    (line,) = check_reclaim(plant(reclaimed_answer(), path, value), KILLED_RUNNER)
    assert line.startswith(f"job of {KILLED.submission_id}: ")
    assert sentence in line


@pytest.mark.parametrize("job", [None, {}, {"history": None}])
def test_a_submission_without_a_readable_job_was_not_reclaimed(job: Any) -> None:
    assert len(check_reclaim({"job": job}, KILLED_RUNNER)) == 4
