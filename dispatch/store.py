"""Every filter, update and index of the queue: one function per edge.

Guarantees: an edge is one conditional write on one document. Its guard is in the filter, its
effect (the history entry included) in the update, and it returns the job as it then stands, or
None when the guard did not hold. No function here decides what None means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, OperationFailure

from dispatch import states
from dispatch.concerns import DURABLE, LOCAL, MAJORITY, proven
from dispatch.contract import HandedOut, Language
from dispatch.indexes import INDEXES, OUTGROWN
from dispatch.lease import LeaseRules
from dispatch.records import Job
from dispatch.retry import LeaseEnd, Retry, ended_by, table
from dispatch.states import HELD, OPEN, Edge, Outcome, State
from dispatch.unreadable import Unreadable, UnreadableDocument

Document = dict[str, Any]

HELD_VALUES = [state.value for state in HELD]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HISTORY_MAX = 20
INDEX_NOT_FOUND = 27
WRONG_TYPE = frozenset({2, 14})
"""What the server says of an update of a field that is not of the update's type."""
REPLACED_IDS_MAX = 8
OWNER_FIELDS = ("leased_by", "lease_token", "claim_id", "leased_at", "renew_until")
LEASE_FIELDS = (*OWNER_FIELDS, "lease_deadline", "landing_deadline", "invalid_result")
OF_ONE_JUDGING = (
    *LEASE_FIELDS,
    "handed_out",
    "outcome",
    "done_at",
    "avoid_runner",
    "avoid_until",
    "failed_by",
    "failed_until",
    "not_before",
    "tried_by",
    "tried",
    "first_failed_at",
    "given_back",
)
"""What a fresh judging begins without."""
REPAIRS = ("repairs", "repaired_at", "given_up_at", "given_up_why")
"""What tells of repairs; a rejudge begins without it."""


def passed_or_absent(now: datetime) -> Document:
    """I2 as a filter on a deadline. (`$lte` alone would miss documents without one.)"""
    return {"$not": {"$gt": now}}


LINE_ORDER = [("priority", -1), ("queued_at", 1)]
ORPHANS_ORDER = [("lease_deadline", 1)]


def waiting(
    now: datetime,
    languages: Sequence[int],
    without: Iterable[int] = (),
    held_rejudges: Sequence[str] = (),
    held_priority: int = 0,
) -> Document:
    """Return the filter of jobs that a runner for `languages` may claim."""
    return {
        "state": State.PENDING.value,
        "language": {"$in": list(languages)},
        "not_before": passed_or_absent(now),
        **_without_problems(without),
        **_without_held(held_rejudges, held_priority),
    }


def orphaned(
    now: datetime, rules: LeaseRules, languages: Sequence[int], without: Iterable[int] = ()
) -> Document:
    """Return the filter of jobs that such a runner may reclaim."""
    return {
        "state": {"$in": HELD_VALUES},
        "lease_deadline": passed_or_absent(now),
        "not_before": passed_or_absent(now),
        "language": {"$in": list(languages)},
        **_tries_left(now, rules),
        **_without_problems(without),
    }


def _tries_left(now: datetime, rules: LeaseRules) -> Document:
    """Match what has attempts left, or has had its pause and is not to be given up yet."""
    return {
        "$or": [
            {"attempts": {"$not": {"$gte": rules.max_attempts}}},
            {
                "tried": {"$not": {"$gte": rules.give_up_runners}},
                "first_failed_at": {"$not": {"$lte": now - timedelta(seconds=rules.give_up_s)}},
                "lease_deadline": {
                    "$gt": now - timedelta(seconds=rules.give_up_s),
                    "$lte": now - timedelta(seconds=rules.overtime_pause_s),
                },
            },
        ]
    }


def given_up(now: datetime, rules: LeaseRules) -> Document:
    """Return the filter of orphans that are to land a judge error. As `retry.may_give_up`."""
    long_ago = now - timedelta(seconds=rules.give_up_s)
    return {
        "state": {"$in": HELD_VALUES},
        "lease_deadline": passed_or_absent(now),
        "attempts": {"$gte": rules.max_attempts},
        "$or": [
            {"tried": {"$gte": rules.give_up_runners}},
            {"first_failed_at": {"$lte": long_ago}},
            {"lease_deadline": passed_or_absent(long_ago)},
        ],
    }


def taken_under(runner_id: str, claim_id: str) -> Document:
    """Return the filter of the job that `runner_id` took under `claim_id`, while it is leased."""
    # The type is what the partial index asks for: without it, all that the runner ever did
    # would be looked through.
    return {"leased_by": runner_id, "claim_id": {"$eq": claim_id, "$type": "string"}}


