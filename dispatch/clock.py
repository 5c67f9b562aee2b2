"""Time, as the database server tells it.

Guarantees: `now()` is in UTC, with zone, cut to whole milliseconds (BSON keeps no more), and
does not depend on this host's wall clock: deadlines written by hosts whose clocks disagree
still compare.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from pymongo import MongoClient
from pymongo.errors import PyMongoError

Clock = Callable[[], datetime]
"""Returns the current time, UTC, whole milliseconds."""

log = structlog.get_logger(__name__)

RESYNC_S = 5.0
ROUND_TRIP_MAX_S = 0.5
"""A slower answer (a pause of this process, say) says too little about the server's time."""


def cut_to_ms(moment: datetime) -> datetime:
    """Return `moment` without its microseconds below one millisecond."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def system_clock() -> datetime:
    """Return this host's own time. For the in-process store, where there is no server."""
    return cut_to_ms(datetime.now(UTC))


class ServerClock:
    """The database server's clock, carried forward on this host's monotonic clock.

    Every `RESYNC_S` seconds one `hello` is asked for the server's time; half its round trip is
    the error. Between two of them only the monotonic clock is used, so that stepping this
    host's wall clock has no effect at all.
    """

    def __init__(
        self,
        client: MongoClient[dict[str, Any]],
        *,
        resync_s: float = RESYNC_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._resync_s = resync_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._anchor: tuple[datetime, float] | None = None
        self._next_sync = 0.0

    def __call__(self) -> datetime:
        """Return the server's time.

        Raises:
            PyMongoError: the server has never been reached so far.
        """
        anchor = self._anchor
        if anchor is None or self._monotonic() >= self._next_sync:
            anchor = self._synchronise()
        server_time, at = anchor
        return cut_to_ms(server_time + timedelta(seconds=self._monotonic() - at))

    def _synchronise(self) -> tuple[datetime, float]:
        with self._lock:
            if self._anchor is not None and self._monotonic() < self._next_sync:
                return self._anchor
            sent = self._monotonic()
            try:
                answer = self._client.admin.command("hello")
            except PyMongoError as error:
                if self._anchor is None:
                    raise
                # The old anchor still holds; whatever is done with the time will itself fail.
                log.warning("clock_not_synchronised", error=type(error).__name__)
                self._next_sync = self._monotonic() + self._resync_s
                return self._anchor
            received = self._monotonic()
            if self._anchor is not None and received - sent > ROUND_TRIP_MAX_S:
                return self._anchor  # asked again by the next call
            server_time: datetime = answer["localTime"]
            if server_time.tzinfo is None:
                server_time = server_time.replace(tzinfo=UTC)
            self._anchor = (server_time, (sent + received) / 2)
            self._next_sync = received + self._resync_s
            return self._anchor
