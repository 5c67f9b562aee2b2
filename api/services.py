"""What the handlers work with, put together by the composition root."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, cast

from flask import Flask, current_app

from api.guesses import Guesses
from api.links import Links
from api.ports import Judge, KnownFiles
from dispatch.clock import Clock
from dispatch.contract import HandOut, ProcessResult
from dispatch.feed import Feed
from dispatch.queue import Queue
from dispatch.wakeup import Wakeup
from settings import Settings

EXTENSION = "judge_dispatch"


class Waiters:
    """How many requests this process holds open at once. Beyond it, nobody waits."""

    def __init__(self, waiters_max: int) -> None:
        self._places = threading.BoundedSemaphore(waiters_max) if waiters_max else None

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Yield whether there is a place to wait in; it is given back at the end."""
        taken = self._places is not None and self._places.acquire(blocking=False)
        try:
            yield taken
        finally:
            if taken and self._places is not None:
                self._places.release()


class Thread(Protocol):
    """Something that runs beside the requests."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Services:
    """Everything a handler may call."""

    settings: Settings
    queue: Queue
    judge: Judge
    process_result: ProcessResult
    hand_out: HandOut
    known_files: KnownFiles
    now: Clock
    links: Links
    guesses: Guesses
    waiters: Waiters
    wakeup: Wakeup
    feed: Feed
    is_free: Callable[[str], bool]
    """Tells whether a submission's job may be claimed by somebody."""
    maintain: Callable[[], None]
    """Finishes what crashes left, at most every second; called by whoever polls."""
    housekeeping: Thread
    """What the process does beside its requests; the server starts it."""
    readiness: Callable[[], str | None]
    """Returns what keeps the service from working, or None."""


def install(app: Flask, services: Services) -> None:
    """Make `services` what the app's handlers work with."""
    app.extensions[EXTENSION] = services


def services() -> Services:
    """Return the current app's services."""
    return cast(Services, current_app.extensions[EXTENSION])