def in_force(runner_id: str, now: datetime) -> Document:
    """Return the filter of the leases of `runner_id` whose deadline has not passed."""
    return {
        "leased_by": runner_id,
        "state": {"$in": HELD_VALUES},
        "lease_deadline": {"$gt": now},
    }


def stored(number: int) -> Any:
    """Match a field that holds `number`; 0 is also what a document without the field holds."""
    return number or {"$in": _as_stored(number)}


def _as_stored(number: int) -> list[int | None]:
    return [number] if number else [0, None]


class JobStore:
    """The `jobs` collection. Its reads are of what a majority has: see `dispatch.concerns`."""

    def __init__(
        self, database: Database[Document], rules: LeaseRules, unreadable: Unreadable | None = None
    ) -> None:
        self.jobs: Collection[Document] = database.get_collection("jobs").with_options(
            write_concern=DURABLE, read_concern=MAJORITY
        )
        self.newest = self.jobs.with_options(read_concern=LOCAL)
        """For a claim's look at the line alone: its write guards the very job that it took there,
        and what others have just taken is not to be run after."""
        self.unreadable = unreadable or Unreadable(database)
        self.rules = rules

    def create_indexes(self) -> None:
        """Create what is missing. Safe to repeat, and for several processes at once."""
        self.jobs.create_indexes(INDEXES)
        for name in OUTGROWN:
            if name in self.jobs.index_information():
                _drop_index(self.jobs, name)

    # -- reads ---------------------------------------------------------------------------

    def read(self, document: Mapping[str, Any] | None) -> Job | None:
        """Read a job document; None: there is none, or none that can be read."""
        if document is None:
            return None
        try:
            return Job.from_document(document)
        except UnreadableDocument as error:
            self.unreadable.met(self.jobs.name, document.get("_id"), str(error))
            return None

    def read_all(self, documents: Iterable[Mapping[str, Any]]) -> list[Job]:
        """Read job documents, those left out that cannot be read."""
        return [job for job in map(self.read, documents) if job is not None]

    def past_unreadable(self, wanted: Document) -> Document:
        """Return a filter for what is `wanted`, but for jobs that are known to be unreadable."""
        return self.unreadable.past(self.jobs.name, wanted)

    def get(self, submission_id: str) -> Job | None:
        """Return the job of a submission."""
        return self.read(self.jobs.find_one({"_id": submission_id}))

    def by_job_id(self, job_id: str) -> Job | None:
        """Return the job whose current id is `job_id`."""
        return self.read(self.jobs.find_one({"job_id": job_id}))

    def confirmed(self, job_id: str) -> tuple[Job | None, bool]:
        """Return the job whose current id is `job_id`, and whether that id was replaced.

        With proof that no newer primary knows better: for what a runner is told for good.

        Raises:
            PyMongoError: there is no such proof, for example as this primary has been cut off.
        """
        with proven(self.jobs.database) as session:
            job = self.read(self.jobs.find_one({"job_id": job_id}, session=session))
            if job is not None:
                return job, False
            replaced = self.jobs.find_one({"replaced_ids": job_id}, {"_id": 1}, session=session)
            return None, replaced is not None

    def by_claim_id(self, runner_id: str, claim_id: str) -> Job | None:
        """Return the job that `runner_id` took under `claim_id`, if it is still its lease."""
        return self.read(self.jobs.find_one(taken_under(runner_id, claim_id)))

    def pending(
        self,
        now: datetime,
        languages: Sequence[int],
        without: Iterable[int],
        limit: int,
        *,
        held_rejudges: Sequence[str] = (),
        held_priority: int = 0,
        not_failed_by: str | None = None,
    ) -> list[Job]:
        """Return the head of the line, best first, without the problems in `without`.

        Nor jobs of `held_rejudges` at `held_priority` or below: one of them that also waits for
        itself (handed in lately, rejudged alone, moved to the front) has a better priority.
        """
        wanted = waiting(now, languages, without, held_rejudges, held_priority)
        if not_failed_by is not None:
            wanted["failed_by"] = {"$ne": not_failed_by}
        found = self.newest.find(self.past_unreadable(wanted))
        return self.read_all(found.sort(LINE_ORDER).limit(limit))

    def orphans(
        self, now: datetime, languages: Sequence[int], without: Iterable[int], limit: int
    ) -> list[Job]:
        """Return leases that are over and may be taken again, the longest over first."""
        wanted = orphaned(now, self.rules, languages, without)
        found = self.newest.find(self.past_unreadable(wanted))
        return self.read_all(found.sort(ORPHANS_ORDER).limit(limit))

    def pausing(self, now: datetime, limit: int) -> list[Job]:
        """Return waiting jobs that nobody is handed yet, the next to be first."""
        wanted = {"state": State.PENDING.value, "not_before": {"$gt": now}}
        found = self.jobs.find(self.past_unreadable(wanted))
        return self.read_all(found.sort([("not_before", 1)]).limit(limit))

    def pause_over(self, now: datetime, within_s: float, limit: int) -> list[Job]:
        """Return waiting jobs whose pause has ended within the last `within_s` seconds."""
        lately = {"$gt": now - timedelta(seconds=within_s), "$lte": now}
        wanted = {"state": State.PENDING.value, "not_before": lately}
        return self.read_all(self.newest.find(self.past_unreadable(wanted)).limit(limit))

    def exhausted(self, now: datetime, limit: int) -> list[Job]:
        """Return leases that are over and are to be given up, the longest over first."""
        found = self.jobs.find(self.past_unreadable(given_up(now, self.rules)))
        return self.read_all(found.sort([("lease_deadline", 1)]).limit(limit))

    def held_by(self, runner_id: str, job_ids: Sequence[str]) -> set[str]:
        """Return those of `job_ids` that `runner_id` holds a lease on, with proof.

        As `confirmed`: a runner stops working on what is missing here.

        Raises:
            PyMongoError: there is no proof, for example as this primary has been cut off.
        """
        wanted = {
            "leased_by": runner_id,
            "job_id": {"$in": list(job_ids)},
            "state": {"$in": HELD_VALUES},
        }
        with proven(self.jobs.database) as session:
            found = self.jobs.find(wanted, {"job_id": 1}, session=session)
            return {document["job_id"] for document in found}

    def last_judged_at(self, runner_id: str, now: datetime) -> datetime | None:
        """Return when the runner last judged a job. Those rejudged since are not counted."""
        # The bound keeps the sort on the index.
        last = self.jobs.find_one(
            {
                "leased_by": runner_id,
                "state": State.DONE.value,
                "done_at": {"$lte": now},
                "outcome": Outcome.VERDICT.value,
            },
            {"done_at": 1},
            sort=[("done_at", -1)],
        )
        return None if last is None else last["done_at"]

    def was_judged(
        self, problem_id: int, testdata_sha256: str, since: datetime, by: Sequence[str]
    ) -> bool:
        """Tell whether one of these runners has judged a job with that test data since then."""
        judged = {
            "leased_by": {"$in": list(by)},
            "state": State.DONE.value,
            "done_at": {"$gt": since},
            "outcome": Outcome.VERDICT.value,
            "problem_id": problem_id,
            "handed_out.testdata_sha256": testdata_sha256,
        }
        return self.jobs.find_one(judged, {"_id": 1}) is not None

    def longest_lease_since(self, now: datetime) -> datetime | None:
        """Return when the oldest lease that is still in force was taken."""
        oldest = self.jobs.find_one(
            {
                "state": {"$in": HELD_VALUES},
                "lease_deadline": {"$gt": now},
                "leased_at": {"$gt": EPOCH},
            },
            {"leased_at": 1},
            sort=[("leased_at", 1)],
        )
        return None if oldest is None else oldest["leased_at"]

    def marks_due(self, limit: int) -> list[Job]:
        """Return rejudged jobs whose mark on the submission may be missing."""
        return self.read_all(
            self.jobs.find(self.past_unreadable({"mark_due": {"$gt": 0}})).limit(limit)
        )

    def restores_due(self, limit: int) -> list[Job]:
        """Return cancelled jobs whose submission may not show its result again yet."""
        return self.read_all(
            self.jobs.find(self.past_unreadable({"restore_due": {"$gt": 0}})).limit(limit)
        )

    def some(self, submission_ids: Sequence[str]) -> dict[str, Job]:
        """Return submission id to job, of those of `submission_ids` that have one."""
        found = self.jobs.find({"_id": {"$in": list(submission_ids)}})
        return {job.submission_id: job for job in self.read_all(found)}

    def highest_priority(self, languages: Sequence[int], besides: str) -> int | None:
        """Return the best priority of those that wait, the submission `besides` left out."""
        first = self.jobs.find_one(
            {
                "state": State.PENDING.value,
                "language": {"$in": list(languages)},
                "_id": {"$ne": besides},
            },
            {"priority": 1},
            sort=[("priority", -1)],
        )
        return None if first is None else _whole(first.get("priority"))

    def ahead_of(self, job: Job, places_max: int) -> int:
        """Return how many waiting jobs come before a waiting one, counting to `places_max`."""
        waiting = {
            "state": State.PENDING.value,
            "language": {"$in": [int(language) for language in Language]},
        }
        # Two counts, each a range of the line's index.
        better = {**waiting, "priority": {"$gt": job.priority}}
        earlier = {**waiting, "priority": job.priority, "queued_at": {"$lt": job.queued_at}}
        ahead = self.jobs.count_documents(better, limit=places_max)
        if ahead < places_max:
            ahead += self.jobs.count_documents(earlier, limit=places_max - ahead)
        return ahead

    def depth(self) -> list[Document]:
        """Return how many jobs are in each state at each priority, done ones aside."""
        found = self.jobs.aggregate(
            [
                {"$match": {"state": {"$in": [state.value for state in OPEN]}}},
                {
                    "$group": {
                        "_id": {"state": "$state", "priority": "$priority"},
                        "count": {"$sum": 1},
                    }
                },
                {"$sort": {"_id.state": 1, "_id.priority": -1}},
            ]
        )
        counts: dict[tuple[str, int], int] = {}
        for group in found:
            # Where the priority cannot be read, it is counted as one that is absent.
            place = (group["_id"]["state"], _whole(group["_id"].get("priority")))
            counts[place] = counts.get(place, 0) + group["count"]
        return [
            {"state": state, "priority": priority, "count": count}
            for (state, priority), count in sorted(
                counts.items(), key=lambda entry: (entry[0][0], -entry[0][1])
            )
        ]

    def oldest_pending(self) -> datetime | None:
        """Return since when the longest waiting job has been in line."""
        oldest = self.jobs.find_one(
            # The bound leaves out what is no date.
            {"state": State.PENDING.value, "queued_at": {"$gt": EPOCH}},
            {"queued_at": 1},
            sort=[("queued_at", 1)],
        )
        return None if oldest is None else oldest["queued_at"]

    # -- edges ---------------------------------------------------------------------------

    def enqueue(
        self,
        *,
        submission_id: str,
        job_id: str,
        problem_id: int,
        language: int,
        priority: int,
        fence: int,
        now: datetime,
        rejudge_id: str | None = None,
        preview: bool = False,
        mark_due: bool = False,
    ) -> bool:
        """Insert the job unless the submission has one. Tell whether it was inserted.

        `mark_due`: the submission has yet to carry its fence and id.

        Raises:
            DuplicateKeyError: `job_id` belongs to another submission.
        """
        document = {
            "_id": submission_id,
            "job_id": job_id,
            "state": State.PENDING.value,
            "problem_id": problem_id,
            "language": language,
            "priority": priority,
            "queued_at": now,
            "fence": fence,
            "attempts": 0,
            "drain_refunds": 0,
            "replaced_ids": [],
            **_given(rejudge_id=rejudge_id, preview=preview or None),
            **({"mark_due": fence} if mark_due else {}),
            "history": [_entry(event="enqueue", now=now, job_id=job_id, fence=fence, attempts=0)],
        }
        try:
            self.jobs.insert_one(document)
        except DuplicateKeyError as error:
            # Not asked of what a majority has: the job that was met may be on its way there.
            met = (error.details or {}).get("keyValue")
            if met is None:  # the in-process store does not say
                met = {} if self.get(submission_id) else {"job_id": job_id}
            if "job_id" in met:
                raise
            return False
        return True

    def claim(
        self,
        job: Job,
        *,
        runner_id: str,
        lease_token: str,
        claim_id: str | None,
        handed_out: HandedOut,
        now: datetime,
    ) -> Job | None:
        """Lease a pending job, if it is still as `job` says.

        Raises:
            DuplicateKeyError: this runner took another job under `claim_id`.
        """
        return self._take(states.CLAIM, {}, job, runner_id, lease_token, claim_id, handed_out, now)

    def reclaim(
        self,
        job: Job,
        *,
        runner_id: str,
        lease_token: str,
        claim_id: str | None,
        handed_out: HandedOut,
        now: datetime,
    ) -> Job | None:
        """Lease an orphan, if its deadline has still passed and it may be tried again.

        Raises:
            DuplicateKeyError: this runner took another job under `claim_id`.
        """
        guard = {
            "lease_deadline": passed_or_absent(now),
            "not_before": passed_or_absent(now),
            **_tries_left(now, self.rules),
        }
        return self._take(
            states.RECLAIM, guard, job, runner_id, lease_token, claim_id, handed_out, now
        )

    def _take(
        self,
        edge: Edge,
        guard: Document,
        job: Job,
        runner_id: str,
        lease_token: str,
        claim_id: str | None,
        handed_out: HandedOut,
        now: datetime,
    ) -> Job | None:
        left = _left_without_result(job, now, self.rules) if edge is states.RECLAIM else {}
        tried_by = left.get("tried_by", job.tried_by)
        # What is tried beyond the attempts costs none: see `retry.decide`.
        cost = 1 if job.attempts < self.rules.max_attempts else 0
        taken = {
            **left,
            "leased_by": runner_id,
            "lease_token": lease_token,
            "leased_at": now,
            "lease_deadline": self.rules.lease_deadline(now),
            "renew_until": self.rules.renew_until(now, handed_out.tasks),
            "handed_out": handed_out.to_document(),
            "tried": len({*tried_by, runner_id}),
        }
        gone = [
            *("landing_deadline", "avoid_runner", "avoid_until", "given_back"),
            *("not_before", "invalid_result"),
        ]
        if claim_id is None:
            gone.append("claim_id")
        else:
            taken["claim_id"] = claim_id
        return self._transition(
            edge,
            job,
            # The attempts, too: an abort moves them and leaves the fence, and what was seen of the
            # line may have been taken back.
            guard={
                **guard,
                "fence": stored(job.fence),
                "attempts": {"$in": _as_stored(job.attempts)},
            },
            set_=taken,
            unset=gone,
            inc={"attempts": cost, "fence": 1},
            fence=job.fence + 1,
            runner_id=runner_id,
            now=now,
            reason=ended_by(job) if edge is states.RECLAIM else None,
            from_runner=job.leased_by if edge is states.RECLAIM else None,
        )

    def renew(self, runner_id: str, job_ids: Sequence[str], now: datetime) -> int:
        """Push out the deadlines of those of `job_ids` that `runner_id` holds; return how many.

        Not past their ceilings, and not kept in the histories: renewals would push everything else
        out of them.
        """
        return self.jobs.update_many(
            {
                "leased_by": runner_id,
                "job_id": {"$in": list(job_ids)},
                "state": {"$in": HELD_VALUES},
                "renew_until": {"$not": {"$lte": now}},
            },
            {"$set": {"lease_deadline": self.rules.lease_deadline(now)}},
        ).matched_count

    def end_leases(self, runner_id: str, now: datetime) -> int:
        """Have the deadlines of all that `runner_id` was leased pass now; return how many did."""
        return self.jobs.update_many(
            {**in_force(runner_id, now), "state": State.LEASED.value},
            {"$set": {"lease_deadline": now}},
        ).modified_count

    def begin_complete(
        self, job: Job, *, runner_id: str, lease_token: str | None, now: datetime
    ) -> Job | None:
        """Begin a landing for the owner; also in place of a landing past its deadline."""
        return self._transition(
            states.COMPLETE_BEGINS,
            job,
            guard={
                **_owner(runner_id, lease_token),
                "fence": stored(job.fence),
                "$or": [
                    {"state": State.LEASED.value},
                    {"landing_deadline": passed_or_absent(now)},
                ],
            },
            set_={
                "landing_deadline": self.rules.landing_deadline(now),
                "lease_deadline": self.rules.lease_deadline(now),
            },
            inc={"fence": 1},
            fence=job.fence + 1,
            runner_id=runner_id,
            now=now,
        )

    def end_complete(self, job: Job, *, outcome: Outcome, now: datetime) -> Job | None:
        """End the landing that `job` (its fence) began."""
        return self._end(states.COMPLETE_ENDS, job, outcome, now)

    def end_exhaust(self, job: Job, *, outcome: Outcome, now: datetime) -> Job | None:
        """End the judge error's landing that `job` (its fence) began."""
        return self._end(states.EXHAUST_ENDS, job, outcome, now)

    def _end(self, edge: Edge, job: Job, outcome: Outcome, now: datetime) -> Job | None:
        return self._transition(
            edge,
            job,
            guard={"fence": stored(job.fence)},
            set_={"outcome": outcome.value, "done_at": now},
            unset=["landing_deadline"],
            fence=job.fence,
            runner_id=job.leased_by,
            now=now,
            note=outcome.value,
        )

    def restore(
        self,
        job: Job,
        *,
        now: datetime,
        note: str,
        invalid_result: bool = False,
        not_before: datetime | None = None,
    ) -> Job | None:
        """Give the job back to its owner after the landing that `job` began has failed.

        `not_before`: when it may be reclaimed, should the lease run out.
        """
        noted = _given(not_before=not_before, invalid_result=invalid_result or None)
        deadline = self.rules.lease_deadline(now)
        if job.renew_until is not None:
            # Results that fail again and again are no renewals past the ceiling.
            deadline = min(deadline, max(job.renew_until, now))
        return self._transition(
            states.COMPLETE_RESTORE,
            job,
            guard={"fence": stored(job.fence)},
            set_={"lease_deadline": deadline, **noted},
            unset=["landing_deadline"],
            fence=job.fence,
            runner_id=job.leased_by,
            now=now,
            note=note,
        )

    def give_back(
        self,
        job: Job,
        *,
        runner_id: str,
        lease_token: str | None,
        end: LeaseEnd,
        retry: Retry,
        now: datetime,
    ) -> Job | None:
        """Take a job back from its holder, to the tail of its line, as `retry` says."""
        set_: Document = {"avoid_runner": runner_id, "avoid_until": retry.others_first_until}
        if retry.tried:
            set_ = {
                **_tried(job, runner_id, now),
                "failed_by": [*dict.fromkeys([*job.failed_by, runner_id])],
                "failed_until": retry.others_first_until,
            }
        inc = {"attempts": -1} if retry.refunded else {}
        if retry.counts_as_drain:
            inc["drain_refunds"] = 1
        return self._transition(
            states.ABORT,
            job,
            # The decision was made on these.
            guard={
                **_owner(runner_id, lease_token),
                "fence": stored(job.fence),
                "attempts": {"$in": _as_stored(job.attempts)},
            },
            set_={
                **set_,
                **_given(not_before=retry.not_before),
                "queued_at": now,
                "given_back": {
                    "runner_id": runner_id,
                    "lease_token": job.lease_token,
                    "reason": end.value,
                },
            },
            unset=[
                *LEASE_FIELDS,
                "handed_out",
                *(["not_before"] if retry.not_before is None else []),
            ],
            inc=inc,
            fence=job.fence,
            runner_id=runner_id,
            now=now,
            reason=end,
            refunded=retry.refunded,
        )

    def begin_exhaust(self, job: Job, *, now: datetime) -> Job | None:
        """Take a job whose last lease is over from its owner, to land a judge error."""
        wanted = given_up(now, self.rules)
        guard = {name: wanted[name] for name in ("lease_deadline", "attempts", "$or")}
        return self._exhaust(
            job,
            guard,
            now,
            reason=ended_by(job),
            from_runner=job.leased_by,
            left={"first_failed_at": job.first_failed_at or job.lease_deadline or now},
        )

    def begin_exhaust_by_abort(
        self, job: Job, *, runner_id: str, lease_token: str | None, end: LeaseEnd, now: datetime
    ) -> Job | None:
        """Take a job that is given back and given up from its holder, to land a judge error."""
        guard = {
            **_owner(runner_id, lease_token),
            "attempts": {"$gte": self.rules.max_attempts},
        }
        return self._exhaust(
            job,
            guard,
            now,
            reason=end,
            runner_id=runner_id,
            only_from=State.LEASED,
            left=_tried(job, runner_id, now),
        )

    def _exhaust(
        self,
        job: Job,
        guard: Document,
        now: datetime,
        *,
        reason: LeaseEnd,
        left: Document,
        runner_id: str | None = None,
        from_runner: str | None = None,
        only_from: State | None = None,
    ) -> Job | None:
        # Nobody renews this landing: when it dies, the sweep begins it again after its deadline.
        deadline = self.rules.landing_deadline(now)
        return self._transition(
            states.EXHAUST_BEGINS,
            job,
            guard={**guard, "fence": stored(job.fence)},
            set_={**left, "landing_deadline": deadline, "lease_deadline": deadline},
            unset=[*OWNER_FIELDS],
            inc={"fence": 1},
            fence=job.fence + 1,
            runner_id=runner_id,
            now=now,
            reason=reason,
            from_runner=from_runner,
            only_from=only_from,
        )

    def rejudge_pending(
        self,
        job: Job,
        *,
        priority: int,
        rejudge_id: str | None,
        now: datetime,
        submission_fence: int = 0,
    ) -> Job | None:
        """Keep a waiting job for the rejudge: same id, same place, the better priority.

        A preview's job becomes one that counts. Its fence is above the job's and the submission's.
        """
        fence = max(job.fence, submission_fence) + 1
        return self._transition(
            states.REJUDGE_PENDING,
            job,
            guard={"fence": stored(job.fence), **_other_rejudge(rejudge_id)},
            set_={"fence": fence, "mark_due": fence, **_given(rejudge_id=rejudge_id)},
            unset=["preview", *REPAIRS],
            max_={"priority": priority},
            fence=fence,
            runner_id=None,
            now=now,
        )

    def rejudge(
        self,
        job: Job,
        *,
        job_id: str,
        priority: int,
        rejudge_id: str | None,
        now: datetime,
        preview: bool = False,
        submission_fence: int = 0,
    ) -> Job | None:
        """Replace a job that is no longer waiting by a new one with a fresh budget.

        Its fence is above the job's and the submission's. A preview's leaves the submission as it
        is, so it owes it no mark.
        """
        fence = max(job.fence, submission_fence) + 1
        # A submission still being judged keeps its better place: a bulk rejudge must not send a
        # fresh submission to the back.
        kept = priority if job.state is State.DONE else max(priority, job.priority)
        return self._transition(
            states.REJUDGE,
            job,
            guard={"fence": stored(job.fence), **_other_rejudge(rejudge_id)},
            set_={
                "job_id": job_id,
                "priority": kept,
                "queued_at": now,
                "attempts": 0,
                "drain_refunds": 0,
                "fence": fence,
                **({"preview": True} if preview else {"mark_due": fence}),
                **_given(rejudge_id=rejudge_id),
            },
            unset=[
                *OF_ONE_JUDGING,
                *REPAIRS,
                *(["mark_due"] if preview else ["preview"]),
                *([] if rejudge_id else ["rejudge_id"]),
            ],
            push=_replaced(job.job_id),
            fence=fence,
            new_job_id=job_id,
            runner_id=None,
            now=now,
            note=f"replaces {job.job_id}",
            only_from=job.state,
            attempts=0,
        )

    def cancel(self, job: Job, *, only_from: State | None, note: str, now: datetime) -> Job | None:
        """Take a rejudge back from whoever has it. The caller knows that a result landed before.

        Until `restored`, the job says that the submission is to show its result again; a mark
        that is still missing is not wanted any more.
        """
        return self._transition(
            states.CANCEL,
            job,
            guard={"fence": stored(job.fence)},
            set_={
                "outcome": Outcome.CANCELLED.value,
                "done_at": now,
                "restore_due": job.fence + 1,
            },
            unset=[*LEASE_FIELDS, "handed_out", "given_back", "mark_due"],
            inc={"fence": 1},
            fence=job.fence + 1,
            runner_id=None,
            now=now,
            note=note,
            only_from=only_from,
        )

    def restored(self, submission_id: str, *, fence: int) -> None:
        """Note that the submission shows its result again under that fence, or a newer one."""
        self.jobs.update_one(
            {"_id": submission_id, "restore_due": {"$lte": fence}},
            {"$unset": {"restore_due": ""}},
        )

    def move_to_front(self, job: Job, *, priority: int, now: datetime) -> Job | None:
        """Give a waiting job that priority, unless it has a better one; its pause is over."""
        return self._transition(
            states.MOVE_TO_FRONT,
            job,
            guard={"fence": stored(job.fence)},
            max_={"priority": priority},
            unset=["not_before"],
            fence=job.fence,
            runner_id=None,
            now=now,
        )

    def marked(self, submission_id: str, *, job_id: str, fence: int) -> None:
        """Note that the rejudge with that fence, or a newer one, is marked on the submission.

        Not for a still newer rejudge: its own mark may be missing.
        """
        self.jobs.update_one(
            {"_id": submission_id, "job_id": job_id, "mark_due": {"$lte": fence}},
            {"$unset": {"mark_due": ""}},
        )

    def repair(
        self,
        seen: Mapping[str, Any],
        *,
        job_id: str,
        problem_id: int,
        language: int,
        fence: int,
        preview: bool,
        now: datetime,
        note: str,
    ) -> Job | None:
        """Replace a job that leads to no verdict by a fresh one under `fence`, above all others.

        `seen` is the raw document as it was found: what is broken in it cannot be read as a job.
        `preview`: it stays one, and owes the submission no mark.
        """
        given: Document = {"problem_id": problem_id, "language": language, "queued_at": now}
        whole = ("fence", "priority", "attempts")
        numbers = {name: seen[name] for name in whole if isinstance(seen.get(name), int)}
        readable = {**numbers, **given, "_id": seen["_id"], "state": seen["state"], "job_id": ""}
        # Its own id may be missing, too; then that is what the write guards.
        job = replace(Job.from_document(readable), job_id=seen.get("job_id"))  # type: ignore[arg-type]
        return self._transition(
            states.REPAIR,
            job,
            guard={"fence": stored(seen.get("fence") or 0)},
            set_={
                **given,
                "job_id": job_id,
                "priority": job.priority,
                "attempts": 0,
                "drain_refunds": 0,
                "fence": fence,
                "repaired_at": now,
                **({} if preview else {"mark_due": fence}),
            },
            unset=[
                *OF_ONE_JUDGING,
                "restore_due",
                "given_up_at",
                "given_up_why",
                "mark_due" if preview else "preview",
            ],
            inc={"repairs": 1},
            push=_replaced(job.job_id),
            fence=fence,
            new_job_id=job_id,
            runner_id=None,
            now=now,
            note=note,
            only_from=job.state,
            attempts=0,
        )

    def _transition(
        self,
        edge: Edge,
        job: Job,
        *,
        guard: Document,
        fence: int,
        runner_id: str | None,
        now: datetime,
        set_: Document | None = None,
        unset: Sequence[str] = (),
        inc: Mapping[str, int] | None = None,
        max_: Document | None = None,
        push: Document | None = None,
        new_job_id: str | None = None,
        note: str | None = None,
        reason: LeaseEnd | None = None,
        refunded: bool = False,
        from_runner: str | None = None,
        only_from: State | None = None,
        attempts: int | None = None,
    ) -> Job | None:
        """Write one edge: the only place that writes `state` after the insert."""
        sources = edge.sources if only_from is None else {only_from}
        if not sources <= edge.sources:
            raise ValueError(f"{edge.event} does not leave {only_from}")
        entry = _entry(
            event=edge.event,
            now=now,
            job_id=new_job_id or job.job_id,
            fence=fence,
            attempts=job.attempts + (inc or {}).get("attempts", 0)
            if attempts is None
            else attempts,
            runner_id=runner_id,
            from_runner=from_runner,
            reason=None if reason is None else reason.value,
            refunded=refunded or None,
            note=note,
        )
        update: Document = {
            "$set": {**(set_ or {}), "state": edge.target.value},
            "$push": {
                **(push or {}),
                "history": {"$each": [entry], "$slice": -HISTORY_MAX},
            },
        }
        if unset:
            update["$unset"] = dict.fromkeys(unset, "")
        if inc:
            update["$inc"] = dict(inc)
        if max_:
            update["$max"] = max_
        try:
            left = self.jobs.find_one_and_update(
                {
                    "_id": job.submission_id,
                    "job_id": job.job_id,
                    "state": {"$in": [source.value for source in sources]},
                    **guard,
                },
                update,
                return_document=ReturnDocument.AFTER,
            )
        except OperationFailure as error:
            if error.code not in WRONG_TYPE:
                raise
            # A claim has not read the whole document.
            self.unreadable.met(self.jobs.name, job.submission_id, str(error))
            return None
        return self.read(left)


