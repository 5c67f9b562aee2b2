"""What gives waiting polls their notices: the database's change stream, or, without one, looks.

Guarantees: one thread per process, begun when somebody waits (so after a server's fork) and ended
when nobody has for a while. While the stream is up, a job that another process frees, a verdict and
a revoked runner are told of as they happen; while it is not, within `LOOK_EVERY_S`. Leases that run
out, and what was missed, are found by one look per second, however many wait. Whatever becomes of
the stream, what happened while it was down is looked for when it is up again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import structlog
from pymongo.errors import InvalidOperation, OperationFailure, PyMongoError

from dispatch import control
from dispatch.clock import Clock
from dispatch.lease import deadline_passed
from dispatch.queue import Queue
from dispatch.records import Job
from dispatch.states import HELD, State
from dispatch.wakeup import Wakeup

log = structlog.get_logger(__name__)

LOOK_EVERY_S = 0.25
"""Without a stream."""
TICK_EVERY_S = 1.0
"""With one: for leases that run out, which no write tells of."""
REOPEN_EVERY_S = (0.5, 2.0, 10.0, 30.0)
"""How long after its first, second, ... failure in a row the stream is tried again."""
REST_AFTER_S = 30.0
"""For how long nobody must wait before the thread ends."""
TOLD_OF_MAX = 1_000
ORPHANS_MAX = 8
PAUSES_EVERY = 3
"""Of so many ticks one looks for jobs whose pause is over."""
PAUSES_OVER_S = (PAUSES_EVERY + 2) * TICK_EVERY_S
"""How far back it looks: a tick may be late."""
PENDING_MAX = 32
"""How many of the line a look without a stream tells of."""

Document = dict[str, Any]


class Stream(Protocol):
    """A change stream, as far as it is used here."""

    @property
    def resume_token(self) -> Mapping[str, Any] | None: ...
    def try_next(self) -> Mapping[str, Any] | None: ...
    def close(self) -> None: ...


OpenStream = Callable[[Mapping[str, Any] | None], Stream]
"""Opens a stream, after a resume token where one is given.

Raises:
    PyMongoError: there is none, or not now.
