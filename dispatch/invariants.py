"""The invariants of the lease protocol as checkers over raw documents.

Guarantees: pure but for `check_database`, which only reads. A checker raises nothing on a broken
document; what is wrong comes back as `Violation`s that name the invariant. Histories tell which
edges were taken between two looks, so a step may be one transition or several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo.database import Database

from dispatch import states
from dispatch.lease import LeaseRules, deadline_passed
from dispatch.states import EDGES, HELD, Edge, Outcome, State

Document = Mapping[str, Any]

EDGE_OF = {edge.event: edge for edge in EDGES}
NEW_FENCE = frozenset(
    edge.event
    for edge in (
        states.CLAIM,
        states.RECLAIM,
        states.COMPLETE_BEGINS,
        states.EXHAUST_BEGINS,
        states.CANCEL,
    )
)
"""Events that raise the fence by one; the others, but for those below, keep it."""
ABOVE_THE_SUBMISSION = frozenset(
    edge.event for edge in (states.REJUDGE_PENDING, states.REJUDGE, states.REPAIR)
)
"""Events that raise the fence by one or more: above the submission's, too."""
NEW_JOB = frozenset({states.REJUDGE.event, states.REPAIR.event})
"""Events that replace the job by one with a budget of its own."""
TAKES = frozenset({states.CLAIM.event, states.RECLAIM.event})
LEASE = ("leased_by", "lease_token", "lease_deadline", "handed_out")
NEVER_WHEN: Mapping[State, tuple[str, ...]] = {
    State.PENDING: (*LEASE, "claim_id", "landing_deadline", "outcome", "done_at"),
    State.LEASED: ("landing_deadline", "outcome", "done_at", "given_back"),
    State.LANDING: ("outcome", "done_at", "given_back"),
    State.DONE: ("landing_deadline", "given_back"),
}
PENDING_STATUS = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """One broken invariant (`I1` to `I8`) of one submission."""

    invariant: str
    submission_id: str
    detail: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.invariant} {self.submission_id}: {self.detail}"


# -- one document --------------------------------------------------------------------------


def check_document(job: Document, rules: LeaseRules | None = None) -> list[Violation]:
    """Return what is wrong with one raw job document; `rules` adds the bounds of I5."""
    try:
        state = State(job.get("state", ""))
    except ValueError:
        return [_violation(job, "I3", f"state is {job.get('state')!r}")]
    found = [
        ("I3", f"{name} is set while {state}")
        for name in NEVER_WHEN[state]
        if job.get(name) is not None
    ]
    found.extend(_check_lease(job, state))
    found.extend(_check_counts(job, rules))
    found.extend(_check_history(job, state))
    return [_violation(job, invariant, detail) for invariant, detail in found]


def _check_lease(job: Document, state: State) -> Iterator[tuple[str, str]]:
    owned = job.get("leased_by") is not None
    if owned != (job.get("lease_token") is not None):
        yield "I3", "leased_by and lease_token are not set together"
    if state is State.LEASED and not (owned and job.get("handed_out") is not None):
        yield "I3", "leased to nobody, or with nothing handed out"
    if not owned and job.get("claim_id") is not None:
        yield "I3", "claim_id outlived its lease"
    outcome = job.get("outcome")
    if state is State.DONE and outcome not in [value.value for value in Outcome]:
        yield "I1", f"done with outcome {outcome!r}"
    if state is State.DONE and owned and outcome == Outcome.JUDGE_ERROR:
        yield "I3", "a judge error under a runner's lease"
    if state is State.DONE and owned and outcome == Outcome.CANCELLED:
        yield "I3", "cancelled, and still under a runner's lease"


def _check_counts(job: Document, rules: LeaseRules | None) -> Iterator[tuple[str, str]]:
    attempts, refunds = job.get("attempts", 0), job.get("drain_refunds", 0)
    if attempts < 0 or (rules and attempts > rules.max_attempts):
        yield "I5", f"attempts is {attempts}"
    if refunds < 0 or (rules and refunds > rules.drain_refunds_max):
        yield "I5", f"drain_refunds is {refunds}"
    replaced = job.get("replaced_ids", [])
    if job.get("job_id") in replaced or len(set(replaced)) != len(replaced):
        yield "I4", f"job {job.get('job_id')} and those that it replaced are not told apart"
    if (job.get("mark_due") or 0) > job.get("fence", 0):
        yield "I4", "the mark that is due carries a fence of the future"
    if (job.get("restore_due") or 0) > job.get("fence", 0):
        yield "I4", "the result to be brought back carries a fence of the future"