def _replaced(job_id: str | None) -> Document:
    """Return the push that keeps the id of a replaced job. (A broken job may have none.)"""
    replaced = [] if job_id is None else [job_id]
    return {"replaced_ids": {"$each": replaced, "$slice": -REPLACED_IDS_MAX}}


def _drop_index(jobs: Collection[Document], name: str) -> None:
    try:
        jobs.drop_index(name)
    except OperationFailure as error:
        if error.code != INDEX_NOT_FOUND:  # another process came first
            raise


def _whole(number: Any) -> int:
    is_finite = isinstance(number, (int, float)) and math.isfinite(number)
    return int(number) if is_finite else 0


def _owner(runner_id: str, lease_token: str | None) -> Document:
    owner = {"leased_by": runner_id}
    return owner if lease_token is None else {**owner, "lease_token": lease_token}


def _without_problems(problem_ids: Iterable[int]) -> Document:
    listed = list(problem_ids)
    return {"problem_id": {"$nin": listed}} if listed else {}


def _without_held(rejudge_ids: Sequence[str], priority: int) -> Document:
    if not rejudge_ids:
        return {}
    return {"$nor": [{"rejudge_id": {"$in": list(rejudge_ids)}, "priority": {"$lte": priority}}]}


def _other_rejudge(rejudge_id: str | None) -> Document:
    return {} if rejudge_id is None else {"rejudge_id": {"$ne": rejudge_id}}


