"""Polling, slots and draining: what a runner does between its first and its last job.

Guarantees: a job is claimed only when a slot is free for it; every claimed job is listed in
heartbeats until its report is through; a drain starts nothing new, gives back what has not
started, and waits for the rest; told to end at once, it kills and gives back that too.
A runner that fails at its jobs claims fewer (`runner.health`), and one without a proven language
none (`runner.soundness`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

import structlog

from runner.client import NoJob, RunnerClient, Unauthorized, Unavailable
from runner.health import Health
from runner.isolation import Slot
from runner.jobrun import JobControl, JobRunner, Stop
from runner.process import JobStoppedError
from runner.soundness import Soundness
from runner.wire import AbortReason, JobOffer, UnreadableOffer

# How long the loop may take to notice a drain while all slots are busy.
SLOT_WAIT_S = 0.5
# After the loss of the identity the programs are killed; their threads get this long to clean up.
STOP_S_MAX = 10.0
# Told to end at once, they get so long to give their jobs back; for those that hang in a download
# that is done beside them, in the time that follows.
GIVE_BACK_S_MAX = 1.0
AT_ONCE_S_MAX = 4.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Finish(Enum):
    """Why the loop ended."""

    DRAINED = "drained"
    IDENTITY_LOST = "identity_lost"
    AT_ONCE = "at_once"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Active:
    offer: JobOffer
    control: JobControl
    thread: threading.Thread


class Loop:
    """Claims jobs for the free slots until drained. `clock()` gives monotonic seconds."""

    def __init__(
        self,
        *,
        client: RunnerClient,
        jobs: JobRunner,
        slots: list[Slot],
        health: Health,
        poll_interval_s: float,
        soundness: Soundness | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._health = health
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for slot in slots:
            self._free.put(slot)
        self._soundness = soundness
        self._poll_interval_s = poll_interval_s
        self._clock = clock
        self._guard = threading.Lock()
        self._active: set[_Active] = set()
        self._identity_lost = False
        self._at_once = False
        # Set when polling is to end, for whatever reason.
        self._closing = threading.Event()

    def run(self) -> Finish:
        """Poll and judge until `drain` or `lose_identity`; return when all jobs are through."""
        while not self._closing.is_set():
            try:
                slot = self._free.get(timeout=SLOT_WAIT_S)
            except queue.Empty:
                continue
            if not self._may_claim() or not self._has_languages(slot):
                self._free.put(slot)
                self._closing.wait(SLOT_WAIT_S)
            # A drain may be what freed the slot.
            elif not self._closing.is_set():
                self._poll(slot)
        self._join_all()
        if self._at_once:
            self._leave_at_once()
        if self._identity_lost:
            return Finish.IDENTITY_LOST
        return Finish.AT_ONCE if self._at_once else Finish.DRAINED

    def drain(self) -> None:
        """Stop polling; what has not started goes back, what runs finishes."""
        self._closing.set()
        self._stop_all(Stop.DRAIN)

    def end_at_once(self) -> None:
        """Drain, but kill what runs and give that back too."""
        self._at_once = True
        self._closing.set()
        self._stop_all(Stop.AT_ONCE)

    def lose_identity(self) -> None:
        """Stop everything: the service no longer knows this runner."""
        self._identity_lost = True
        self._closing.set()
        self._stop_all(Stop.IDENTITY_LOST)

    def active_job_ids(self) -> list[str]:
        """Return the jobs whose leases this runner needs."""
        with self._guard:
            return sorted({active.offer.job_id for active in self._active})

    def lose(self, job_ids: frozenset[str]) -> None:
        """Stop work on jobs that this runner no longer holds."""
        with self._guard:
            lost = [active for active in self._active if active.offer.job_id in job_ids]
        for active in lost:
            _log.warning("lease_lost", job_id=active.offer.job_id)
            active.control.stop(Stop.LOST)

    def _may_claim(self) -> bool:
        """Whether the runner is well, or has waited long enough to try one job."""
        if self._health.well:
            return True
        return self._health.pause_left_s() == 0 and not self.active_job_ids()

    def _has_languages(self, slot: Slot) -> bool:
        """Prove what is due, in a free slot; tell whether anything is left to ask jobs for."""
        if self._soundness is None:
            return True
        try:
            self._soundness.prove_due(slot, self._closing.is_set)
        except JobStoppedError:
            return False
        return bool(self._soundness.offered())

    def _poll(self, slot: Slot) -> None:
        """Ask once for a job for a free slot; where there is none, keep the polling interval."""
        asked_at = self._clock()
        answer = self._client.next_job(wait_s=int(self._poll_interval_s))
        if isinstance(answer, JobOffer):
            self._start(answer, slot)
            return
        self._free.put(slot)
        pause_s = self._poll_interval_s - (self._clock() - asked_at)
        match answer:
            case NoJob():
                pass
            case UnreadableOffer():
                _log.error("offer_unreadable", job_id=answer.job_id, detail=answer.detail)
                self._jobs.give_back(answer.job_id, AbortReason.REJECTED, answer.lease_token)
            case Unauthorized():
                # The heartbeats decide what follows from that.
                _log.warning("poll_unauthorized")
            case Unavailable():
                _log.warning("poll_unanswered", detail=answer.detail)
                pause_s = max(pause_s, answer.retry_after_s or 0.0)
            case _:
                assert_never(answer)
        self._closing.wait(max(0.0, pause_s))

    def _start(self, offer: JobOffer, slot: Slot) -> None:
        _log.info(
            "leased",
            job_id=offer.job_id,
            submission_id=offer.submission_id,
            attempt=offer.attempt,
            slot=slot.index,
        )
        self.lose(frozenset({offer.job_id}))  # An earlier lease of the same job is over.
        control = JobControl()
        thread = threading.Thread(
            target=lambda: self._work(active, slot), name=f"slot-{slot.index}", daemon=True
        )
        active = _Active(offer=offer, control=control, thread=thread)
        with self._guard:
            self._active.add(active)
        if self._closing.is_set():
            # The closing may have looked at the active jobs just before this one was there.
            control.stop(self._why_closing())
        thread.start()

    def _work(self, active: _Active, slot: Slot) -> None:
        try:
            self._jobs.run(active.offer, active.control, slot)
        finally:
            with self._guard:
                self._active.discard(active)
            self._free.put(slot)

    def _why_closing(self) -> Stop:
        if self._identity_lost:
            return Stop.IDENTITY_LOST
        return Stop.AT_ONCE if self._at_once else Stop.DRAIN

    def _stop_all(self, reason: Stop) -> None:
        with self._guard:
            jobs = list(self._active)
        for active in jobs:
            active.control.stop(reason)

    def _join_all(self) -> None:
        """Wait for the jobs under way: without bound while they count, else for a while."""
        deadline = None
        while True:
            with self._guard:
                jobs = list(self._active)
            if not jobs:
                return
            if self._identity_lost or self._at_once:
                left_s = STOP_S_MAX if self._identity_lost else GIVE_BACK_S_MAX
                deadline = deadline or self._clock() + left_s
                if self._clock() > deadline:
                    _log.error("jobs_left_behind", job_ids=self.active_job_ids())
                    return
            jobs[0].thread.join(SLOT_WAIT_S)

    def _leave_at_once(self) -> None:
        """Give back what its own thread has not given back yet."""
        with self._guard:
            offers = [active.offer for active in self._active]
        helpers = [
            threading.Thread(
                target=self._jobs.give_back,
                args=(offer.job_id, AbortReason.DRAIN, offer.lease_token),
                daemon=True,
            )
            for offer in offers
        ]
        for helper in helpers:
            helper.start()
        deadline = self._clock() + AT_ONCE_S_MAX
        for helper in helpers:
            helper.join(max(0.0, deadline - self._clock()))
