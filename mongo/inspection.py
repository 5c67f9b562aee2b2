"""The whole database against what must always be true, a page at a time.

Guarantees: may run while judging goes on, since what two documents seem to disagree on is looked
at again; bounded per step, so that it costs the same memory however much there is; a step may be
repeated, and whoever has the place where one ended goes on from it. A repair writes under the
guards of those who write anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from dispatch.contract import SubmissionSeen
from mongo import check, engine, rejudging, storage, stranded
from mongo.bulk_queue import BulkQueue
from mongo.stranded import StrandedQueue

PAGE = 500
"""How many documents a step looks at."""
TOTALS_PAGE = 100
"""How many counters, or standings: each is compared with all submissions of its user."""
LOOK_AGAIN_S = 0.2
STANDS_STILL_AFTER = timedelta(minutes=2)
"""Every rejudge is moved on about once a second, also one on hold."""
NOTHING = "nothing: a human has to look"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is amiss. `subject`: a submission, user, standing, homework or rejudge."""

    invariant: str
    kind: str
    subject: str
    what: str
    remedy: str
    """What a repair does about it."""

    def to_document(self) -> dict[str, str]:
        """Return it as it is stored and told."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What one step found, how much it looked at, and where to go on (None: the stage is over)."""

    findings: list[Finding] = field(default_factory=list)
    looked_at: int = 0
    after: str | None = None


