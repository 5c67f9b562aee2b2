"""How a waiting poll learns that there may be work, and a waiting reader that there is a verdict.

Guarantees: one notice wakes one poll, the one that has waited longest and may judge the job; who
is woken and finds nothing, or leaves, passes the notice on. A notice given after a waiter's `look`
began is never missed by its `wait`: where nobody sleeps who could take it, all who are looking look
again. Nothing here asks the database.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

HANDED_ON_MAX = 8
"""How many polls a notice wakes in vain before it is dropped. (The feed's look each second finds
what is left: a job of a problem that is not ready must not wake everybody.)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """There may be work: one job, or (`submission_id` None) several. `language` None: unknown."""

    number: int
    submission_id: str | None = None
    language: int | None = None
    handed_on: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Interest:
    """What somebody waits for: a job for a runner, or the verdict of a submission."""

    runner_id: str | None = None
    languages: tuple[int, ...] | None = None
    """What the runner is given; None: every language. None at all: it is woken by name only."""
    submission_id: str | None = None


class Waiter:
    """Somebody who waits. Used by the thread that waits, and by `Wakeup`."""

    def __init__(self, wakeup: Wakeup, interest: Interest) -> None:
        self.interest = interest
        self.notice: Notice | None = None
        self.looked = 0
        """The number of the last notice given before the last look began."""
        self.woken = threading.Event()
        self._wakeup = wakeup

    def look(self) -> Notice | None:
        """Say that a look begins; return the notice that it answers."""
        return self._wakeup.begin_look(self)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until there is reason to look again; False: `timeout_s` has passed."""
        self._wakeup.fall_asleep(self)
        return self.woken.wait(timeout_s)

    def may_take(self, notice: Notice) -> bool:
        """Tell whether the notice concerns this waiter and is news to it."""
        languages = self.interest.languages
        return (
            self.interest.runner_id is not None
            and languages != ()
            and self.looked < notice.number
            and (notice.language is None or languages is None or notice.language in languages)
        )


class Wakeup:
    """Who waits in this process, and what they are told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[Waiter, None] = {}
        self._asleep: dict[Waiter, None] = {}
        self._number = 0
        self._untaken: Notice | None = None
        self._closed = False
        self._somebody_waits: Callable[[], None] | None = None

    def when_somebody_waits(self, begin: Callable[[], None]) -> None:
        """Have `begin` called whenever somebody starts to wait: who gives notices may rest else."""
        self._somebody_waits = begin

    @property
    def closed(self) -> bool:
        """True once waiting has ended for good."""
        return self._closed

    @contextmanager
    def waiter(self, interest: Interest) -> Iterator[Waiter]:
        """Yield a waiter; what it was told and has not looked for goes to another at the end."""
        made = Waiter(self, interest)
        with self._lock:
            self._waiters[made] = None
        try:
            if self._somebody_waits is not None:
                self._somebody_waits()
            yield made
        finally:
            with self._lock:
                del self._waiters[made]
                self._asleep.pop(made, None)
                if made.notice is not None:
                    self._give(made.notice)

    def waiting_for_jobs(self) -> int:
        """Return how many wait for a job."""
        with self._lock:
            return sum(waiter.interest.runner_id is not None for waiter in self._waiters)

    def anybody(self) -> bool:
        """Tell whether anybody waits."""
        return bool(self._waiters)

    # -- what there is to tell -----------------------------------------------------------------

    def job(self, submission_id: str, language: int | None = None, *, hand_on: bool = True) -> None:
        """Say that this submission's job may be had. `hand_on` False: one look is enough."""
        self._new(submission_id, language, 0 if hand_on else HANDED_ON_MAX)

    def notify(self) -> None:
        """Say that there may be several jobs to be had. Who gets one has the next one look."""
        self._new(None, None, 0)

    def hand_on(self, notice: Notice) -> None:
        """Pass a notice on after a look in vain."""
        if notice.handed_on < HANDED_ON_MAX:
            with self._lock:
                self._give(replace(notice, handed_on=notice.handed_on + 1))

    def ended(self, submission_id: str | None = None) -> None:
        """Have those look who wait for this submission's verdict, or (None) for any."""
        with self._lock:
            for waiter in self._waiters:
                waits_for = waiter.interest.submission_id
                if waits_for is not None and submission_id in (None, waits_for):
                    waiter.woken.set()

    def runner(self, runner_id: str) -> None:
        """Have a runner's polls look: something about it has changed."""
        with self._lock:
            for waiter in self._waiters:
                if waiter.interest.runner_id == runner_id:
                    waiter.woken.set()

    def everybody(self) -> None:
        """Have everybody look: nobody knows what happened meanwhile."""
        with self._lock:
            for waiter in self._waiters:
                waiter.woken.set()

    def close(self) -> None:
        """End all waiting: the process is about to stop. Safe from a signal handler."""
        self._closed = True
        # Without the lock, which the interrupted thread may hold; who is missed wakes up by itself.
        for waiter in tuple(self._waiters):
            waiter.woken.set()

    # -- the waiters' side ---------------------------------------------------------------------

    def begin_look(self, waiter: Waiter) -> Notice | None:
        """See `Waiter.look`."""
        with self._lock:
            self._asleep.pop(waiter, None)
            waiter.woken.clear()
            waiter.looked = self._number
            notice, waiter.notice = waiter.notice, None
            return notice

    def fall_asleep(self, waiter: Waiter) -> None:
        """See `Waiter.wait`."""
        with self._lock:
            if self._closed or (self._untaken is not None and waiter.may_take(self._untaken)):
                waiter.woken.set()
            elif not waiter.woken.is_set():
                self._asleep.setdefault(waiter)

    def _new(self, submission_id: str | None, language: int | None, handed_on: int) -> None:
        with self._lock:
            self._number += 1
            notice = Notice(
                number=self._number,
                submission_id=submission_id,
                language=language,
                handed_on=handed_on,
            )
            self._give(notice)

    def _give(self, notice: Notice) -> None:
        """Wake who has slept longest of those that it concerns; the lock is held."""
        for waiter in self._asleep:
            if waiter.may_take(notice):
                del self._asleep[waiter]
                waiter.notice = notice
                waiter.woken.set()
                return
        if self._untaken is None or notice.number >= self._untaken.number:
            self._untaken = replace(notice, language=None)
