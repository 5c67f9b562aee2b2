"""What must be true after chaos, from what everybody noted and what the database holds.

Pure: a snapshot and the diaries in, findings out, each under the name of what went wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from dispatch.invariants import check_document, check_pair
from dispatch.lease import LeaseRules
from tests.cluster import check_documents
from tests.cluster.check_documents import REPLACED_IDS_KEPT, may_be_gone
from tests.cluster.snapshot import Finding, Retention, Snapshot, finding
from tests.cluster.wire import expected_of
from tests.faults import ledger

Document = dict[str, Any]

DOUBLE_EFFECTS = frozenset({"taken_twice", "leased_twice", "wrong_totals"})
LOSSES = frozenset(
    {
        "lost_submit",
        "lost_completion",
        "lost_edit",
        "lost_blob",
        "no_verdict",
        "wrong_verdict",
    }
)
_TAKES = ("claim", "reclaim")
_LETS_GO = ("abort", "rejudge", "cancel", "exhaust_begins")


def check(
    diary: list[Document],
    snapshot: Snapshot,
    rules: LeaseRules,
    retention: Retention | None = None,
) -> list[Finding]:
    """Return everything that is wrong. `retention`: which jobs may be gone; None: none."""
    return [
        *_bugs(diary),
        *_submits(diary, snapshot),
        *_leases(diary, snapshot, rules),
        *_completions(diary, snapshot, retention),
        *_invariants(snapshot, rules),
        *_totals(snapshot),
        *_leftovers(snapshot),
        *check_documents.pairs(snapshot, retention),
        *check_documents.blobs(snapshot),
        *check_documents.rejudges(snapshot, _programs(diary)),
        *check_documents.homeworks(diary, snapshot),
    ]


def _programs(diary: list[Document]) -> dict[str, str]:
    """Submission to program, of all submits that were acknowledged."""
    return {
        entry["submission"]: entry["code"]
        for entry in diary
        if entry["kind"] == "seen" or (entry["kind"] == "submit" and entry["status"] == 201)
    }


def _bugs(diary: list[Document]) -> Iterator[Finding]:
    for entry in diary:
        if entry["kind"] == "bug":
            yield finding("bug", entry["request"], f"answered {entry['status']}")
        if entry["kind"] == "submit" and entry["status"] not in (0, 201, 409, 503):
            yield finding("bug", entry["submission"], f"submit answered {entry['status']}")


def _submits(diary: list[Document], snapshot: Snapshot) -> Iterator[Finding]:
    """Every submit that was acknowledged has its program's verdict; no 409 had an effect."""
    programs = _programs(diary)
    acknowledged: dict[str, int] = defaultdict(int)
    for entry in diary:
        if entry["kind"] in ("submit", "submit_again") and entry["status"] == 201:
            acknowledged[entry["submission"]] += 1
        if entry["kind"] == "submit_again" and entry["status"] not in (0, 409, 503):
            yield finding("taken_twice", entry["submission"], f"answered {entry['status']}")
    for submission_id, count in acknowledged.items():
        if count > 1:
            yield finding("taken_twice", submission_id, f"{count} submits got 201")
    for entry in diary:
        if entry["kind"] == "shown" and entry["submission"] in programs:
            expected = expected_of(programs[entry["submission"]].encode())["status"]
            if entry["verdict"] != expected:
                yield finding("wrong_verdict", entry["submission"], f"{entry['verdict']} shown")
    found = {submission["_id"]: submission for submission in snapshot.submissions}
    for submission_id, code in programs.items():
        submission = found.get(submission_id)
        if submission is None:
            yield finding("lost_submit", submission_id, "acknowledged, and not there")
        elif submission["status"] == -1:
            yield finding("no_verdict", submission_id, "still pending")
        else:
            yield from _verdict(submission, expected_of(code.encode()))


def _verdict(submission: Document, expected: dict[str, int]) -> Iterator[Finding]:
    result = submission.get("result") or {}
    shown = {"status": submission["status"], "score": result.get("score")}
    if shown != expected:
        yield finding("wrong_verdict", submission["_id"], f"{shown}, not {expected}")
    counted = submission.get("counted") or {}
    if {name: counted.get(name) for name in expected} != expected:
        yield finding("wrong_verdict", submission["_id"], f"counts as {counted}, not {expected}")


