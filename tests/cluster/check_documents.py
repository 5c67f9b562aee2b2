"""What must be true of the documents after chaos, beside the totals and what was acknowledged.

Pure: findings about jobs beside their submissions, about blobs, bulk rejudges and homeworks.
"""

from __future__ import annotations

from collections.abc import Iterator

from mongo.rejudge_items import DONE, UNSETTLED
from mongo.rejudging import ACTIVE
from tests.cluster.snapshot import Document, Finding, Retention, Snapshot, epoch_s, finding
from tests.cluster.wire import expected_of

PENDING = -1
REPLACED_IDS_KEPT = 8


def pairs(snapshot: Snapshot, retention: Retention | None) -> Iterator[Finding]:
    """A submission and its job say the same; there is no one without the other."""
    jobs = {job["_id"]: job for job in snapshot.jobs}
    for submission in snapshot.submissions:
        if submission["status"] == PENDING:
            yield finding("left_over", submission["_id"], "pending")
        job = jobs.get(submission["_id"])
        if job is not None:
            yield from _pair(job, submission)
            continue
        result = submission.get("result") or {}
        done_at = epoch_s(result["judged_at"]) if "judged_at" in result else snapshot.at
        if retention is None or not retention.may_take(submission["_id"], done_at, snapshot.at):
            yield finding("left_over", submission["_id"], "a submission without a job")
    known = {submission["_id"] for submission in snapshot.submissions}
    for job_id in jobs.keys() - known:
        yield finding("left_over", job_id, "a job without a submission")


def _pair(job: Document, submission: Document) -> Iterator[Finding]:
    """What a verdict that has landed left on both. (Fences: also `dispatch.invariants`.)"""
    if job["state"] != "done" or job.get("outcome") != "verdict":
        return
    if submission["fence"] != job["fence"]:
        yield finding(
            "broken_invariant",
            job["_id"],
            f"landed under fence {job['fence']}, the submission has {submission['fence']}",
        )
    if job.get("preview"):
        return
    result = submission.get("result") or {}
    if result.get("job_id") != job["job_id"]:
        yield finding(
            "broken_invariant",
            job["_id"],
            f"the verdict is of job {result.get('job_id')}, not of {job['job_id']}",
        )


def blobs(snapshot: Snapshot) -> Iterator[Finding]:
    """Code and outputs that something refers to are there."""
    for submission in snapshot.submissions:
        for what, kept in (
            ("code", submission.get("code_blob")),
            ("outputs", (submission.get("result") or {}).get("outputs_blob")),
        ):
            if isinstance(kept, str) and kept not in snapshot.blobs:
                yield finding("lost_blob", submission["_id"], f"{what} {kept} are gone")
    for item in snapshot.rejudge_items:
        kept = (item.get("result") or {}).get("outputs_blob")
        if isinstance(kept, str) and kept not in snapshot.blobs:
            yield finding("lost_blob", item["submission"], f"{item['_id']}: {kept} is gone")


def rejudges(snapshot: Snapshot, programs: dict[str, str]) -> Iterator[Finding]:
    """Bulk rejudges have ended, every item of theirs is settled, and no verdict has changed."""
    states = {}
    for rejudge in snapshot.rejudges:
        states[rejudge["_id"]] = rejudge["state"]
        if rejudge["state"] in ACTIVE or rejudge.get("held"):
            held = ", held" if rejudge.get("held") else ""
            yield finding(
                "left_over", rejudge["_id"], f"a rejudge that is {rejudge['state']}{held}"
            )
    for item in snapshot.rejudge_items:
        state = states.get(item["rejudge"])
        if item["state"] in UNSETTLED and state not in ACTIVE:
            yield finding("left_over", item["_id"], f"{item['state']} in a rejudge that is {state}")
        is_open = item["state"] == DONE and item.get("decided") is None
        if is_open and state in ("applied", "discarded"):
            yield finding("left_over", item["_id"], f"undecided in a rejudge that is {state}")
        code = programs.get(item["submission"])
        if item["state"] == DONE and code is not None:
            after = {name: item["after"][name] for name in ("status", "score")}
            if after != expected_of(code.encode()):
                yield finding("wrong_verdict", item["submission"], f"{item['_id']}: {after}")


def homeworks(diary: list[Document], snapshot: Snapshot) -> Iterator[Finding]:
    """The last edit that was acknowledged is what stands, and nothing is left to recompute."""
    kept = {homework["_id"]: homework for homework in snapshot.homeworks}
    for homework in snapshot.homeworks:
        if homework.get("recompute_due"):
            yield finding("left_over", homework["_id"], "recompute_due")
        if homework.get("departed"):
            yield finding("left_over", homework["_id"], f"departed {homework['departed']}")
    for entry in diary:
        if entry["kind"] != "last_edit":
            continue
        homework = kept.get(entry["homework"], {})
        stands = {name: homework.get(name) for name in ("penalty", "students", "problem_ids")}
        if entry["status"] != 200 or {name: entry[name] for name in stands} != stands:
            yield finding("lost_edit", entry["homework"], f"{entry} and {stands}")


def may_be_gone(
    entry: Document, job: Document | None, snapshot: Snapshot, retention: Retention | None
) -> bool:
    """Tell whether the job that a runner was told has landed may have been retired by now.

    Gone altogether; or its submission has been rejudged since, under a job that knows of none
    before it.
    """
    if retention is None:
        return False
    until = snapshot.at if job is None else epoch_s(job["history"][0]["at"])
    return retention.may_take(entry["submission"], entry["at"], until)
