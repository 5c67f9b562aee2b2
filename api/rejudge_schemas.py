"""Requests and answers of bulk rejudges."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.schemas import Answer, Body, Moment, Name, ProblemId, Slug, StandingAnswer, UserName

Mode = Literal["replace", "preview"]


class RejudgeModeBody(Body):
    """What becomes of the new verdicts: each counts as it lands, or none until applied."""

    mode: Mode = "replace"


class RejudgeBody(RejudgeModeBody):
    """Which submissions to judge afresh; a field that is left out does not restrict."""

    problem_id: ProblemId | None = None
    homework_id: Slug | None = None
    username: UserName | None = None
    verdict: Literal["AC", "WA", "CE", "TLE", "MLE", "RE", "JE", "OLE"] | None = None
    runner_id: Name | None = None
    since: Moment | None = None
    until: Moment | None = None
    judged_since: Moment | None = None
    judged_until: Moment | None = None


class RejudgeStarted(Answer):
    """A bulk rejudge has been taken in."""

    rejudge_id: str
    total: int


class RejudgeListed(Answer):
    """A bulk rejudge and how far it is."""

    rejudge_id: str
    mode: Mode
    state: str
    held: bool
    by: str
    created_at: datetime
    filter: dict[str, Any]
    total: int
    counts: dict[str, int]
    waiting: int
    queued: int
    done: int
    skipped: int
    cancelled: int


class ReasonCount(Answer):
    """Why submissions were skipped, and how many."""

    reason: str
    count: int


class VerdictChange(Answer):
    """How many verdicts became which other."""

    model_config = ConfigDict(populate_by_name=True)

    from_: Annotated[str, Field(alias="from")]
    to: str
    count: int


class RejudgeAnswer(RejudgeListed):
    """A bulk rejudge with what it changes."""

    reasons: list[ReasonCount]
    changes: list[VerdictChange]


class PageQuery(BaseModel):
    """Which page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None


class ItemAnswer(Answer):
    """One submission of a bulk rejudge."""

    submission_id: str
    username: str
    state: Literal["waiting", "queued", "done", "skipped", "cancelled"]
    reason: str | None
    verdict_before: str
    verdict_after: str | None
    score_before: int
    score_after: int | None


class ItemPage(Answer):
    """A page of submissions; `next_cursor` is null on the last."""

    items: list[ItemAnswer]
    next_cursor: str | None


class StandingChange(Answer):
    """A standing at one problem, before and after."""

    before: StandingAnswer
    after: StandingAnswer


class HomeworkChange(Answer):
    """A student's homework before and after; what crosses 60 is the percentage of all points."""

    homework_id: str
    total_before: int
    total_after: int
    crosses_60: Literal["up", "down"] | None
    problems: dict[str, StandingChange]


class SubmissionChange(Answer):
    """A submission before and after; `decided` once a preview was applied or discarded."""

    submission_id: str
    problem_id: int
    verdict_before: str
    verdict_after: str
    score_before: int
    score_after: int
    decided: Literal["applied", "overtaken", "dropped"] | None


class StudentChange(Answer):
    """What a bulk rejudge changes for one student."""

    username: str
    gains: bool
    loses: bool
    submissions: list[SubmissionChange]
    homeworks: list[HomeworkChange]


class StudentTotals(Answer):
    """Over all students: how many gain, lose, cross 60 percent of all points in some homework."""

    students: int
    gain: int
    lose: int
    cross_60_up: int
    cross_60_down: int
    submissions_changed: int


class StudentPage(Answer):
    """A page of students; `next_cursor` is null on the last, `totals` on all but the first."""

    totals: StudentTotals | None
    students: list[StudentChange]
    next_cursor: str | None


class CancelledAnswer(Answer):
    """What a submission shows after its rejudge was taken back."""

    submission_id: str
    status: int
    verdict: str
