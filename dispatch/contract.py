"""The seam between the lease protocol and the domain: ids, results and injected callables.

Guarantees: values only, no I/O. This is the one module of `dispatch` the domain may import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Protocol

from ulid import ULID


class Verdict(IntEnum):
    """What judging said. The larger of two codes is the worse one, but nothing outweighs a JE."""

    PENDING = -1
    AC = 0
    WA = 1
    CE = 2
    TLE = 3
    MLE = 4
    RE = 5
    JE = 6
    OLE = 7


class Language(IntEnum):
    """The programming language of a submission, as runners number it."""

    C = 0
    CPP = 1
    PYTHON = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSpec:
    """One task as handed to a runner."""

    task_score: int
    memory_limit_kib: int
    time_limit_ms: int
    case_count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HandedOut:
    """What one lease was given. A result is checked and scored against this, nothing newer."""

    tasks: tuple[TaskSpec, ...]
    testdata_sha256: str
    checker: str

    def to_document(self) -> dict[str, Any]:
        """Return it as it is stored on the job."""
        return {
            "testdata_sha256": self.testdata_sha256,
            "checker": self.checker,
            "tasks": [
                {
                    "task_score": task.task_score,
                    "memory_limit_kib": task.memory_limit_kib,
                    "time_limit_ms": task.time_limit_ms,
                    "case_count": task.case_count,
                }
                for task in self.tasks
            ],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> HandedOut:
        """Read it back from a job."""
        return cls(
            testdata_sha256=document["testdata_sha256"],
            checker=document.get("checker", "default"),
            tasks=tuple(TaskSpec(**task) for task in document["tasks"]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """What a runner reports of one case. Times in ms, memory in KiB, -1 where unknown.

    `output_truncated`: the program printed more than the runner sent. `runs`: the case was run so
    often, and this run counts.
    """

    status: Verdict
    exit_code: int
    stdout: str
    stderr: str
    exec_time_ms: int
    memory_usage_kib: int
    output_truncated: bool = False
    runs: int = 1


JudgeResult = Sequence[Sequence[CaseResult]]
"""One list per task, one `CaseResult` per case."""


class InvalidResult(ValueError):
    """A reported result does not fit what was handed out; the message names what is wrong."""


class Landed(Enum):
    """What a landing left standing."""

    VERDICT = "verdict"
    """A real result stands: this one, or (for a judge error) an earlier one of the same job."""
    JUDGE_ERROR = "judge_error"
    REFUSED = "refused"
    """Something newer stands, or the submission is gone; nothing was written."""


class ProcessResult(Protocol):
    """Lands a result where it counts. Called at least once per landing, perhaps many times.

    It must converge: any number of calls, stopped anywhere, leave what one would have left.
    It must refuse to write when the submission already carries a newer fence.
    """

    def __call__(
        self,
        *,
        submission_id: str,
        job_id: str,
        fence: int,
        tasks: JudgeResult | None,
        handed_out: HandedOut | None,
        rejudge_id: str | None = None,
        preview: bool = False,
        runner_id: str | None = None,
    ) -> Landed:
        """Land `tasks`; None means that the job is given up: land a judge error.

        `tasks` with a judge error in them mean the same, with what the last runner said. Neither
        may replace a real result of the same job.

        `rejudge_id`: the bulk rejudge that asked for the job. `preview`: keep the result beside
        the submission's; it does not count. `runner_id`: who judged.

        Raises:
            InvalidResult: the result does not fit `handed_out`; nothing was written.
        """


class HandOut(Protocol):
    """Looks up what a runner needs to judge a problem now."""

    def __call__(self, problem_id: int) -> HandedOut | None:
        """Return the problem's ready revision, or None while it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownProgram:
    """A program whose verdict is known before anybody runs it: what a check hands to a runner.

    `expected` is that verdict; `also_right` are others that a sound runner may come to.
    """

    program_id: str
    language: int
    expected: Verdict
    also_right: frozenset[Verdict] = frozenset()
    handed_out: HandedOut

    def fits(self, verdict: Verdict) -> bool:
        """Tell whether a sound runner may say so."""
        return verdict is self.expected or verdict in self.also_right


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmissionSeen:
    """A submission as the queue is told of it, to be compared with its job."""

    submission_id: str
    job_id: str
    fence: int
    pending: bool
    problem_id: int
    language: int


def new_job_id() -> str:
    """Return a fresh job id, `jb_<ULID>`."""
    return f"jb_{ULID()}"
