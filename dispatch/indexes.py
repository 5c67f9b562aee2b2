"""The indexes of the queue, each with what it serves or prevents."""

from __future__ import annotations

from pymongo import ASCENDING, DESCENDING, IndexModel

OUTGROWN = ("held_by", "line")
"""Names of indexes that an older version made and a newer one of the same use replaced."""

INDEXES = [
    # Resends and aborts name the job, not the submission. Unique: a job id is one job.
    IndexModel([("job_id", ASCENDING)], name="job_id", unique=True),
    # The claim: for each language the head of the line, in order. What pauses after a failure is
    # passed over in the index.
    IndexModel(
        [
            ("state", ASCENDING),
            ("language", ASCENDING),
            ("priority", DESCENDING),
            ("queued_at", ASCENDING),
            ("not_before", ASCENDING),
        ],
        name="line_and_pauses",
    ),
    # Pauses after failures that are just over.
    IndexModel(
        [("not_before", ASCENDING)],
        name="not_before",
        partialFilterExpression={"not_before": {"$exists": True}},
    ),
    # The longest waiting one. Of what waits alone: the others need not keep it up to date.
    IndexModel(
        [("state", ASCENDING), ("queued_at", ASCENDING)],
        name="oldest",
        partialFilterExpression={"state": "pending"},
    ),
    # Reclaim and exhaustion: a seek to the leases whose deadline has passed or is absent.
    IndexModel([("state", ASCENDING), ("lease_deadline", ASCENDING)], name="deadlines"),
    # A late complete of a replaced job is told so.
    IndexModel([("replaced_ids", ASCENDING)], name="replaced_ids"),
    # Two requests of one runner under one claim_id get one lease, not two. Also what a runner
    # holds (its prefix).
    IndexModel(
        [("leased_by", ASCENDING), ("claim_id", ASCENDING)],
        name="claim_id",
        unique=True,
        partialFilterExpression={"claim_id": {"$type": "string"}},
    ),
    # What a runner holds now, for heartbeats and lists; when it last judged something.
    IndexModel(
        [("leased_by", ASCENDING), ("state", ASCENDING), ("done_at", ASCENDING)], name="by_runner"
    ),
    # Rejudges whose mark on the submission is still missing.
    IndexModel(
        [("mark_due", ASCENDING)],
        name="mark_due",
        partialFilterExpression={"mark_due": {"$gt": 0}},
    ),
    # Cancelled rejudges whose submission may not show its result again yet.
    IndexModel(
        [("restore_due", ASCENDING)],
        name="restore_due",
        partialFilterExpression={"restore_due": {"$gt": 0}},
    ),
    # Jobs that only a human can put right: few or none, and counted for every scrape.
    IndexModel(
        [("given_up_at", ASCENDING)],
        name="given_up",
        partialFilterExpression={"given_up_at": {"$exists": True}},
    ),
]
