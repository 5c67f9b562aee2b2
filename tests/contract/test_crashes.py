"""I8 at the queue itself: a process dies before or after any of its writes; a verdict comes.

Afterwards nobody acts but one other runner that polls, time, and what polls do on the side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import AutoReconnect

from dispatch import job as verbs
from dispatch.contract import new_job_id
from dispatch.invariants import check_document, check_pair, check_step
from dispatch.queue import Queue
from dispatch.store import JobStore
from dispatch.tried import Tried
from tests.stateful.bench import HANDED_OUT, RULES, Bench, Time, result

WRITES = ("insert_one", "update_one", "update_many", "find_one_and_update")
WRITES_MAX = 10
POLLS_MAX = 40 * 8
PENDING = -1


class Process:
    """One API process: it counts its writes, and dies at one of them."""

    def __init__(self, *, dies_at: int, after: bool) -> None:
        self._dies_at = dies_at
        self._after = after
        self.writes = 0
        self.dead = False

    def collection(self, real: Any) -> Any:
        return _Collection(self, real)

    def write(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self.check()
        self.writes += 1
        dies = self.writes == self._dies_at
        if dies and not self._after:
            self.dead = True
            self.check()
        answer = call(*args, **options)
        self.dead = self.dead or dies
        self.check()
        return answer

    def check(self) -> None:
        if self.dead:
            raise AutoReconnect("this process is dead")


class _Collection:
    def __init__(self, process: Process, real: Any) -> None:
        self._process = process
        self._real = real

    def __getattr__(self, name: str) -> Any:
        self._process.check()
        found = getattr(self._real, name)
        if name not in WRITES:
            return found
        return lambda *args, **options: self._process.write(found, *args, **options)


class Story:
    """A submission, runner A under whom things break, runner B who polls afterwards."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.now = bench.now = Time()
        bench.empty("jobs", "submissions", "runners")
        self.whole = bench.queue
        self.a, _ = self.whole.runners.register(name="A", languages=None, now=self.now())
        self.b, _ = self.whole.runners.register(name="B", languages=None, now=self.now())
        self.values = 0

    def through(self, process: Process) -> tuple[Bench, Queue]:
        """Return the bench and the queue as `process` sees them."""
        store = JobStore(self.bench.database, RULES)
        store.jobs = process.collection(store.jobs)
        queue = replace(self.whole, jobs=store, tried=Tried())
        seen = Bench(self.bench.database)
        seen.queue, seen.now = queue, self.now
        seen.submissions = process.collection(seen.submissions)
        return seen, queue

    # -- what may break --------------------------------------------------------------------

    def submit(self, bench: Bench, queue: Queue) -> None:
        job_id = new_job_id()
        bench.submissions.insert_one({"_id": "s1", "fence": 0, "status": PENDING, "job_id": job_id})
        self.enqueue(queue, job_id)

    def enqueue(self, queue: Queue, job_id: str) -> None:
        verbs.enqueue_job(
            queue,
            submission_id="s1",
            job_id=job_id,
            problem_id=1,
            language=0,
            submission_fence=0,
            now=self.now,
        )

    def claim(self, bench: Bench, queue: Queue, runner: Any = None) -> Any:
        return verbs.claim_next_job(
            queue, runner or self.a, hand_out=lambda _: HANDED_OUT, now=self.now
        )

    def complete(self, bench: Bench, queue: Queue, runner: Any = None) -> None:
        self.values += 1
        job = self.whole.jobs.get("s1")
        assert job is not None
        verbs.complete_job(
            queue,
            (runner or self.a).runner_id,
            job.job_id,
            result(self.values),
            process_result=bench.landing(lambda gate: None),
            now=self.now,
        )

    def abort(self, bench: Bench, queue: Queue) -> None:
        job = self.whole.jobs.get("s1")
        assert job is not None
        landing = bench.landing(lambda gate: None)
        verbs.abort_job(
            queue,
            self.a.runner_id,
            job.job_id,
            "rejected",
            process_result=landing,
            now=self.now,
        )

    def rejudge(self, bench: Bench, queue: Queue) -> None:
        left = verbs.rejudge_job(
            queue,
            submission_id="s1",
            problem_id=1,
            language=0,
            submission_fence=0,
            now=self.now,
        )
        assert left is not None
        bench.mark("s1", left.job_id, left.fence)

    def sweep(self, bench: Bench, queue: Queue) -> None:
        verbs.sweep(queue, process_result=bench.landing(lambda gate: None), now=self.now)

    # -- afterwards ------------------------------------------------------------------------

    def do(self, *steps: str) -> None:
        """Take undisturbed steps."""
        for step in steps:
            if step == "lease over":
                # And the other runners' head start.
                self.now.advance(RULES.lease_ttl_s + RULES.orphan_head_start_s)
            elif step == "head start over":
                self.now.advance(RULES.failed_head_start_s)
            else:
                getattr(self, step)(self.bench, self.whole)

    def poll_until_judged(self) -> None:
        """B polls, and completes what it is given; with each poll goes the sweep."""
        for _ in range(POLLS_MAX):
            before = self.bench.raw()[0].get("s1")
            self._tidy()
            if self.claim(self.bench, self.whole, self.b) is not None:
                self.complete(self.bench, self.whole, self.b)
            jobs, submissions = self.bench.raw()
            job, submission = jobs["s1"], submissions["s1"]
            assert check_document(job, RULES) == []
            assert check_pair(job, submission) == []
            assert before is None or check_step(before, job) == []
            if job["state"] == "done" and not job.get("mark_due"):
                assert submission["status"] != PENDING
                assert submission["result"]["job_id"] == job["job_id"]
                assert submission["result"]["value"] == submission["counted"]
                return
            self.now.advance(1)
        raise AssertionError("no verdict")

    def _tidy(self) -> None:
        self.sweep(self.bench, self.whole)
        for job in self.whole.jobs.marks_due(5):
            assert job.mark_due is not None
            self.bench.mark("s1", job.job_id, job.mark_due)
        submission = self.bench.submissions.find_one({"_id": "s1"})
        if submission is None:
            # The process died before its client was told anything: the client submits again.
            self.submit(self.bench, self.whole)
        elif self.whole.jobs.get("s1") is None:
            self.enqueue(self.whole, submission["job_id"])


