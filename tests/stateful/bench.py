"""The real queue under the stateful test: its calls, landings that can be stopped, time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.database import Database
from pymongo.errors import AutoReconnect

from dispatch.contract import CaseResult, HandedOut, Landed, TaskSpec, Verdict
from dispatch.lease import LeaseRules
from dispatch.queue import Queue, open_queue
from dispatch.store import JobStore
from dispatch.tried import Tried

# The model knows nothing of runners that rest or are set aside.
RULES = LeaseRules(
    max_attempts=2,
    drain_refunds_max=1,
    failures_max=1_000_000,
    retry_pauses_s=(),
    give_up_s=0,
)
ALIVE_S = 33.0
GATES = ("result", "counters", "end")
"""Before the landing's first write, between its writes, after them."""
HANDED_OUT = HandedOut(
    tasks=(TaskSpec(task_score=100, memory_limit_kib=65536, time_limit_ms=1000, case_count=1),),
    testdata_sha256="0" * 64,
    checker="default",
)
Gate = Callable[[str], None]


class LandingFailed(Exception):
    """What a landing raises when the test has it fail."""


def result(value: int) -> list[list[CaseResult]]:
    """Return a judge result that can be told from others by `value`."""
    return [
        [
            CaseResult(
                status=Verdict.AC,
                exit_code=0,
                stdout="",
                stderr="",
                exec_time_ms=value,
                memory_usage_kib=1,
            )
        ]
    ]


class MortalCollection:
    """A collection whose process can die: from then on, nothing reaches the server."""

    def __init__(self, collection: Any) -> None:
        self._collection = collection
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        if self.dead:
            raise AutoReconnect("this process is dead")
        return getattr(self._collection, name)


class Time:
    """The injected clock."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(milliseconds=round(seconds * 1000))


class Bench:
    """A queue on a database, and submissions on which results land as in the domain."""

    def __init__(self, database: Database[dict[str, Any]]) -> None:
        self.database = database
        self.queue = open_queue(database, rules=RULES, alive_s=ALIVE_S)
        self.submissions = database["submissions"]
        self.now = Time()

    def empty(self, *collections: str) -> None:
        """Remove all there is in these, and what the queue knows of it."""
        for name in collections:
            self.database[name].delete_many({})
        self.queue.tried.forget()

    def mortal_queue(self) -> tuple[Queue, MortalCollection]:
        """Return the queue as one process sees it, and what makes that process die."""
        store = JobStore(self.database, RULES)
        mortal = MortalCollection(store.jobs)
        store.jobs = mortal  # type: ignore[assignment]
        return replace(self.queue, jobs=store, tried=Tried()), mortal

    def raw(self) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """Return all jobs and all submissions as they are stored, by id."""
        jobs = {job["_id"]: job for job in self.database["jobs"].find()}
        return jobs, {entry["_id"]: entry for entry in self.submissions.find()}

    def landing(self, gate: Gate) -> Callable[..., Landed]:
        """Return a `process_result` that passes `gate` before, between and after its writes."""

        def process_result(
            *,
            submission_id: str,
            job_id: str,
            fence: int,
            tasks: Any,
            handed_out: Any,
            preview: bool = False,
            **_told: Any,
        ) -> Landed:
            gate("result")
            value = None if tasks is None else tasks[0][0].exec_time_ms
            write = self._write_beside if preview else self._write
            landed = write(submission_id, job_id, fence, value)
            if landed is Landed.REFUSED:
                return landed
            gate("counters")
            if not preview:
                self.submissions.update_one(
                    {"_id": submission_id}, [{"$set": {"counted": "$result.value"}}]
                )
            gate("end")
            return landed

        return process_result

    def _write(self, submission_id: str, job_id: str, fence: int, value: int | None) -> Landed:
        newest = {"_id": submission_id, "fence": {"$lte": fence}}
        if value is None:
            real = {"result.job_id": job_id, "result.value": {"$ne": None}, "status": {"$ne": -1}}
            kept = self.submissions.update_one({**newest, **real}, {"$set": {"fence": fence}})
            if kept.matched_count:
                return Landed.VERDICT
        written = self.submissions.update_one(
            newest,
            {
                "$set": {
                    "fence": fence,
                    "status": 6 if value is None else 0,
                    "result": {"job_id": job_id, "value": value},
                }
            },
        )
        if not written.matched_count:
            return Landed.REFUSED
        return Landed.JUDGE_ERROR if value is None else Landed.VERDICT

    def _write_beside(
        self, submission_id: str, job_id: str, fence: int, value: int | None
    ) -> Landed:
        """Raise the fence alone: a preview's result is kept elsewhere."""
        raised = self.submissions.update_one(
            {"_id": submission_id, "fence": {"$lte": fence}}, {"$set": {"fence": fence}}
        )
        if not raised.matched_count:
            return Landed.REFUSED
        return Landed.JUDGE_ERROR if value is None else Landed.VERDICT

    def mark(self, submission_id: str, job_id: str, fence: int) -> None:
        """Mark a rejudge on the submission, as the domain does."""
        self.submissions.update_one(
            {"_id": submission_id, "fence": {"$lt": fence}},
            {"$set": {"fence": fence, "status": -1, "job_id": job_id}},
        )
        self.queue.jobs.marked(submission_id, job_id=job_id, fence=fence)

    def bring_back(self, submission_id: str, fence: int) -> None:
        """Bring the result back that a cancelled rejudge had hidden, as the domain does."""
        self.submissions.update_one(
            {"_id": submission_id, "fence": {"$lt": fence}},
            [
                {
                    "$set": {
                        "fence": fence,
                        "status": {"$cond": [{"$eq": ["$result.value", None]}, 6, 0]},
                    }
                }
            ],
        )
        self.submissions.update_one(
            {"_id": submission_id}, [{"$set": {"counted": "$result.value"}}]
        )
        self.queue.jobs.restored(submission_id, fence=fence)


class ParkedCall:
    """A call in a thread of its own that stops at each gate until it is told to go on.

    Only one of this and the test's thread runs at a time, so the order of things is the test's.
    """

    LIMIT_S = 30.0

    def __init__(self, call: Callable[[Gate], Any]) -> None:
        self._call = call
        self._arrived = threading.Semaphore(0)
        self._told = threading.Semaphore(0)
        self._order = ""
        self.at: str | None = None
        self.answer: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Run to the first gate, or to the end."""
        self._thread.start()
        self._await()

    def go_on(self, order: str = "") -> None:
        """Run to the next gate, or to the end; `order` "raise" has the landing fail here."""
        self._order = order
        self._told.release()
        self._await()

    def _await(self) -> None:
        if not self._arrived.acquire(timeout=self.LIMIT_S):
            raise TimeoutError(f"a call hangs after {self.at}")

    def _gate(self, name: str) -> None:
        self.at = name
        self._arrived.release()
        if not self._told.acquire(timeout=self.LIMIT_S * 10):
            raise TimeoutError(f"nobody went on after {name}")
        if self._order == "raise":
            raise LandingFailed(name)

    def _run(self) -> None:
        try:
            self.answer = self._call(self._gate)
        except BaseException as error:
            self.error = error
        self.at = None
        self._arrived.release()