def _check_history(job: Document, state: State) -> Iterator[tuple[str, str]]:
    history: Sequence[Document] = job.get("history", [])
    if not history:
        return
    yield from _replay(history[0], history[1:], owner=_UNKNOWN)
    last = history[-1]
    if _target(last) is not state:
        yield "I1", f"state {state} was not reached by {last['event']}"
    if last["fence"] != job.get("fence", 0):
        yield "I4", f"fence {job.get('fence')} is not that of {last['event']}, {last['fence']}"
    if last["job_id"] != job.get("job_id"):
        yield "I4", f"job_id {job.get('job_id')} is not that of {last['event']}"
    if last["attempts"] != job.get("attempts", 0):
        yield "I5", f"attempts {job.get('attempts')} are not those of {last['event']}"


# -- one step ------------------------------------------------------------------------------


def check_step(before: Document, after: Document) -> list[Violation]:
    """Return what is wrong with the way from one raw job document to a later one."""
    found: list[tuple[str, str]] = []
    if after.get("fence", 0) < before.get("fence", 0):
        found.append(("I4", f"fence went from {before.get('fence')} to {after.get('fence')}"))
    old: Sequence[Document] = before.get("history", [])
    fresh = _fresh(old, after.get("history", []))
    if old and fresh is not None:
        found.extend(_replay(old[-1], fresh, owner=before.get("leased_by")))
        found.extend(_check_first(before, fresh))
        if not fresh:
            found.extend(_check_unmoved(before, after))
    if before["job_id"] not in (after["job_id"], *after.get("replaced_ids", [])) and (
        fresh is not None and len(fresh) < 8
    ):
        found.append(("I4", f"job {before['job_id']} is gone without having been replaced"))
    return [_violation(after, invariant, detail) for invariant, detail in found]


def _fresh(old: Sequence[Document], new: Sequence[Document]) -> Sequence[Document] | None:
    """Return the entries of `new` that are not in `old`; None when too many to tell."""
    for overlap in range(min(len(old), len(new)), 0, -1):
        if list(old[-overlap:]) == list(new[:overlap]):
            return new[overlap:]
    return None


def _check_first(before: Document, fresh: Sequence[Document]) -> Iterator[tuple[str, str]]:
    """I2: a lease is taken away by the sweep or a reclaim only after its deadline."""
    if not fresh or before["state"] not in HELD:
        return
    taken_away = fresh[0]["event"] == states.RECLAIM.event or (
        # One that a runner's abort began carries that runner and needs no deadline.
        fresh[0]["event"] == states.EXHAUST_BEGINS.event and "runner_id" not in fresh[0]
    )
    if taken_away and not deadline_passed(before.get("lease_deadline"), fresh[0]["at"]):
        yield "I2", f"{fresh[0]['event']} before the deadline"


def _check_unmoved(before: Document, after: Document) -> Iterator[tuple[str, str]]:
    """Without a transition only a renewal, the end of what was due, or giving up may show."""
    free = {"lease_deadline", "mark_due", "restore_due", "given_up_at", "given_up_why"}
    for name in sorted((before.keys() | after.keys()) - free):
        if before.get(name) != after.get(name):
            yield "I3", f"{name} changed without a transition"
    was, is_ = before.get("lease_deadline"), after.get("lease_deadline")
    if was != is_ and (before["state"] not in HELD or _shrank(was, is_)):
        yield "I2", f"lease_deadline went from {was} to {is_} without a transition"


def _shrank(was: datetime | None, is_: datetime | None) -> bool:
    return is_ is None or (was is not None and is_ < was)


# -- histories -----------------------------------------------------------------------------

_UNKNOWN = object()
"""The owner before the first entry that is still kept."""


def _replay(
    last: Document, entries: Sequence[Document], *, owner: object
) -> Iterator[tuple[str, str]]:
    """Walk the entries after `last`; `owner` holds the lease before the first of them."""
    for entry in entries:
        edge = EDGE_OF.get(entry["event"])
        if edge is None:
            yield "I1", f"{entry['event']} is no edge"
            return
        if _target(last) not in edge.sources:
            yield "I1", f"{edge.event} does not leave {_target(last)}"
        yield from _check_fences(last, entry)
        yield from _check_attempts(last, entry)
        actor = entry.get("runner_id")
        if edge in (states.COMPLETE_BEGINS, states.ABORT) and owner not in (_UNKNOWN, actor):
            yield "I3", f"{edge.event} by {actor} under the lease of {owner}"
        owner = _owner_after(edge, actor, owner)
        last = entry


