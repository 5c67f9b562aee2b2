"""Counts the commands that a service sends to its database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo import MongoClient
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from mongo import engine
from mongo.embedded import EmbeddedMongo
from tests.factories import ManualClock, Service
from tests.fixtures import build_app

ASIDE = ("hello", "ping", "endSessions", "killCursors")
"""What drivers send for themselves, and the clock every few seconds."""


class Counter(CommandListener):
    """Keeps what was sent, as `<command> <collection>`, by any thread but the feed's.

    What that one sends is kept apart; `watched` is released with each.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: list[str] = []
        self.by_feed: list[str] = []
        self.watched = threading.Semaphore(0)

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in ASIDE:
            return
        what = f"{event.command_name} {event.command.get(event.command_name)}"
        with self._lock:
            if threading.current_thread().name == "feed":
                self.by_feed.append(what.split()[0])
                self.watched.release()
            else:
                self._sent.append(what)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass

    @classmethod
    @contextmanager
    def service(
        cls, mongod: EmbeddedMongo, raw: MongoClient[dict[str, Any]], name: str, **settings: Any
    ) -> Iterator[tuple[Service, Counter]]:
        """Yield a service on a database of its own, which is counted."""
        counter, kept = cls(), dict(engine.CLIENT_OPTIONS)
        engine.CLIENT_OPTIONS["event_listeners"] = [counter]
        clock = ManualClock()
        try:
            app = build_app(mongod.uri_for(name), clock, **settings)
            yield Service(app=app, clock=clock, database=raw[name]), counter
            app.extensions["judge_dispatch"].wakeup.close()
        finally:
            engine.disconnect()
            engine.CLIENT_OPTIONS.clear()
            engine.CLIENT_OPTIONS.update(kept)
            raw.drop_database(name)

    @contextmanager
    def counted(self) -> Iterator[list[str]]:
        """Yield a list that holds, at the end of the block, what was sent within it."""
        with self._lock:
            began = len(self._sent)
        found: list[str] = []
        yield found
        with self._lock:
            found += self._sent[began:]
