"""A small course that is put back in milliseconds, and the verbs that land results in it.

No HTTP: what lands is `dispatch.job`'s verbs with `mongo`'s `process_result`, wired as `app` does
it. The clock stands still until it is turned.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pymongo import MongoClient, WriteConcern
from pymongo.monitoring import CommandListener

import logs
from app import Maintenance
from dispatch import job as verbs
from dispatch.contract import Landed, Language, TaskSpec
from dispatch.invariants import Violation, check_database
from dispatch.job import Ended
from dispatch.lease import LeaseRules
from dispatch.queue import open_queue
from dispatch.records import Job
from dispatch.runner import Runner
from domain_queue import DomainQueue
from mongo import check, engine, homework, landing, problem, storage, submission, sweep, user
from mongo.archive import source_zip
from mongo.homework import HomeworkSettings
from tests.digest import blob_names, digest
from tests.factories import CODE, DAY, EPOCH, ManualClock, packed_testdata, results, task_bodies

CHANGING = (
    "users",
    "homeworks",
    "student_status",
    "submissions",
    "jobs",
    "problems",
    "blobs.files",
    "blobs.chunks",
    "problem_failures",
    "dispatch_control",
)
RESENDS_S = (1, 2, 4, 8, 16)
"""How long a runner waits before each of its resends."""

Document = dict[str, Any]
Snapshot = dict[str, list[Document]]

RULES = LeaseRules(retry_pauses_s=(), give_up_s=0)
"""A job that failed is handed out at once, and given up with its last attempt."""


class World:
    """One course: its queue, its domain, its people."""

    def __init__(
        self,
        uri: str,
        raw: MongoClient[Document],
        *,
        clock: Any = None,
        rules: LeaseRules | None = None,
    ) -> None:
        self.uri = uri
        self.clock = clock or ManualClock()
        name = engine.connect(uri).name
        database = engine.submissions().database
        # Reads and puts things back without being seen: by another client, and, where what is put
        # back is not read as a majority has it, faster.
        majority = engine.CLIENT_OPTIONS["readConcernLevel"] == "majority"
        concern = WriteConcern("majority") if majority else WriteConcern(1, j=False)
        self.raw = raw.get_database(name, write_concern=concern)
        self.queue = open_queue(database, rules=rules or RULES)
        self.domain_queue = DomainQueue(self.queue, self.clock)
        self.queue.create_indexes()
        engine.create_indexes()
        storage.create_indexes()
        self.runner, self.token = self._register("first")
        self.other_runner, _ = self._register("second")
        self._runners = list(self.raw["runners"].find())

    def _register(self, name: str) -> tuple[Runner, str]:
        return self.queue.runners.register(name=name, languages=None, now=self.clock())

    # -- the course --------------------------------------------------------------------------

    def user(self, *names: str) -> None:
        for name in names:
            user.put_user(name, display_name=None)

    def problem(self, problem_id: int, *tasks: tuple[int, int], text: str = "1\n") -> None:
        """Create or change a problem; `tasks` are (score, case count)."""
        tasks = tasks or ((100, 1),)
        problem.put_problem(
            problem_id,
            name=f"problem {problem_id}",
            tasks=[TaskSpec(**task) for task in task_bodies(*tasks)],
            allowed_languages=[0, 1, 2],
        )
        packed = packed_testdata(*(count for _, count in tasks), text=text)
        problem.put_testdata(problem_id, io.BytesIO(packed), now=self.clock())

    def homework(
        self,
        homework_id: str,
        problem_ids: Sequence[int],
        students: Sequence[str],
        *,
        start: datetime = EPOCH - 30 * DAY,
        end: datetime = EPOCH + 7 * DAY,
        penalty: str = "score = 0",
    ) -> None:
        """Create or change a homework, and recompute it."""
        settings = HomeworkSettings(
            name=homework_id,
            start=start,
            end=end,
            penalty=penalty,
            problem_ids=tuple(problem_ids),
            students=tuple(students),
        )
        homework.put_homework(homework_id, settings, now=self.clock())

    # -- judging -----------------------------------------------------------------------------

    def submit(self, submission_id: str, username: str, problem_id: int) -> None:
        submission.submit(
            submission_id=submission_id,
            username=username,
            problem_id=problem_id,
            language=2,
            code_zip=source_zip(CODE, Language.PYTHON),
            may_be_early=True,
            queue=self.domain_queue,
            now=self.clock(),
        )

    def claim(self, runner: Runner | None = None) -> Job | None:
        return verbs.claim_next_job(
            self.queue, runner or self.runner, hand_out=problem.hand_out, now=self.clock
        )

    def complete(self, job: Job, *tasks: str) -> Ended:
        """Report a result for the lease that `job` shows: per task, its cases' statuses."""
        return verbs.complete_job(
            self.queue,
            job.leased_by or "",
            job.job_id,
            results(*tasks),
            process_result=self.land,
            now=self.clock,
            lease_token=job.lease_token,
        )

    def judge(self, submission_id: str, *tasks: str) -> None:
        """Claim the job, which must be this submission's, and land its result."""
        job = self.claim()
        assert job is not None
        assert job.submission_id == submission_id
        assert self.complete(job, *tasks) is Ended.LANDED

    def heartbeat(self, job: Job) -> None:
        verbs.renew_leases(self.queue, job.leased_by or "", [job.job_id], now=self.clock)

    def abort(self, job: Job, reason: str) -> Ended:
        return verbs.abort_job(
            self.queue,
            job.leased_by or "",
            job.job_id,
            reason,
            process_result=self.land,
            now=self.clock,
            lease_token=job.lease_token,
        )

    def rejudge(self, submission_id: str) -> None:
        submission.rejudge(submission_id, queue=self.domain_queue)

    def mark(self, submission_id: str, *, job_id: str, fence: int) -> None:
        """The second write of a rejudge."""
        submission.mark_rejudged(submission_id, job_id=job_id, fence=fence, queue=self.domain_queue)

    def land(self, **call: Any) -> Landed:
        """`process_result`, as it is bound at this moment."""
        return landing.process_result(**call, now=self.clock)

    def sweep(self) -> None:
        """What polls do on the side."""
        Maintenance(self.queue, self.domain_queue, self.land, self.clock).run()

    def maintain(self) -> None:
        """The same when nothing is under way: leftovers go, however young."""
        self.sweep()
        sweeper = sweep.Sweeper()
        sweeper.drop_blobs(now=self.clock() + 100 * 365 * DAY)

    # -- looking, and putting back -----------------------------------------------------------

    def job(self, submission_id: str) -> Job:
        found = self.queue.jobs.get(submission_id)
        assert found is not None
        return found

    def digest(self) -> Any:
        """All domain documents, apart from when things were judged, and the blobs' names."""
        found: Any = digest(self.raw)
        for kept in found["submissions"].values():
            if kept["result"] is not None:
                kept["result"].pop("judged_at", None)
        found["blobs"] = blob_names(self.raw)
        return found

    def wrong(self) -> list[Any]:
        """What breaks an invariant, or differs from a recompute."""
        broken: list[Violation] = check_database(self.raw, self.queue.rules)
        return [*broken, *check.differences(check.scope(), advance=lambda: None)]

    def snapshot(self, *names: str) -> Snapshot:
        """Return every document of these collections, or of all that ever change."""
        return {name: list(self.raw[name].find()) for name in names or (*CHANGING, "runners")}

    def empty(self) -> None:
        """Put the course back to nothing, and the clock to its start."""
        # What is noted of a runner's troubles decides how many writes a landing has.
        nothing: Snapshot = {name: [] for name in CHANGING}
        self.restore({**nothing, "runners": self._runners}, at=EPOCH)

    def restore(self, snapshot: Snapshot, *, at: datetime | None = None) -> None:
        """Put every document back as it was."""
        for name, documents in snapshot.items():
            self.raw[name].delete_many({})
            if documents:
                self.raw[name].insert_many(documents)
        self.queue.tried.forget()
        if at is not None:
            self.clock.at = at


def quiet() -> None:
    """Log errors alone, and leave pytest its own handlers."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    logs.configure("ERROR")
    root.handlers[:] = handlers


@contextmanager
def connected(
    uri: str, raw: MongoClient[Document], *listeners: CommandListener, **options: Any
) -> Iterator[World]:
    """A world whose client is listened to; `options` change the client's own.

    With `w=1` it also reads what is only that far: much faster, where no failover is played.
    """
    quiet()
    if options.get("w") == 1:
        options = {"readConcernLevel": "local", **options}
    kept = dict(engine.CLIENT_OPTIONS)
    engine.CLIENT_OPTIONS.update(event_listeners=list(listeners), **options)
    try:
        yield World(uri, raw)
    finally:
        engine.disconnect()
        engine.CLIENT_OPTIONS.clear()
        engine.CLIENT_OPTIONS.update(kept)
