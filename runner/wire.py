"""What crosses the wire between a runner and the service, as typed values.

Guarantees: a value of these types has passed validation; signed links and tokens are kept out
of every `repr`, so that no log line and no traceback can carry them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError


class Verdict(StrEnum):
    """What judging one case said, as it is spelled on the wire."""

    AC = "AC"
    WA = "WA"
    CE = "CE"
    TLE = "TLE"
    MLE = "MLE"
    RE = "RE"
    JE = "JE"
    OLE = "OLE"


class AtFault(StrEnum):
    """What this runner holds to be at fault for a job that it gives back."""

    MACHINE = "machine"
    PROBLEM = "problem"
    SUBMISSION = "submission"


class AbortReason(StrEnum):
    """Why a runner gives a job back."""

    DRAIN = "drain"
    PREP_FAILED = "prep_failed"
    REJECTED = "rejected"


class TaskLimits(BaseModel):
    """One task of a job: its limits and how many cases it has."""

    # The protocol may grow fields; those of tomorrow must not stop the runner of today.
    model_config = ConfigDict(frozen=True, extra="ignore")

    task_score: int = Field(alias="taskScore")
    memory_limit_kib: int = Field(alias="memoryLimit", gt=0)
    time_limit_ms: int = Field(alias="timeLimit", gt=0)
    case_count: int = Field(alias="caseCount", ge=0)


class JobOffer(BaseModel):
    """One leased job, as `next-job` hands it out."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    job_id: str
    submission_id: str
    problem_id: int
    language: int
    code_url: str = Field(repr=False)
    checker: str
    tasks: tuple[TaskLimits, ...]
    attempt: int
    lease_token: str | None = Field(default=None, repr=False)
    testdata_url: str = Field(repr=False)
    testdata_sha256: Annotated[str, AfterValidator(str.lower)] = Field(pattern=r"^[0-9a-fA-F]{64}$")


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadableOffer:
    """A job was leased to this runner, but its payload cannot be read. `detail` says why."""

    job_id: str
    lease_token: str | None = field(repr=False)
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseReport:
    """The result of one case. Times in milliseconds, memory in KiB.

    `output_truncated`: the program printed more than is reported. `runs`: of so many runs this
    was the best; the wire tells only of more than one.
    """

    status: Verdict
    exit_code: int
    stdout: str
    stderr: str
    exec_time_ms: int
    memory_kib: int
    output_truncated: bool = False
    runs: int = 1

    def to_wire(self) -> dict[str, Any]:
        """Return it under the names of the protocol."""
        repeated = {"runs": self.runs} if self.runs > 1 else {}
        return {
            "exitCode": self.exit_code,
            "status": self.status.value,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "execTime": self.exec_time_ms,
            "memoryUsage": self.memory_kib,
            "outputTruncated": self.output_truncated,
            **repeated,
        }


def parse_offer(payload: object) -> JobOffer | UnreadableOffer | None:
    """Read the body of a 200 from `next-job`; `None` where not even a job id can be made out."""
    try:
        return JobOffer.model_validate(payload)
    except ValidationError as error:
        if not isinstance(payload, dict) or not isinstance(payload.get("job_id"), str):
            return None
        token = payload.get("lease_token")
        return UnreadableOffer(
            job_id=payload["job_id"],
            lease_token=token if isinstance(token, str) else None,
            detail=faults(error),
        )


def faults(error: ValidationError) -> str:
    """Say what is wrong with a value, field by field, without repeating the value itself."""
    return "; ".join(
        f"{'.'.join(str(part) for part in fault['loc']) or 'value'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    )


def tasks_to_wire(tasks: Sequence[Sequence[CaseReport]]) -> list[list[dict[str, Any]]]:
    """Return the results of a job as the `tasks` of a `complete` body."""
    return [[case.to_wire() for case in cases] for cases in tasks]
