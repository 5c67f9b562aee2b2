"""The rules of grading: cases to a verdict, submissions to a standing. Pure functions.

Guarantees: no clock, no database. The order in which results landed plays no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple

from dispatch.contract import CaseResult, HandedOut, InvalidResult, JudgeResult, Verdict
from mongo.penalty import Penalty

NUMBER_MAX = 2**53 - 1
"""The largest whole number that every JSON reader keeps exact."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoldedCase:
    """One case without its outputs."""

    status: Verdict
    exit_code: int
    exec_time_ms: int
    memory_usage_kib: int
    runs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FoldedTask:
    """One task: the worst of its cases, all of its score or none."""

    status: Verdict
    score: int
    exec_time_ms: int
    memory_usage_kib: int
    cases: tuple[FoldedCase, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoldedResult:
    """A submission's verdict and score."""

    status: Verdict
    score: int
    exec_time_ms: int
    memory_usage_kib: int
    tasks: tuple[FoldedTask, ...]


def fold(tasks: JudgeResult, handed_out: HandedOut) -> FoldedResult:
    """Fold reported cases into a verdict, against what the lease was given.

    Raises:
        InvalidResult: the counts do not fit, or a number is out of range.
    """
    if len(tasks) != len(handed_out.tasks):
        raise InvalidResult(f"tasks: {len(tasks)} given, the problem has {len(handed_out.tasks)}")
    folded = []
    for number, (cases, spec) in enumerate(zip(tasks, handed_out.tasks, strict=True)):
        if len(cases) != spec.case_count:
            raise InvalidResult(
                f"tasks[{number}]: {len(cases)} cases given, the task has {spec.case_count}"
            )
        folded.append(_fold_task(number, cases, spec.task_score))
    return FoldedResult(
        status=_worst(task.status for task in folded),
        score=sum(task.score for task in folded),
        exec_time_ms=max((task.exec_time_ms for task in folded), default=0),
        memory_usage_kib=max((task.memory_usage_kib for task in folded), default=0),
        tasks=tuple(folded),
    )


def _fold_task(number: int, cases: Sequence[CaseResult], task_score: int) -> FoldedTask:
    for index, case in enumerate(cases):
        _check_case(f"tasks[{number}][{index}]", case)
    status = _worst(case.status for case in cases)
    return FoldedTask(
        status=status,
        score=task_score if status is Verdict.AC else 0,
        exec_time_ms=max((case.exec_time_ms for case in cases), default=0),
        memory_usage_kib=max((case.memory_usage_kib for case in cases), default=0),
        cases=tuple(
            FoldedCase(
                status=case.status,
                exit_code=case.exit_code,
                exec_time_ms=case.exec_time_ms,
                memory_usage_kib=case.memory_usage_kib,
                runs=case.runs,
            )
            for case in cases
        ),
    )


def _worst(statuses: Iterable[Verdict]) -> Verdict:
    """Return the judge error if there is one: the other cases may have suffered from the same."""
    return max(statuses, key=lambda status: (status is Verdict.JE, status), default=Verdict.AC)


def _check_case(where: str, case: CaseResult) -> None:
    if case.status is Verdict.PENDING:
        raise InvalidResult(f"{where}.status: a judged case is not pending")
    for name, value in (
        ("execTime", case.exec_time_ms),
        ("memoryUsage", case.memory_usage_kib),
    ):
        if not -1 <= value <= NUMBER_MAX:
            raise InvalidResult(f"{where}.{name}: {value} is out of range")
    if not -NUMBER_MAX <= case.exit_code <= NUMBER_MAX:
        raise InvalidResult(f"{where}.exitCode: {case.exit_code} is out of range")


# -- standings -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class HomeworkRules:
    """What of a homework decides about scores."""

    start: datetime
    end: datetime
    penalty: Penalty


class CountedSubmission(NamedTuple):
    """One judged submission, as it counts. A tuple: a landing makes one of each to its problem."""

    submission_id: str
    submitted_at: datetime
    status: int
    score: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemStanding:
    """A student's standing at one problem of one homework."""

    score: int
    raw_score: int
    problem_status: int | None
    submission_ids: tuple[str, ...]

    def to_document(self) -> dict[str, Any]:
        """Return it as it is stored and shown."""
        return {
            "score": self.score,
            "rawScore": self.raw_score,
            "problemStatus": self.problem_status,
            "submissionIds": list(self.submission_ids),
        }


def stand(rules: HomeworkRules, submissions: Iterable[CountedSubmission]) -> ProblemStanding:
    """Return the standing that a student's judged submissions to a problem add up to."""
    counting = sorted(
        (entry for entry in submissions if entry.submitted_at >= rules.start),
        key=attrgetter("submitted_at", "submission_id"),
    )
    score = raw_score = 0
    status: int | None = None
    judge_error = Verdict.JE.value
    end = rules.end
    for entry in counting:
        if entry.status == judge_error:
            # Nobody's fault but ours: shown where there is nothing else, and never in the way.
            status = entry.status if status is None else status
        elif entry.submitted_at <= end:
            raw_score = max(raw_score, entry.score)
            if entry.score >= score:
                score, status = entry.score, entry.status
        else:
            gain = entry.score - raw_score
            if gain > 0:
                score += rules.penalty(gain, days_late(end, entry.submitted_at))
                raw_score, status = entry.score, entry.status
    return ProblemStanding(
        score=score,
        raw_score=raw_score,
        problem_status=status,
        submission_ids=tuple(entry.submission_id for entry in counting),
    )


def days_late(end: datetime, submitted_at: datetime) -> int:
    """Return how many whole days after `end` a submission came in; 0 on the first day."""
    return max(0, (submitted_at - end) // timedelta(days=1))