def _leases(diary: list[Document], snapshot: Snapshot, rules: LeaseRules) -> Iterator[Finding]:
    """No lease was given to two runners, and none was taken away before its time."""
    owners: dict[str, set[str]] = defaultdict(set)
    for entry in diary:
        if entry["kind"] == "leased":
            owners[entry["token"]].add(entry["runner"])
    for token, runners in owners.items():
        if len(runners) > 1:
            yield finding("leased_twice", token, f"to {sorted(runners)}")
    for job in snapshot.jobs:
        taken: Document | None = None
        for entry in job["history"]:
            if entry["event"] in _TAKES:
                if taken is not None:
                    after_s = (entry["at"] - taken["at"]).total_seconds()
                    if after_s < rules.lease_ttl_s:
                        yield finding(
                            "leased_twice", job["_id"], f"taken again after {after_s:.3f} s"
                        )
                taken = entry
            elif entry["event"] in _LETS_GO:
                taken = None


def _completions(
    diary: list[Document], snapshot: Snapshot, retention: Retention | None
) -> Iterator[Finding]:
    """What a runner was told has landed is what stands, or was replaced by a rejudge."""
    jobs = {job["_id"]: job for job in snapshot.jobs}
    for entry in diary:
        if entry["kind"] != "complete" or entry["status"] != 204:
            continue
        job = jobs.get(entry["submission"])
        if (job is None or job["job_id"] != entry["job"]) and may_be_gone(
            entry, job, snapshot, retention
        ):
            continue
        if job is None:
            yield finding("lost_completion", entry["submission"], "its job is gone")
        elif job["job_id"] != entry["job"]:
            replaced = job.get("replaced_ids", [])
            if entry["job"] not in replaced and len(replaced) < REPLACED_IDS_KEPT:
                yield finding("lost_completion", entry["submission"], f"{entry['job']} is gone")
        elif _is_of_a_cancelled_preview(job, snapshot):
            continue  # Nobody wants it, and it lay beside what counts.
        elif (job.get("outcome"), job.get("lease_token")) != ("verdict", entry["token"]):
            yield finding(
                "lost_completion",
                entry["submission"],
                f"{entry['runner']} was told 204; {job.get('leased_by')} ended it with "
                f"{job.get('outcome')}",
            )


def _is_of_a_cancelled_preview(job: Document, snapshot: Snapshot) -> bool:
    return bool(job.get("preview")) and any(
        rejudge["_id"] == job.get("rejudge_id") and rejudge["state"] == "cancelled"
        for rejudge in snapshot.rejudges
    )


def _invariants(snapshot: Snapshot, rules: LeaseRules) -> Iterator[Finding]:
    submissions = {submission["_id"]: submission for submission in snapshot.submissions}
    for job in snapshot.jobs:
        for violation in (
            *check_document(job, rules),
            *check_pair(job, submissions.get(job["_id"])),
        ):
            yield finding("broken_invariant", job["_id"], str(violation))


def _totals(snapshot: Snapshot) -> Iterator[Finding]:
    """Counters and standings are what the submissions add up to."""
    for user in snapshot.users:
        for name, value in ledger.counters(user["_id"], snapshot.submissions).items():
            if user.get(name) != value:
                yield finding("wrong_totals", user["_id"], f"{name} {user.get(name)}, not {value}")
    kept = {one["_id"]: one["problems"] for one in snapshot.student_status}
    for homework in snapshot.homeworks:
        # Who has left has an empty standing, or none.
        for user in snapshot.users:
            key = f"{homework['_id']}/{user['_id']}"
            expected = ledger.entries(homework, user["_id"], snapshot.submissions)
            if kept.get(key, {}) != expected:
                yield finding("wrong_totals", key, f"{kept.get(key)}, not {expected}")


def _leftovers(snapshot: Snapshot) -> Iterator[Finding]:
    """Nothing is pending, nothing is due."""
    for job in snapshot.jobs:
        due = [name for name in ("mark_due", "restore_due") if job.get(name) is not None]
        if job["state"] != "done" or due:
            yield finding("left_over", job["_id"], f"{job['state']} {due}")