class InspectedQueue(StrandedQueue, BulkQueue, Protocol):
    """The queue, with a page of its jobs compared with what must be true."""

    def inspect(
        self,
        after: str,
        limit: int,
        *,
        look_at: Callable[[Sequence[str]], Mapping[str, SubmissionSeen]],
    ) -> tuple[list[tuple[str, str, str, str]], int, str | None]:
        """Return (invariant, submission, what, remedy) of each fault, how many jobs, the place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspector:
    """Steps through all stages. `repair`: put right what is found, as it is found."""

    queue: InspectedQueue
    now: Callable[[], datetime]
    repair: bool = False

    def step(self, stage: str, after: str) -> Step:
        """Look at the next page of a stage.

        Raises:
            RecomputeContendedError: other writers won every race for a repair; step again.
        """
        with engine.in_order():
            return _STAGES[stage](self, after)

    # -- jobs and submissions --------------------------------------------------------------

    def _jobs(self, after: str) -> Step:
        faults, count, following = self.queue.inspect(after, PAGE, look_at=stranded.look_at)
        found = [
            Finding(invariant=invariant, kind="job", subject=subject, what=what, remedy=remedy)
            for invariant, subject, what, remedy in faults
        ]
        if self.repair:
            for subject in dict.fromkeys(finding.subject for finding in found):
                stranded.repair(subject, queue=self.queue, by_hand=True)
        return Step(findings=found, looked_at=count, after=following)

    def _submissions(self, after: str) -> Step:
        page = list(
            engine.submissions()
            .find({"_id": {"$gt": after}}, _WITH_BLOBS)
            .sort("_id", 1)
            .limit(PAGE)
        )
        found = [*self._without_job(page), *_without_blobs(page)]
        return Step(
            findings=found,
            looked_at=len(page),
            after=page[-1]["_id"] if len(page) == PAGE else None,
        )

    def _without_job(self, page: Sequence[dict[str, Any]]) -> Iterator[Finding]:
        waiting = {one["_id"]: one for one in page if one["status"] == stranded.PENDING}
        if not waiting:
            return
        for submission_id in self.queue.compare(list(waiting), {})[0]:
            # Its job comes a moment later, or came meanwhile, or its verdict has landed since.
            young = self.now() - waiting[submission_id]["submitted_at"] < HANDED_IN_GRACE
            again = stranded.look(submission_id)
            entered = self.queue.compare([submission_id], {})[0] == []
            if young or entered or again is None or not again.pending:
                continue
            if self.repair:
                stranded.enqueue(again, queue=self.queue)
            yield Finding(
                invariant="I8",
                kind="submission",
                subject=submission_id,
                what="it waits, and has no job",
                remedy="enters it into the queue",
            )

    # -- what goes on beside ---------------------------------------------------------------

    def _rejudges(self, _after: str) -> Step:
        quiet = rejudging.standing_still(before=self.now() - STANDS_STILL_AFTER)
        found = [
            Finding(
                invariant="I8",
                kind="rejudge",
                subject=one["_id"],
                what=f"nobody has moved it on since {_moment(one)}, and it is {one['state']}",
                remedy="moves it on by a step",
            )
            for one in quiet
        ]
        forgotten = rejudging.forgotten_holds(queue=self.queue)
        found += [
            Finding(
                invariant="I8",
                kind="rejudge",
                subject=rejudge_id,
                what="its jobs are held back, and it is not on hold",
                remedy="hands them out again",
            )
            for rejudge_id in forgotten
        ]
        if self.repair and quiet:
            rejudging.advance(queue=self.queue, now=self.now)
        if self.repair:
            for rejudge_id in forgotten:
                self.queue.release(rejudge_id)
        return Step(findings=found, looked_at=len(found))

    def _homeworks(self, _after: str) -> Step:
        stuck = check.stuck(None, now=self.now())
        if self.repair:
            check.finish(stuck)
        found = [
            Finding(
                invariant="I6",
                kind="homework",
                subject=homework_id,
                what="an edit's recompute does not end",
                remedy="recomputes it",
            )
            for homework_id in stuck
        ]
        return Step(findings=found, looked_at=engine.homeworks().estimated_document_count())

    # -- totals ----------------------------------------------------------------------------

    def _counters(self, after: str) -> Step:
        names = [
            user["_id"]
            for user in engine.users()
            .find({"_id": {"$gt": after}}, {"_id": 1})
            .sort("_id", 1)
            .limit(TOTALS_PAGE)
        ]
        items = [check.Item(username=name, homework_id=None) for name in names]
        following = names[-1] if len(names) == TOTALS_PAGE else None
        return Step(findings=self._totals(items), looked_at=len(items), after=following)

    def _standings(self, after: str) -> Step:
        """One homework's students after another's; `after` is homework/student."""
        homework_id, _, student = after.partition("/")
        beyond = "$gt" if student == _LAST else "$gte"
        homework = engine.homeworks().find_one(
            {"_id": {beyond: homework_id}}, {"students": 1}, sort=[("_id", 1)]
        )
        if homework is None:
            return Step()
        if homework["_id"] != homework_id:
            student = ""
        kept = engine.student_statuses().find({"homework_id": homework["_id"]}, {"username": 1})
        everybody = {*homework["students"], *(status["username"] for status in kept)}
        page = sorted(name for name in everybody if name > student)[:TOTALS_PAGE]
        items = [check.Item(username=name, homework_id=homework["_id"]) for name in page]
        last = page[-1] if len(page) == TOTALS_PAGE else _LAST
        return Step(
            findings=self._totals(items),
            looked_at=len(items),
            after=f"{homework['_id']}/{last}",
        )

    def _totals(self, items: Sequence[check.Item]) -> list[Finding]:
        def pause() -> None:
            time.sleep(LOOK_AGAIN_S)

        differing = check.differences(items, advance=_nothing, pause=pause)
        unfinished = check.under_way(differing)
        differing = [one for one in differing if one.homework_id not in unfinished]
        if self.repair:
            check.repair(
                dict.fromkeys(
                    check.Item(username=one.username, homework_id=one.homework_id)
                    for one in differing
                ),
                advance=_nothing,
            )
        return [
            Finding(
                invariant="I6",
                kind="standing" if one.homework_id is not None else "counters",
                subject=one.whose,
                what=f"{one.what} is {one.stored!r}, and should be {one.recomputed!r}"[:500],
                remedy="rebuilds it",
            )
            for one in differing
        ]


_LAST = "\U0010ffff"
"""Comes after every name: the students of a homework are through."""
HANDED_IN_GRACE = timedelta(seconds=10)
"""A submission this young may be between its first write and its job."""
_WITH_BLOBS = {"status": 1, "submitted_at": 1, "code_blob": 1, "result.outputs_blob": 1}


def _without_blobs(page: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    """Yield programs and outputs that are referred to and gone."""
    referred = [blob for one in page for _, blob in _blobs(one)]
    gone = set(referred) - storage.existing(referred)
    for one in page:
        suspects = [blob for _, blob in _blobs(one) if blob in gone]
        # A newer result may have come, and its outputs with it.
        again = suspects and engine.submissions().find_one({"_id": one["_id"]}, _WITH_BLOBS)
        for what, blob in _blobs(again) if again else ():
            if blob in suspects and not storage.existing([blob]):
                yield Finding(
                    invariant="I8",
                    kind="submission",
                    subject=one["_id"],
                    what=f"its {what} is gone ({blob})",
                    remedy=NOTHING,
                )


def _blobs(submission: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a submission refers to and does not hold itself."""
    for what, blob in (
        ("program", submission.get("code_blob")),
        ("output", (submission.get("result") or {}).get("outputs_blob")),
    ):
        if isinstance(blob, str):
            yield what, blob


def _moment(rejudge: Mapping[str, Any]) -> str:
    at: datetime = rejudge.get("work_until") or rejudge["created_at"]
    return at.isoformat(timespec="seconds")


def _nothing() -> None:
    """Tell nobody how far it is: a step is short."""


_STAGES: dict[str, Callable[[Inspector, str], Step]] = {
    "jobs": Inspector._jobs,
    "submissions": Inspector._submissions,
    "rejudges": Inspector._rejudges,
    "homeworks": Inspector._homeworks,
    "counters": Inspector._counters,
    "standings": Inspector._standings,
}
STAGES = tuple(_STAGES)


def following(stage: str) -> str | None:
    """Return the stage after that one, or None: it is the last."""
    number = STAGES.index(stage) + 1
    return STAGES[number] if number < len(STAGES) else None


def sizes() -> dict[str, int]:
    """Return about how much each stage will look at."""
    jobs = engine.submissions().database["jobs"]
    return {
        "jobs": jobs.estimated_document_count(),
        "submissions": engine.submissions().estimated_document_count(),
        "rejudges": 0,
        "homeworks": engine.homeworks().estimated_document_count(),
        "counters": engine.users().estimated_document_count(),
        "standings": engine.student_statuses().estimated_document_count(),
    }
