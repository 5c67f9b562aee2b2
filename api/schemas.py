"""Requests and answers as models: they validate, and they make the OpenAPI document."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    StringConstraints,
)

from dispatch.contract import Language, Verdict

PROBLEM_ID_MAX = 2**31 - 1
NUMBER_MAX = 2**53 - 1
TASKS_MAX = CASES_MAX = 100
"""Test data numbers them with two digits."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def _printable(value: str) -> str:
    if _CONTROL.search(value):
        raise ValueError("may not hold control characters")
    return value


def _valid_unicode(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("is not valid Unicode") from None
    return value


def _path_segment(value: str) -> str:
    if "/" in value or value in (".", ".."):
        raise ValueError("may not hold a slash, or be . or ..")
    return value


def _unicode(value: Any) -> Any:
    """Replace lone surrogates: what a program printed must never cost it its verdict."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _moment(value: Any) -> datetime:
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise ValueError("must be an RFC 3339 time with zone, as in 2026-01-31T23:59:59Z")
    try:
        moment = datetime.fromisoformat(value.upper().replace(" ", "T")).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("is no time that exists") from None
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


Name = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200),
    AfterValidator(_printable),
    Field(json_schema_extra={"pattern": r"^[^\u0000-\u001f\u007f]*$"}),
]
UserName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=100),
    AfterValidator(_printable),
    AfterValidator(_path_segment),
    Field(json_schema_extra={"pattern": r"^(?!\.{1,2}$)[^/\u0000-\u001f\u007f]*$"}),
]
Slug = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
ProblemId = Annotated[int, Field(ge=0, le=PROBLEM_ID_MAX)]
LanguageCode = Annotated[int, Field(ge=0, le=2, description="0 C, 1 C++, 2 Python")]
Text = Annotated[str, AfterValidator(_valid_unicode)]
Output = Annotated[str, BeforeValidator(_unicode)]
Moment = Annotated[
    datetime,
    BeforeValidator(
        _moment,
        json_schema_input_type=Annotated[
            str,
            Field(pattern=f"^{_RFC3339.pattern}$", json_schema_extra={"format": "date-time"}),
        ],
    ),
    Field(description="RFC 3339"),
]
Measure = Annotated[int, Field(ge=-1, le=NUMBER_MAX)]
CaseStatus = Literal["AC", "WA", "CE", "TLE", "MLE", "RE", "JE", "OLE"]


class Body(BaseModel):
    """A request body: exact types; fields that are not known are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


RUNS_MAX = 100


class RunnerBody(BaseModel):
    """A runner's body: exact types; what newer or older runners add is ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Answer(BaseModel):
    """An answer's body."""


class Problem(Answer):
    """An RFC 9457 problem document."""

    type: str
    title: str
    status: int
    detail: str
    reason: str


# -- runners -------------------------------------------------------------------------------


class ReplacedRunner(RunnerBody):
    """Who a runner was before it crashed, and the token that it had."""

    runner_id: Text
    token: Text


class RegisterBody(RunnerBody):
    """A runner introduces itself."""

    registration_token: Text
    name: Name
    languages: Annotated[list[LanguageCode], Field(max_length=16)] | None = None
    replaces: ReplacedRunner | None = None
    """That identity is revoked, and its leases end at once."""


class RunnerConfig(Answer):
    """How a runner is to behave. Seconds may be fractions."""

    heartbeat_interval_sec: float
    poll_interval_sec: float
    max_concurrent_jobs: int


class Registered(Answer):
    """The runner's identity; the token is shown this once."""

    runner_id: str
    token: str
    config: RunnerConfig


class HeartbeatBody(RunnerBody):
    """What a runner is working on."""

    active_job_ids: Annotated[list[Text], Field(max_length=1000)]
    languages: Annotated[list[LanguageCode], Field(max_length=16)] | None = None
    """Replaces the languages that it takes jobs in; absent: they stay as they are."""
    report_lost: bool = False
    report_drain: bool = False


class HeartbeatAnswer(Answer):
    """What the runner asked to be told: each field is there if it was asked for."""

    lost_job_ids: list[str] | None = None
    """Listed jobs that the runner does not hold."""
    drain: bool | None = None
    """Whether the runner is to drain."""


class NextJobQuery(BaseModel):
    """How to ask for a job."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    wait: Annotated[float, Field(ge=0, le=30, allow_inf_nan=False)] = 0
    claim_id: Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,100}$")] | None = None


class PayloadTask(Answer):
    """One task of a job: KiB and ms."""

    taskScore: int
    memoryLimit: int
    timeLimit: int
    caseCount: int


class JobPayload(Answer):
    """A leased job."""

    job_id: str
    submission_id: str
    problem_id: int
    language: int
    code_url: str
    checker: str
    tasks: list[PayloadTask]
    attempt: int
    lease_token: str
    testdata_url: str
    testdata_sha256: str


class CaseBody(RunnerBody):
    """One judged case."""

    exitCode: Annotated[int, Field(ge=-NUMBER_MAX, le=NUMBER_MAX)]
    status: CaseStatus
    stdout: Output
    stderr: Output
    execTime: Measure
    memoryUsage: Measure
    outputTruncated: bool = False
    runs: Annotated[int, Field(ge=1, le=RUNS_MAX)] = 1
    """Of so many runs this one counts."""


class CompleteBody(RunnerBody):
    """A job's result: per task, per case."""

    tasks: Annotated[
        list[Annotated[list[CaseBody], Field(max_length=CASES_MAX)]], Field(max_length=TASKS_MAX)
    ]
    lease_token: Text | None = None


class AbortBody(RunnerBody):
    """Why a job is given back."""

    reason: Literal["drain", "prep_failed", "rejected"]
    lease_token: Text | None = None
    at_fault: Literal["machine", "problem", "submission"] | None = None
    """What the runner holds to be at fault; where it says nothing, all three may be."""
    detail: Text = ""
    """Why, for people."""


# -- submissions ---------------------------------------------------------------------------


class SubmitForm(BaseModel):
    """The fields of a submit besides `code`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    language: Literal["0", "1", "2"]
    submission_id: Slug | None = None
    username: UserName | None = None


class SubmitDocumented(BaseModel):
    """A submit, for the OpenAPI document: multipart, in which a field is there or is not."""

    problem_id: ProblemId
    language: LanguageCode
    code: Annotated[str, Field(json_schema_extra={"format": "binary"})]
    submission_id: Annotated[Slug, Field(default_factory=str)]
    username: Annotated[UserName, Field(default_factory=str)]


class SubmittedAnswer(Answer):
    """A submission that was taken in."""

    submission_id: str
    job_id: str
    status: int
    verdict: str


class WaitQuery(BaseModel):
    """How long to hold the answer."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    wait: Annotated[float, Field(ge=0, le=30, allow_inf_nan=False)] = 0


class CaseAnswer(Answer):
    """One case of a result."""

    status: int
    verdict: str
    exit_code: int
    exec_time_ms: int
    memory_usage_kib: int
    output_truncated: bool
    runs: int


class TaskAnswer(Answer):
    """One task of a result."""

    status: int
    verdict: str
    score: int
    exec_time_ms: int
    memory_usage_kib: int
    cases: list[CaseAnswer]


class HistoryEntry(Answer):
    """One transition of a job."""

    at: datetime
    event: str
    fence: int
    attempts: int | None = None
    job_id: str | None = None
    runner_id: str | None = None
    note: str | None = None


class JobAnswer(Answer):
    """The current judging of a submission. Runners are shown to admins only."""

    job_id: str
    state: str
    attempts: int
    fence: int
    leased_by: str | None
    lease_deadline: datetime | None
    queued_at: datetime
    history: list[HistoryEntry]


class SubmissionListed(Answer):
    """A submission in a list."""

    submission_id: str
    username: str
    problem_id: int
    language: int
    status: int
    verdict: str
    score: int
    exec_time_ms: int
    memory_usage_kib: int
    submitted_at: datetime
    judged_at: datetime | None


class SubmissionAnswer(SubmissionListed):
    """A submission with its result and its job."""

    testdata_sha256: str | None
    tasks: list[TaskAnswer]
    waits_because: str | None
    job: JobAnswer | None


class SubmissionsQuery(BaseModel):
    """Which submissions to list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    username: UserName | None = None
    problem_id: ProblemId | None = None
    verdict: Literal["PENDING", "AC", "WA", "CE", "TLE", "MLE", "RE", "JE", "OLE"] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str, StringConstraints(min_length=1, max_length=120)] | None = None


class SubmissionPage(Answer):
    """A page of submissions; `next_cursor` is null on the last."""

    submissions: list[SubmissionListed]
    next_cursor: str | None


# -- administering -------------------------------------------------------------------------


class UserBody(Body):
    """A user's settings."""

    display_name: Name | None = None


class UserAnswer(Answer):
    """A user with the counters."""

    username: str
    display_name: str | None
    submission: int
    AC_submission: int
    AC_problem_ids: list[int]


class KeyAnswer(Answer):
    """A new key, shown this once."""

    key: str


class TaskBody(Body):
    """One task of a problem."""

    task_score: Annotated[int, Field(ge=0, le=100)]
    memory_limit_kib: Annotated[int, Field(ge=1, le=64 * 1024 * 1024)]
    time_limit_ms: Annotated[int, Field(ge=1, le=600_000)]
    case_count: Annotated[int, Field(ge=1, le=CASES_MAX)]


class ProblemBody(Body):
    """A problem's settings."""

    name: Name
    tasks: Annotated[list[TaskBody], Field(min_length=1, max_length=TASKS_MAX)]
    allowed_languages: Annotated[list[LanguageCode], Field(min_length=1, max_length=16)] = [
        Language.C.value,
        Language.CPP.value,
        Language.PYTHON.value,
    ]


class ProblemAnswer(Answer):
    """A problem's settings; `ready` when tasks and test data agree."""

    problem_id: int
    name: str
    tasks: list[TaskBody]
    allowed_languages: list[int]
    ready: bool
    testdata_sha256: str | None


class TestdataAnswer(Answer):
    """Test data as stored."""

    __test__ = False

    sha256: str


class HomeworkBody(Body):
    """A homework's settings."""

    name: Name
    start: Moment
    end: Moment
    penalty: Annotated[str, StringConstraints(min_length=1, max_length=500)] = "score = 0"
    problem_ids: Annotated[list[ProblemId], Field(max_length=1000)]
    students: Annotated[list[UserName], Field(max_length=20_000)]


class StandingAnswer(Answer):
    """A student's standing at one problem."""

    score: int
    rawScore: int
    problemStatus: int | None
    submissionIds: list[str]


class HomeworkAnswer(Answer):
    """A homework and its standings; `recomputing` while an edit's recompute is under way."""

    homework_id: str
    name: str
    start: datetime
    end: datetime
    penalty: str
    problem_ids: list[int]
    students: list[str]
    recomputing: bool
    student_status: dict[str, dict[str, StandingAnswer]]


class RejudgedAnswer(Answer):
    """The job that judges afresh."""

    job_id: str


class HeldJob(Answer):
    """A job under a runner's lease. `since`: when that lease began, if still known."""

    job_id: str
    submission_id: str
    since: datetime | None


class DrainAnswer(Answer):
    """Since when a runner has been asked to drain, and by whom."""

    at: datetime
    by: str


class SetAsideAnswer(Answer):
    """Since when a runner has been given no jobs, and why."""

    at: datetime
    why: str


class FailedCheckAnswer(Answer):
    """A known program that a runner judged wrong, and what it had judged since it last judged one
    in that language right: `submission_ids` are the first of `total`."""

    program_id: str
    language: int
    answer: str
    at: datetime
    since: datetime
    until: datetime | None
    """When the runner was reinstated: what it judged later is not doubtful."""
    total: int
    submission_ids: list[str]


class RunnerChecksAnswer(Answer):
    """What checks say of a runner. `share`: the part of the last hour it spent at them.

    On probation it gets no job in the languages `unproven`, and none at all until it has called a
    wrong program wrong.
    """

    on_probation: bool
    unproven: list[int]
    share: float
    failed: FailedCheckAnswer | None


class RunnerAnswer(Answer):
    """A registered runner. `done`, `judge_errors` and `aborts` are of the last hour.

    `resting`: it failed several times in a row, and others come first until it is known why.
    """

    runner_id: str
    name: str
    last_seen: datetime
    alive: bool
    active_jobs: list[str]
    registered_at: datetime
    languages: list[int] | None
    holds: list[HeldJob]
    done: int
    judge_errors: int
    aborts: int
    resting: bool
    drain: DrainAnswer | None
    set_aside: SetAsideAnswer | None
    checks: RunnerChecksAnswer


class PauseBody(Body):
    """Why the queue is paused."""

    why: Name


class PauseAnswer(Answer):
    """Who paused the queue, why and when."""

    by: str
    why: str
    at: datetime


class QueueDepth(Answer):
    """How many jobs are in one state at one priority."""

    state: str
    priority: int
    count: int


class Throughput(Answer):
    """Jobs landed per minute, over each of the last minutes."""

    last_1_min: float
    last_5_min: float
    last_15_min: float


class HeldProblemAnswer(Answer):
    """A problem whose jobs wait because runners cannot prepare them."""

    problem_id: int
    since: datetime
    why: str
    probe_at: datetime = Field(description="When a job of it is handed out to see.")


class QueueAnswer(Answer):
    """The queue at a glance."""

    depth: list[QueueDepth]
    oldest_pending_age_s: float | None
    longest_lease_s: float | None = Field(
        description="For how long the oldest lease in force has been held."
    )
    held_problems: list[HeldProblemAnswer]
    landed_per_min: Throughput
    unreadable: int = Field(
        description="Jobs and runners passed over because their documents cannot be read."
    )
    paused: PauseAnswer | None


class Description(RootModel[dict[str, Any]]):
    """The API's own description: an OpenAPI document."""


class Health(Answer):
    """Whether the service works."""

    status: str


def status_of(verdict: str) -> int:
    """Return a verdict's code."""
    return Verdict[verdict].value
