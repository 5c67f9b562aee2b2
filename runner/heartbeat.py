"""Heartbeats on a fixed beat, from a thread of their own.

Guarantees: beats are due at start + n * interval, however long each takes, and a beat that is
missed is not made up for; no failure ends the thread; two 401 in a row are reported once, and so is
being asked to drain; the languages are told when they changed, until a beat with them arrived.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

import structlog

from runner.client import Beat, RunnerClient, Unauthorized, Unavailable

UNAUTHORIZED_MAX = 2
# Connecting, writing and reading are timed one by one; together they fit into one beat.
TIMEOUT_SHARE = 0.25

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Heartbeat:
    """Sends one heartbeat per `interval_s`. Callbacks run in the heartbeat's thread.

    `languages_told` are those that the service was told at registration.
    `wait(seconds)` returns true when the thread is to end; with `clock` it can be replaced.
    """

    def __init__(
        self,
        *,
        client: RunnerClient,
        interval_s: float,
        active_job_ids: Callable[[], Iterable[str]],
        on_lost: Callable[[frozenset[str]], None],
        on_drain: Callable[[], None],
        on_identity_lost: Callable[[], None],
        languages: Callable[[], list[int]] | None = None,
        languages_told: Sequence[int] = (),
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._client = client
        self._interval_s = interval_s
        self._active_job_ids = active_job_ids
        self._on_lost = on_lost
        self._on_drain = on_drain
        self._on_identity_lost = on_identity_lost
        self._languages = languages
        self._languages_told = list(languages_told)
        self._clock = clock
        self._ended = threading.Event()
        self._wait = wait or self._ended.wait
        self._unauthorized = 0
        self._asked_to_drain = False
        self._thread = threading.Thread(target=self.run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread; the first beat is sent at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it, for at most one beat."""
        self._ended.set()
        self._thread.join(self._interval_s)

    def run(self) -> None:
        """Beat until told to end."""
        due = self._clock()
        while True:
            try:
                self.beat()
            except Exception:  # noqa: BLE001 - without beats every lease runs out
                _log.exception("heartbeat_failed")
            due = next_beat_s(due, self._clock(), self._interval_s)
            if self._wait(max(0.0, due - self._clock())):
                return

    def beat(self) -> None:
        """Send one heartbeat and act on the answer."""
        languages = self._languages_to_tell()
        answer = self._client.heartbeat(
            self._active_job_ids(),
            languages=languages,
            timeout_s=self._interval_s * TIMEOUT_SHARE,
        )
        match answer:
            case Beat():
                self._unauthorized = 0
                if languages is not None:
                    self._languages_told = languages
                if answer.lost_job_ids:
                    self._on_lost(answer.lost_job_ids)
                if answer.drain and not self._asked_to_drain:
                    self._asked_to_drain = True
                    _log.info("asked_to_drain")
                    self._on_drain()
            case Unauthorized():
                self._unauthorized += 1
                _log.error("heartbeat_unauthorized", in_a_row=self._unauthorized)
                if self._unauthorized == UNAUTHORIZED_MAX:
                    self._on_identity_lost()
            case Unavailable():
                # It says nothing about our identity, so it breaks a row of 401 too.
                self._unauthorized = 0
                _log.warning("heartbeat_unanswered", detail=answer.detail)
            case _:
                assert_never(answer)

    def _languages_to_tell(self) -> list[int] | None:
        """Return the languages where the service knows of others, or `None`."""
        if self._languages is None:
            return None
        languages = self._languages()
        return None if languages == self._languages_told else languages


def next_beat_s(due_s: float, now_s: float, interval_s: float) -> float:
    """Return the first time after now on the grid of beats that `due_s` lies on."""
    missed = max(0, math.floor((now_s - due_s) / interval_s))
    return due_s + (missed + 1) * interval_s
