"""What a process's claims have tried lately, so that they do not all run for the same jobs.

Guarantees: it decides nothing, and forgets within seconds. A job is passed over as gone when it was
just seen to have left the line under this very fence, so that a claim could only fail (or, where a
failover takes that back, come a moment later); one that another claim is at is tried last.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from dispatch.records import Job
from dispatch.states import State

GONE_FOR_S = 2.0
"""For longer than a claim takes from its look at the line to its write, and not much: what was seen
may be undone, by a failover or by a backup that is put back, and a write may hang."""

Key = tuple[str, int]


class Tried:
    """Of one process; for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Key, float] = {}
        self._gone: OrderedDict[Key, float] = OrderedDict()

    def is_gone(self, job: Job) -> bool:
        """Tell whether the job, as it was read, has just been seen to have left the line."""
        seen_at = self._gone.get(_key(job)) if job.state is State.PENDING else None
        return seen_at is not None and time.monotonic() < seen_at + GONE_FOR_S

    @contextmanager
    def trying(self, job: Job) -> Iterator[bool]:
        """Hold the job's place while a claim is at it; yield whether no other is.

        A claim whose write hangs holds it no longer than what is gone is kept.
        """
        key, began_s = _key(job), time.monotonic()
        with self._lock:
            free = began_s >= self._under_way.get(key, float("-inf")) + GONE_FOR_S
            if free:
                self._under_way[key] = began_s
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    if self._under_way.get(key) == began_s:
                        del self._under_way[key]

    def gone(self, job: Job) -> None:
        """Note that a pending job has left the line. (An orphan may come back under its fence.)"""
        if job.state is not State.PENDING:
            return
        now_s = time.monotonic()
        with self._lock:
            while self._gone and next(iter(self._gone.values())) + GONE_FOR_S <= now_s:
                self._gone.popitem(last=False)
            self._gone[_key(job)] = now_s
            self._gone.move_to_end(_key(job))

    def forget(self) -> None:
        """Forget everything, as after putting a database back."""
        with self._lock:
            self._gone.clear()


def _key(job: Job) -> Key:
    return job.job_id, job.fence
