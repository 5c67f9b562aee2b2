"""What the queue's own books say, for people: what runners hold, and how the queue fared lately.

Guarantees: reads, and one small sample a minute; leases never ask here. A sample is written once,
however many processes come by, and is forgotten after a day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from dispatch import checks, states, watch
from dispatch.checks import Doubtful
from dispatch.clock import Clock
from dispatch.concerns import LOCAL, SOFT
from dispatch.health import Kind
from dispatch.queue import Queue
from dispatch.records import Job
from dispatch.runner import Runner
from dispatch.states import Outcome, State

LATELY = timedelta(hours=1)
SAMPLES_KEPT = timedelta(days=1)
HELD_JOBS_MAX = 2_000
DOUBTFUL_LISTED_MAX = 100
THROUGHPUT_MIN = (1, 5, 15)
"""Over how many of the last minutes the throughput is told."""
_LANDED = [Outcome.VERDICT.value, Outcome.JUDGE_ERROR.value]
_LEASED = {states.CLAIM.event, states.RECLAIM.event}


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A job under a lease, as people see it. `since` is when that lease began, if still known."""

    job: Job
    since: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """The queue in one minute: jobs that waited, jobs under a lease, jobs that were done."""

    at: datetime
    pending: int
    held: int
    done: int


def held_jobs(queue: Queue) -> dict[str, list[Held]]:
    """Return runner id to what the runner holds, over all runners, in order of their job ids."""
    found = queue.jobs.jobs.find(
        {"state": {"$in": [state.value for state in states.HELD]}, "leased_by": {"$type": "string"}}
    )
    held: dict[str, list[Held]] = {}
    for document in found.sort("job_id", 1).limit(HELD_JOBS_MAX):
        job = queue.jobs.read(document)
        if job is not None and job.leased_by is not None:
            held.setdefault(job.leased_by, []).append(Held(job=job, since=_leased_at(job)))
    return held


def done_by_runner(queue: Queue, since: datetime) -> dict[str, int]:
    """Return runner id to how many jobs it judged after `since`, rejudged ones left out."""
    found = queue.jobs.jobs.aggregate(
        [
            {"$match": {"done_at": {"$gt": since}, "outcome": Outcome.VERDICT.value}},
            {"$group": {"_id": "$leased_by", "done": {"$sum": 1}}},
        ]
    )
    return {group["_id"]: group["done"] for group in found if isinstance(group["_id"], str)}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerEntry:
    """A runner as people see it. `done`, `judge_errors` and `aborts` are of the last hour."""

    runner: Runner
    alive: bool
    resting: bool
    held: tuple[Held, ...]
    done: int
    judge_errors: int
    aborts: int
    on_probation: bool
    unproven: tuple[int, ...]
    """Languages whose known program it has yet to judge right."""
    check_share: float
    """What part of the last hour it spent at checks, of one job slot's time: 0 to 1 and, with
    several at once, above."""
    doubtful: Doubtful | None
    """What it judged since it last passed the check that it then failed."""


def runner_entries(queue: Queue, now: Clock) -> list[RunnerEntry]:
    """Return the runners in force, the longest registered first."""
    at = now()
    held, done = held_jobs(queue), done_by_runner(queue, at - LATELY)
    spent_ms = queue.checks.spent_since(at - LATELY)
    return [
        RunnerEntry(
            runner=runner,
            alive=queue.runners.is_alive(runner, now=at),
            resting=watch.rests(queue, runner, now=now),
            held=tuple(held.get(runner.runner_id, ())),
            done=done.get(runner.runner_id, 0),
            judge_errors=_lately(runner, at, {Kind.JUDGE_ERROR}),
            aborts=_lately(runner, at, {Kind.DRAIN, Kind.PREP_FAILED, Kind.REJECTED}),
            on_probation=checks.on_probation(queue, runner),
            unproven=checks.unproven(queue, runner),
            check_share=check_share(runner, spent_ms, at),
            doubtful=checks.doubtful(queue, runner, limit=DOUBTFUL_LISTED_MAX),
        )
        for runner in queue.runners.list(now=at)
    ]


