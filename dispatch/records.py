"""A job as it stands in the database, read with defaults for fields an older version lacked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dispatch.contract import HandedOut
from dispatch.states import Outcome, State


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One job document. `submission_id` is its `_id`."""

    submission_id: str
    job_id: str
    state: State
    problem_id: int
    language: int
    priority: int
    queued_at: datetime
    fence: int
    attempts: int
    drain_refunds: int
    leased_by: str | None
    lease_token: str | None
    claim_id: str | None
    lease_deadline: datetime | None
    landing_deadline: datetime | None
    handed_out: HandedOut | None
    outcome: Outcome | None
    rejudge_id: str | None
    mark_due: int | None
    """The fence that a rejudge has yet to write on the submission."""
    restore_due: int | None
    """The fence under which a cancel has yet to bring the submission's result back."""
    preview: bool
    """Its result is kept beside the submission's, and does not count."""
    avoid_runner: str | None
    avoid_until: datetime | None
    failed_by: tuple[str, ...]
    """Runners that gave the job back at the cost of an attempt."""
    failed_until: datetime | None
    replaced_ids: tuple[str, ...]
    given_back: Mapping[str, Any] | None
    """Who gave the pending job back, with which token and reason: recognises a repeat."""
    history: tuple[Mapping[str, Any], ...]
    given_up: bool = False
    """It leads to no verdict, and only a human can put that right."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Job:
        """Read a whole job document."""
        handed_out = document.get("handed_out")
        outcome = document.get("outcome")
        return cls(
            submission_id=document["_id"],
            job_id=document["job_id"],
            state=State(document["state"]),
            problem_id=document["problem_id"],
            language=document["language"],
            priority=document.get("priority", 0),
            queued_at=document["queued_at"],
            fence=document.get("fence", 0),
            attempts=document.get("attempts", 0),
            drain_refunds=document.get("drain_refunds", 0),
            leased_by=document.get("leased_by"),
            lease_token=document.get("lease_token"),
            claim_id=document.get("claim_id"),
            lease_deadline=document.get("lease_deadline"),
            landing_deadline=document.get("landing_deadline"),
            handed_out=None if handed_out is None else HandedOut.from_document(handed_out),
            outcome=None if outcome is None else Outcome(outcome),
            rejudge_id=document.get("rejudge_id"),
            mark_due=document.get("mark_due"),
            restore_due=document.get("restore_due"),
            preview=document.get("preview", False),
            avoid_runner=document.get("avoid_runner"),
            avoid_until=document.get("avoid_until"),
            failed_by=tuple(document.get("failed_by", ())),
            failed_until=document.get("failed_until"),
            replaced_ids=tuple(document.get("replaced_ids", ())),
            given_back=document.get("given_back"),
            history=tuple(document.get("history", ())),
            given_up=document.get("given_up_at") is not None,
        )
