"""A service whose commands are kept as they are sent, and what tests of its reads do with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
from tests.factories import EPOCH, ManualClock, Runner, Service
from tests.fixtures import build_app

READS = ("find", "aggregate", "count", "distinct")
COUNTED = ("submissions", "users", "student_status", "homeworks", "rejudge_items")
"""What a recompute goes by, and what becomes of a rejudge."""
DATABASE = "read_in_order"

Document = dict[str, Any]


@dataclass
class Sent:
    """A command and, once there, what the server said to it."""

    name: str
    collection: str
    command: Document
    reply: Document | None = None

    @property
    def level(self) -> str | None:
        level: str | None = (self.command.get("readConcern") or {}).get("level")
        return level


class Recorder(CommandListener):
    """Keeps what was sent, in order."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self._by_id: dict[int, Sent] = {}

    def started(self, event: CommandStartedEvent) -> None:
        collection = str(event.command.get(event.command_name))
        sent = Sent(event.command_name, collection, dict(event.command))
        self._by_id[event.request_id] = sent
        self.sent.append(sent)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        self._by_id[event.request_id].reply = dict(event.reply)

    def failed(self, event: CommandFailedEvent) -> None:
        pass

    def of(self, act: Callable[[], object]) -> list[Sent]:
        """Return what `act` sends."""
        began = len(self.sent)
        act()
        return self.sent[began:]


@contextmanager
def recorded(
    mongod: EmbeddedMongo, mongo_client: MongoClient[Document]
) -> Iterator[tuple[Service, Recorder]]:
    """Ada and bob, a problem, a homework; all that the service sends is kept."""
    kept, clock, recorder = dict(engine.CLIENT_OPTIONS), ManualClock(), Recorder()
    engine.CLIENT_OPTIONS["event_listeners"] = [recorder]
    try:
        app = build_app(mongod.uri_for(DATABASE), clock, job_retention_days=1)
        maintenance = app.extensions["judge_dispatch"].maintain
        maintenance._next_tidy = datetime.max.replace(tzinfo=UTC)
        made = Service(app=app, clock=clock, database=mongo_client[DATABASE])
        for name in ("ada", "bob"):
            made.user(name)
        made.problem(1)
        made.homework("hw", [1], ["ada", "bob"], end=EPOCH - timedelta(hours=1))
        yield made, recorder
    finally:
        engine.disconnect()
        engine.CLIENT_OPTIONS.clear()
        engine.CLIENT_OPTIONS.update(kept)
        mongo_client.drop_database(DATABASE)


def judged(service: Service, runner: Runner, submission_id: str, verdict: str) -> None:
    service.submit("ada", 1, submission_id)
    service.judge(runner, submission_id, verdict)


def started(service: Service, *, mode: str = "replace", steps: int = 3) -> str:
    judge: Any = service.services.judge
    asked = judge.start_rejudge(filter={"problem_id": 1}, mode=mode, by="the test")
    advance(service, steps)
    return str(asked["rejudge_id"])


def advance(service: Service, steps: int = 1) -> None:
    maintenance: Any = service.services.maintain
    for _ in range(steps):
        maintenance.advance_rejudges()


def maintain(service: Service, step: str) -> None:
    maintenance: Any = service.services.maintain
    maintenance._each([getattr(maintenance, step)])