@pytest.fixture(scope="module")
def bench(mongo_client: MongoClient[dict[str, Any]]) -> Iterator[Bench]:
    database = mongo_client["crashes"]
    made = Bench(database)
    made.queue.create_indexes()
    yield made
    mongo_client.drop_database("crashes")


LAST_LEASE = ("submit", "claim", "abort", "head start over", "claim")
"""Two attempts are the limit here."""
# what breaks: (the way to it, its name, how many writes it has)
BREAKS: dict[str, tuple[tuple[str, ...], str, int]] = {
    "submit": ((), "submit", 2),
    "claim": (("submit",), "claim", 1),
    "reclaim": (("submit", "claim", "lease over"), "claim", 1),
    "complete": (("submit", "claim"), "complete", 4),
    "complete of a rejudge": (
        ("submit", "claim", "complete", "rejudge", "claim"),
        "complete",
        4,
    ),
    "abort": (("submit", "claim"), "abort", 1),
    "abort at the limit": (LAST_LEASE, "abort", 5),
    "exhaustion": ((*LAST_LEASE, "lease over"), "sweep", 5),
    "rejudge of a waiting job": (("submit",), "rejudge", 3),
    "rejudge of a leased job": (("submit", "claim"), "rejudge", 3),
    "rejudge of a done job": (("submit", "claim", "complete"), "rejudge", 3),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("name", "write"),
    [(name, write) for name, (_, _, writes) in BREAKS.items() for write in range(1, writes + 1)],
)
def test_i8_a_verdict_comes(bench: Bench, name: str, write: int, after: bool) -> None:
    way, breaks, _ = BREAKS[name]
    story = Story(bench)
    story.do(*way)
    process = Process(dies_at=write, after=after)
    with suppress(AutoReconnect):
        getattr(story, breaks)(*story.through(process))
    assert process.dead
    story.poll_until_judged()


@pytest.mark.parametrize("name", BREAKS)
def test_every_write_has_its_crash(bench: Bench, name: str) -> None:
    way, breaks, writes = BREAKS[name]
    story = Story(bench)
    story.do(*way)
    process = Process(dies_at=WRITES_MAX, after=False)
    getattr(story, breaks)(*story.through(process))
    assert process.writes == writes