"""

PIPELINE: list[Document] = [
    {
        "$match": {
            "$or": [
                {"ns.coll": "jobs", "operationType": {"$in": ["insert", "replace"]}},
                # A job that may be had again, and one that has its verdict.
                {
                    "ns.coll": "jobs",
                    "updateDescription.updatedFields.state": {
                        "$in": [State.PENDING.value, State.DONE.value]
                    },
                },
                {"ns.coll": "jobs", "updateDescription.removedFields": "restore_due"},
                # The pause, and rejudges on hold.
                {"ns.coll": control.COLLECTION},
                # All that happens to a runner, apart from its having been seen.
                {
                    "ns.coll": "runners",
                    "operationType": {"$ne": "insert"},
                    "updateDescription.updatedFields.last_seen": {"$exists": False},
                },
            ]
        }
    },
    {
        "$project": {
            "operationType": 1,
            "ns.coll": 1,
            "documentKey": 1,
            "fullDocument.language": 1,
            "updateDescription.updatedFields.state": 1,
        }
    },
]


def change_stream(queue: Queue, also: tuple[str, ...] = ()) -> OpenStream:
    """Return what opens a stream on the queue's database.

    `also`: collections any change of which may make jobs claimable.
    """
    database = queue.jobs.jobs.database
    match = [*PIPELINE[0]["$match"]["$or"], *({"ns.coll": name} for name in also)]
    pipeline = [{"$match": {"$or": match}}, *PIPELINE[1:]]

    def open_stream(token: Mapping[str, Any] | None) -> Stream:
        return database.watch(
            pipeline, resume_after=token, max_await_time_ms=int(TICK_EVERY_S * 1000)
        )

    return open_stream


class Feed:
    """The thread, and what it knows."""

    def __init__(
        self,
        wakeup: Wakeup,
        queue: Queue,
        *,
        now: Clock,
        open_stream: OpenStream | None,
        maintain: Callable[[], None],
        rest_after_s: float = REST_AFTER_S,
    ) -> None:
        self._wakeup = wakeup
        self._queue = queue
        self._now = now
        self._open = open_stream
        self._maintain = maintain
        self._rest_after_s = rest_after_s
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._told_of: OrderedDict[str, None] = OrderedDict()
        self._pause = threading.Event()
        self._token: Mapping[str, Any] | None = None
        self._tick_at = 0.0
        self._ticks = 0
        self._failures = 0
        self.up = False
        """Whether the stream is up."""

    def begin(self) -> None:
        """Have the thread run. Called whenever somebody starts to wait."""
        with self._lock:
            if self._thread is None and not self._wakeup.closed:
                self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
                self._thread.start()

    def submitted(self, submission_id: str, language: int) -> None:
        """Tell this process's polls of a job at once, before the stream does."""
        if self._is_news(submission_id):
            self._wakeup.job(submission_id, language)

    def _is_news(self, submission_id: str) -> bool:
        """Tell whether the other of the two, stream and handler, has yet to tell of the job."""
        with self._lock:
            if submission_id in self._told_of:
                del self._told_of[submission_id]
                return False
            self._told_of[submission_id] = None
            if len(self._told_of) > TOLD_OF_MAX:
                self._told_of.popitem(last=False)
            return True

    def landed(self) -> None:
        """Have those look who wait for verdicts, unless the stream tells them which."""
        if not self.up:
            self._wakeup.ended()

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._rests():
            try:
                self._step()
            except InvalidOperation:
                # The client has been closed: the process ends.
                with self._lock:
                    self._thread = None
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, waiters must be told
                self._down(error)

    def _step(self) -> None:
        if self._open is None:
            self._look_for(REOPEN_EVERY_S[-1])
            return
        if self._failures:
            self._look_for(REOPEN_EVERY_S[min(self._failures, len(REOPEN_EVERY_S)) - 1])
        self._follow(self._open(self._token))

    def _rests(self) -> bool:
        """Tell whether the thread is to end; under the lock, so that who waits next begins it."""
        with self._lock:
            if self._wakeup.closed or not self._wakeup.anybody():
                self._thread, self._token = None, None
                return True
            return False

    def _follow(self, stream: Stream) -> None:
        """Tell of what the stream says until nobody has waited for a while."""
        try:
            # What happened unseen.
            self._wakeup.everybody()
            self.up = True
            idle_since = time.monotonic()
            while not self._wakeup.closed:
                change = stream.try_next()
                self._token, self._failures = stream.resume_token, 0
                if change is not None:
                    self.tell(change)
                if time.monotonic() >= self._tick_at:
                    self.tick(pending_max=1)
                if self._wakeup.anybody():
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since >= self._rest_after_s:
                    return
        finally:
            self.up = False
            stream.close()

    def _down(self, error: Exception) -> None:
        self._failures += 1
        if isinstance(error, OperationFailure) or not isinstance(error, PyMongoError):
            # Among others: the place to resume from is gone. What was missed is looked for.
            self._token = None
        if self._failures == 1:
            log.warning("change_stream_down", error=type(error).__name__, why=str(error)[:200])
        # What fails at once is not to be tried in a tight loop.
        self._pause.wait(LOOK_EVERY_S)

    def _look_for(self, duration_s: float) -> None:
        """Do without a stream for a while."""
        until = time.monotonic() + duration_s
        while not self._wakeup.closed and self._wakeup.anybody():
            self.tick(pending_max=PENDING_MAX)
            self._wakeup.ended()
            self._pause.wait(LOOK_EVERY_S)
            if time.monotonic() >= until:
                return

    # -- telling -------------------------------------------------------------------------------

    def tell(self, change: Mapping[str, Any]) -> None:
        """Give the notice that a change calls for."""
        collection, key = change["ns"]["coll"], change.get("documentKey", {}).get("_id")
        if collection == "runners":
            self._wakeup.runner(key)
        elif collection != "jobs":
            self._wakeup.notify()
        elif change["operationType"] in ("insert", "replace"):
            if self._is_news(key):
                self._wakeup.job(key, change.get("fullDocument", {}).get("language"))
        elif _new_state(change) == State.PENDING.value:
            self._wakeup.job(key)
        else:
            self._wakeup.ended(key)

    def tick(self, *, pending_max: int) -> None:
        """Look once, for all who wait: for orphans, pauses that are over, `pending_max` in line."""
        self._tick_at = time.monotonic() + TICK_EVERY_S
        self._maintain()
        waiting = self._wakeup.waiting_for_jobs()
        if not waiting:
            return
        languages, jobs = self._queue.languages, self._queue.jobs
        for job in jobs.orphans(self._now(), languages, [], min(waiting, ORPHANS_MAX)):
            self._wakeup.job(job.submission_id, job.language)
        self._ticks += 1
        if self._ticks % PAUSES_EVERY == 0:
            for job in jobs.pause_over(self._now(), PAUSES_OVER_S, min(waiting, ORPHANS_MAX)):
                self._wakeup.job(job.submission_id, job.language)
        for job in jobs.pending(self._now(), languages, [], min(waiting, pending_max)):
            # What is not told of again by anybody who looks: it may wait for its problem.
            self._wakeup.job(job.submission_id, job.language, hand_on=False)


def _new_state(change: Mapping[str, Any]) -> Any:
    return change.get("updateDescription", {}).get("updatedFields", {}).get("state")


def is_free(job: Job | None, now: Clock) -> bool:
    """Tell whether a job may be claimed by somebody."""
    if job is None:
        return False
    at = now()
    if not deadline_passed(job.not_before, at):
        return False
    return job.state is State.PENDING or (
        job.state in HELD and deadline_passed(job.lease_deadline, at)
    )