def _given(**fields: Any) -> Document:
    return {name: value for name, value in fields.items() if value is not None}


def _tried(job: Job, runner_id: str | None, now: datetime) -> Document:
    """Return what a lease of `runner_id` that ended without a result leaves on the job."""
    added = () if runner_id is None else (runner_id,)
    return {
        "tried_by": [*dict.fromkeys([*job.tried_by, *added])],
        "first_failed_at": job.first_failed_at or now,
    }


def _left_without_result(job: Job, now: datetime, rules: LeaseRules) -> Document:
    """Return what the lease of an orphan leaves on it."""
    over_at = job.lease_deadline or now
    left = _tried(job, job.leased_by, over_at)
    end = ended_by(job)
    if end is not LeaseEnd.LOST and job.leased_by is not None:
        left["failed_by"] = [*dict.fromkeys([*job.failed_by, job.leased_by])]
        left["failed_until"] = table(rules)[end].others_first_until(over_at)
    return left


def _entry(
    *,
    event: str,
    now: datetime,
    job_id: str,
    fence: int,
    attempts: int,
    runner_id: str | None = None,
    **facts: Any,
) -> Document:
    return {
        "at": now,
        "event": event,
        "job_id": job_id,
        "fence": fence,
        "attempts": attempts,
        **_given(runner_id=runner_id, **facts),
    }
