"""What the service says, compared with what `demo.course` says it must say.

Guarantees: pure; every difference is returned as one line that names the place, the expected and
the actual value; a value that is missing or has another type differs, it is never an exception.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from demo.course import KILLED, Counters, Standing, Submission

Json = Mapping[str, Any]


def check_submission(expected: Submission, actual: Json) -> list[str]:
    """Compare one `GET /submissions/<id>` with the row it belongs to."""
    return _differences(
        f"submission {expected.submission_id}",
        {
            "submission_id": expected.submission_id,
            "username": expected.student,
            "problem_id": expected.problem.problem_id,
            "language": expected.language,
            "verdict": expected.verdict,
            "score": expected.score,
            "task scores": list(expected.task_scores),
        },
        {**actual, "task scores": _each(actual.get("tasks"), "score")},
    )


def check_counters(student: str, expected: Counters, actual: Json) -> list[str]:
    """Compare one `GET /users/<name>` with the counters of the course."""
    return _differences(
        f"user {student}",
        {
            "username": student,
            "submission": expected.submission,
            "AC_submission": expected.ac_submission,
            "AC_problem_ids": list(expected.ac_problem_ids),
        },
        actual,
    )


def check_standings(expected: Mapping[str, Mapping[int, Standing]], homework: Json) -> list[str]:
    """Compare the `student_status` of `GET /homeworks/<id>` with the standings of the course."""
    status = _mapping(homework.get("student_status"))
    lines = [f"student_status: unexpected student {name}" for name in status.keys() - expected]
    for student, problems in expected.items():
        actual = _mapping(status.get(student))
        unexpected = actual.keys() - {str(problem_id) for problem_id in problems}
        lines += [f"student_status of {student}: unexpected problem {key}" for key in unexpected]
        for problem_id, standing in problems.items():
            lines += _differences(
                f"student_status of {student}, problem {problem_id}",
                {
                    "score": standing.score,
                    "rawScore": standing.raw_score,
                    "problemStatus": standing.status,
                    "submissionIds": list(standing.submission_ids),
                },
                _mapping(actual.get(str(problem_id))),
            )
    return sorted(lines)


def check_reclaim(actual: Json, killed_runner_id: str) -> list[str]:
    """Check that the killed runner's job was leased again, by another runner, and judged there."""
    where = f"job of {KILLED.submission_id}"
    job = _mapping(actual.get("job"))
    history = job.get("history")
    events = [_mapping(entry) for entry in history] if isinstance(history, list) else []
    reclaims = [entry for entry in events if entry.get("event") == "reclaim"]
    lines = _differences(where, {"state": "done", "attempts": 2}, job)
    if not any(
        entry.get("event") == "claim" and entry.get("runner_id") == killed_runner_id
        for entry in events
    ):
        lines.append(f"{where}: the killed runner's claim is not in its history")
    if len(reclaims) != 1:
        lines.append(f"{where}: expected 1 reclaim in its history, found {len(reclaims)}")
    if any(entry.get("runner_id") == killed_runner_id for entry in reclaims):
        lines.append(f"{where}: reclaimed by the runner that was killed")
    return lines


def _differences(where: str, expected: Json, actual: Json) -> list[str]:
    return [
        f"{where}: {key}: expected {value!r}, got {actual.get(key)!r}"
        for key, value in expected.items()
        if not _same(value, actual.get(key))
    ]


def _same(expected: Any, actual: Any) -> bool:
    # JSON keeps true and 1 apart, Python's == does not.
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(_same, expected, actual))
    return type(expected) is type(actual) and bool(expected == actual)


def _each(value: Any, key: str) -> Sequence[Any] | None:
    return [_mapping(item).get(key) for item in value] if isinstance(value, list) else None


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