def _owner_after(edge: Edge, actor: object, owner: object) -> object:
    if edge.event in TAKES:
        return actor
    kept = edge in (states.COMPLETE_BEGINS, states.COMPLETE_ENDS, states.COMPLETE_RESTORE)
    return owner if kept else None


def _check_fences(last: Document, entry: Document) -> Iterator[tuple[str, str]]:
    grew = entry["fence"] - last["fence"]
    if entry["event"] in ABOVE_THE_SUBMISSION:
        fits = grew >= 1
    else:
        fits = grew == (1 if entry["event"] in NEW_FENCE else 0)
    if not fits:
        yield "I4", f"{entry['event']} took the fence from {last['fence']} to {entry['fence']}"
    changed = entry["job_id"] != last["job_id"]
    if changed != (entry["event"] in NEW_JOB):
        yield "I4", f"{entry['event']} took the job from {last['job_id']} to {entry['job_id']}"


def _check_attempts(last: Document, entry: Document) -> Iterator[tuple[str, str]]:
    was, is_ = last["attempts"], entry["attempts"]
    event = entry["event"]
    allowed = {was}
    if event in TAKES:
        # A try beyond the attempts, of a job that is not given up yet, costs none.
        allowed = {was + 1, was} if event == states.RECLAIM.event else {was + 1}
    elif event in NEW_JOB:
        allowed = {0}
    elif event == states.ABORT.event and entry.get("refunded"):
        allowed = {was - 1}
    elif event == states.ABORT.event and "reason" not in entry:
        allowed = {was, was - 1}  # An older version said it in a note.
    if is_ not in allowed:
        yield "I5", f"{event} took the attempts from {was} to {is_}"


def _target(entry: Document) -> State | None:
    if entry["event"] == "enqueue":
        return State.PENDING
    edge = EDGE_OF.get(entry["event"])
    return None if edge is None else edge.target


# -- the whole database --------------------------------------------------------------------


def check_database(
    database: Database[dict[str, Any]], rules: LeaseRules | None = None
) -> list[Violation]:
    """Return what is wrong with the jobs, each alone and beside its submission.

    May run while the service works: what two documents seem to disagree on is looked at again.
    """
    found: list[Violation] = []
    for job in database["jobs"].find():
        found.extend(check_document(job, rules))
        if check_pair(job, database["submissions"].find_one({"_id": job["_id"]})):
            found.extend(_confirmed(database, job["_id"]))
    return found


def check_pair(job: Document, submission: Document | None) -> list[Violation]:
    """Return what is wrong between a job and its submission, both read at one moment."""
    if submission is None:
        return []
    found = pair_faults(
        job,
        fence=submission.get("fence", 0),
        pending=submission["status"] == PENDING_STATUS,
        job_id=submission.get("job_id"),
    )
    return [_violation(job, invariant, detail) for invariant, detail in found]


def pair_faults(
    job: Document, *, fence: int, pending: bool, job_id: str | None
) -> Iterator[tuple[str, str]]:
    """Yield (invariant, what is wrong) between a job and its submission's fields."""
    newest = job.get("fence") or 0
    if fence > newest:
        yield "I4", f"submission.fence {fence} > job.fence {newest}"
    if not pending:
        return
    outcome, marked = job.get("outcome"), job.get("mark_due") is None
    if job.get("state") != State.DONE:
        if marked and job.get("preview"):
            yield "I8", "pending, and its job is a preview, which is not to count"
        elif marked and job_id not in (None, job.get("job_id")):
            yield "I4", f"pending under job {job_id}, and its job is {job.get('job_id')}"
    elif outcome in (Outcome.VERDICT, Outcome.JUDGE_ERROR):
        yield "I1", f"pending, and its job is done ({outcome}): no verdict"
    elif outcome == Outcome.CANCELLED and job.get("restore_due") is None:
        yield "I8", "cancelled, and nothing brings the earlier verdict back"
    elif outcome != Outcome.CANCELLED and marked:
        yield "I8", f"pending, and its job is done ({outcome})"


def _confirmed(database: Database[dict[str, Any]], submission_id: str) -> list[Violation]:
    """Compare again, with proof that the job did not move while the submission was read."""
    for _ in range(10):
        job = database["jobs"].find_one({"_id": submission_id})
        submission = database["submissions"].find_one({"_id": submission_id})
        if job is None or job == database["jobs"].find_one({"_id": submission_id}):
            return [] if job is None else check_pair(job, submission)
    return []


def _violation(job: Document, invariant: str, detail: str) -> Violation:
    return Violation(invariant=invariant, submission_id=str(job["_id"]), detail=detail)