def check_share(runner: Runner, spent_ms: Mapping[str, int], at: datetime) -> float:
    """Return what part of the last hour, or of its life, the runner spent at checks.

    `spent_ms`: runner id to milliseconds.
    """
    known_s = min(at - runner.registered_at, LATELY).total_seconds()
    # In its first minute a runner does little else, and that says nothing of what it costs.
    known_s = max(known_s, 60)
    return round(spent_ms.get(runner.runner_id, 0) / 1000 / known_s, 5)


def _lately(runner: Runner, at: datetime, kinds: set[Kind]) -> int:
    return sum(trouble.kind in kinds and trouble.at > at - LATELY for trouble in runner.troubles)


def _leased_at(job: Job) -> datetime | None:
    for entry in reversed(job.history):
        if entry.get("event") in _LEASED and entry.get("runner_id") == job.leased_by:
            at = entry.get("at")
            return at if isinstance(at, datetime) else None
    return None


def create_indexes(queue: Queue) -> None:
    """Create what is missing. Safe to repeat."""
    _samples(queue).create_index(
        # Forgets samples that no chart shows any more.
        "at",
        name="old",
        expireAfterSeconds=int(SAMPLES_KEPT.total_seconds()),
    )
    queue.jobs.jobs.create_index(
        # Jobs that landed lately, for the throughput: the done ones are most of the collection.
        # With the outcome, so that counting reads the index alone.
        [("done_at", 1), ("outcome", 1)],
        name="ended",
        partialFilterExpression={"done_at": {"$exists": True}},
    )


def record_sample(queue: Queue, now: datetime) -> None:
    """Note how the queue stands in this minute, unless somebody has."""
    minute = now.replace(second=0, microsecond=0)
    samples = _samples(queue)
    if samples.find_one({"_id": minute}, {"_id": 1}) is not None:
        return
    sample = take_sample(queue, now)
    try:
        samples.insert_one(
            {
                "_id": minute,
                "at": now,
                "pending": sample.pending,
                "held": sample.held,
                "done": sample.done,
            }
        )
    except DuplicateKeyError:
        return  # another process came first in this minute


def take_sample(queue: Queue, now: datetime) -> Sample:
    """Return how the queue stands now; `done` counts the jobs done within the last minute."""
    counts = {State.PENDING.value: 0, State.LEASED.value: 0, State.LANDING.value: 0}
    for group in queue.jobs.depth():
        counts[group["state"]] += group["count"]
    return Sample(
        at=now,
        pending=counts[State.PENDING.value],
        held=counts[State.LEASED.value] + counts[State.LANDING.value],
        done=done_since(queue, now - timedelta(minutes=1)),
    )


def done_since(queue: Queue, since: datetime) -> int:
    """Return how many jobs landed after `since` and have not been rejudged from then on."""
    return queue.jobs.jobs.count_documents({"done_at": {"$gt": since}, "outcome": {"$in": _LANDED}})


def throughput(queue: Queue, now: datetime) -> dict[int, float]:
    """Return minutes to jobs landed per minute, over each of the last `THROUGHPUT_MIN` minutes.

    What was rejudged since is not counted: its job is another one by now.
    """
    counted = {
        minutes: done_since(queue, now - timedelta(minutes=minutes)) for minutes in THROUGHPUT_MIN
    }
    return {minutes: round(landed / minutes, 2) for minutes, landed in counted.items()}


def samples_since(queue: Queue, since: datetime) -> Sequence[Sample]:
    """Return the samples taken after `since`, the oldest first."""
    found = _samples(queue).find({"at": {"$gt": since}}, {"_id": 0}).sort("at", 1)
    return [Sample(**document) for document in found]


def _samples(queue: Queue) -> Collection[dict[str, Any]]:
    # Losing a sample in a failover costs a point of a chart, and so does showing one that is lost.
    samples = queue.jobs.jobs.database.get_collection("queue_samples")
    return samples.with_options(write_concern=SOFT, read_concern=LOCAL)
