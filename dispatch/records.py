"""A job as it stands in the database, read with defaults for fields an older version lacked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dispatch.contract import HandedOut
from dispatch.states import Outcome, State
from dispatch.unreadable import UnreadableDocument

_NEEDED: dict[str, type] = {
    "_id": str,
    "job_id": str,
    "state": str,
    "problem_id": int,
    "language": int,
    "queued_at": datetime,
}
_KNOWN: dict[str, type] = {
    **_NEEDED,
    **dict.fromkeys(("priority", "fence", "attempts", "drain_refunds"), int),
    **dict.fromkeys(("mark_due", "restore_due", "tried"), int),
    **dict.fromkeys(("leased_by", "lease_token", "claim_id", "outcome"), str),
    **dict.fromkeys(("rejudge_id", "avoid_runner"), str),
    **dict.fromkeys(
        ("lease_deadline", "landing_deadline", "avoid_until", "failed_until"), datetime
    ),
    **dict.fromkeys(("not_before", "leased_at", "renew_until", "first_failed_at"), datetime),
    **dict.fromkeys(("failed_by", "tried_by", "replaced_ids", "history"), list),
    **dict.fromkeys(("handed_out", "given_back"), Mapping),
    **dict.fromkeys(("preview", "invalid_result"), bool),
}
_WHOLE_MAX = 2**62
"""A number up to this can be counted up by the database for as long as anybody lives."""


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
    not_before: datetime | None
    """Until then nobody is handed the job."""
    leased_at: datetime | None
    renew_until: datetime | None
    """From then on the lease is not renewed."""
    invalid_result: bool
    """The last result reported under this lease did not fit what was handed out."""
    tried_by: tuple[str, ...]
    """Runners whose lease of the job ended without a result, drains aside."""
    tried: int
    """How many different runners had it, the present holder included, drains aside."""
    first_failed_at: datetime | None
    """When a lease first ended without a result, drains aside."""
    replaced_ids: tuple[str, ...]
    given_back: Mapping[str, Any] | None
    """Who gave the pending job back, with which token and reason: recognises a repeat."""
    history: tuple[Mapping[str, Any], ...]
    given_up: bool = False
    """It leads to no verdict, and only a human can put that right."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Job:
        """Read a whole job document.

        Raises:
            UnreadableDocument: a field is missing, or not what any version writes.
        """
        check_fields(document, _NEEDED, _KNOWN)
        handed_out = document.get("handed_out")
        outcome = document.get("outcome")
        try:
            return cls._of(document, handed_out, outcome)
        except (LookupError, TypeError, ValueError) as error:
            raise UnreadableDocument(f"{type(error).__name__}: {error}") from None

    @classmethod
    def _of(cls, document: Mapping[str, Any], handed_out: Any, outcome: Any) -> Job:
        return cls(
            submission_id=document["_id"],
            job_id=document["job_id"],
            state=State(document["state"]),
            problem_id=document["problem_id"],
            language=document["language"],
            priority=document.get("priority") or 0,
            queued_at=document["queued_at"],
            fence=document.get("fence") or 0,
            attempts=document.get("attempts") or 0,
            drain_refunds=document.get("drain_refunds") or 0,
            leased_by=document.get("leased_by"),
            lease_token=document.get("lease_token"),
            claim_id=document.get("claim_id"),
            lease_deadline=document.get("lease_deadline"),
            landing_deadline=document.get("landing_deadline"),
            handed_out=None if handed_out is None else _handed_out(handed_out),
            outcome=None if outcome is None else Outcome(outcome),
            rejudge_id=document.get("rejudge_id"),
            mark_due=document.get("mark_due"),
            restore_due=document.get("restore_due"),
            preview=document.get("preview") or False,
            avoid_runner=document.get("avoid_runner"),
            avoid_until=document.get("avoid_until"),
            failed_by=tuple(_text(runner_id) for runner_id in document.get("failed_by") or ()),
            failed_until=document.get("failed_until"),
            not_before=document.get("not_before"),
            leased_at=document.get("leased_at"),
            renew_until=document.get("renew_until"),
            invalid_result=document.get("invalid_result") or False,
            tried_by=tuple(_text(runner_id) for runner_id in document.get("tried_by") or ()),
            tried=document.get("tried") or 0,
            first_failed_at=document.get("first_failed_at"),
            replaced_ids=tuple(document.get("replaced_ids") or ()),
            given_back=_given_back(document.get("given_back")),
            history=tuple(dict(entry) for entry in document.get("history") or ()),
            given_up=document.get("given_up_at") is not None,
        )


def _handed_out(document: Mapping[str, Any]) -> HandedOut:
    handed_out = HandedOut.from_document(document)
    for task in document["tasks"]:
        check_fields(task, {}, dict.fromkeys(task, int))
    return handed_out


def _given_back(document: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    names = ("runner_id", "lease_token", "reason")
    return None if document is None else {name: document[name] for name in names}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where a text belongs")
    return value


def check_fields(
    document: Mapping[str, Any], needed: Mapping[str, type], known: Mapping[str, type]
) -> None:
    """Check that the `needed` fields are there, and that each of the `known` ones is of its type.

    Raises:
        UnreadableDocument: names the field.
    """
    for name, wanted in known.items():
        value = document.get(name)
        if value is None:
            if name in needed:
                raise UnreadableDocument(f"{name} is missing")
        elif not _is_a(value, wanted):
            raise UnreadableDocument(f"{name} is a {type(value).__name__}")


def _is_a(value: Any, wanted: type) -> bool:
    if wanted is int:
        # A shell may have written a whole number as a float.
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and abs(value) <= _WHOLE_MAX and value == int(value)
    return isinstance(value, wanted)
