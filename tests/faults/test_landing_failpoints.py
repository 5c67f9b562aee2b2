"""I6 and I8: the server itself fails a landing, at every write; the runner's resend finishes it.

`failCommand` strikes the service's connections alone, for exactly one write. What the driver can
retry it retries, and then nobody notices; what it cannot, the landing's own restore and the resend
absorb.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pymongo.common
import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from pymongo.monitoring import CommandStartedEvent

from mongo import engine
from mongo.embedded import EmbeddedMongo
from tests.faults.cable import Cable
from tests.faults.landing_scenarios import SCENARIOS, Scenario
from tests.faults.landing_world import World, connected

pytestmark = pytest.mark.usefixtures("blobs_apart")

NOTES = ("update runners", "findAndModify runners")
INTERRUPTED, SHUTDOWN_IN_PROGRESS, WRITE_CONCERN_TIMEOUT = 11601, 91, 64
RETRYABLE = {"errorCode": SHUTDOWN_IN_PROGRESS, "errorLabels": ["RetryableWriteError"]}


@dataclass(frozen=True, kw_only=True)
class Strike:
    """How one write fails."""

    name: str
    data: dict[str, Any]
    retry_too: bool
    """The driver's retry fails as well."""


HARD = (
    Strike(name="connection_closed", data={"closeConnection": True}, retry_too=True),
    Strike(name="refused", data={"errorCode": INTERRUPTED}, retry_too=True),
    # Applied, but not acknowledged: the caller is told of an error.
    Strike(
        name="not_acknowledged",
        data={"writeConcernError": {"code": WRITE_CONCERN_TIMEOUT, "errmsg": "waiting timed out"}},
        retry_too=True,
    ),
)
SOFT = (
    Strike(name="connection_closed_once", data={"closeConnection": True}, retry_too=False),
    Strike(name="stepping_down", data=RETRYABLE, retry_too=False),
)


class Striker(Cable):
    """Sets the fail point just before the chosen write is sent."""

    def __init__(self, admin: MongoClient[dict[str, Any]]) -> None:
        super().__init__()
        self._admin = admin
        self.strike: Strike | None = None
        self.at = 0
        self.retryable = False

    def before(self, number: int, event: CommandStartedEvent, *, retried: bool) -> None:
        if self.strike is None or number != self.at or (retried and not self.strike.retry_too):
            return
        self.retryable = "txnNumber" in event.command
        # Another client's, so not within the session that the landing is bound to.
        contextvars.Context().run(
            self._admin.admin.command,
            "configureFailPoint",
            "failCommand",
            mode={"times": 1},
            data={
                "failCommands": [event.command_name],
                "appName": engine.CLIENT_OPTIONS["appname"],
                **self.strike.data,
            },
        )


@pytest.fixture(scope="module")
def striker(mongo_client: MongoClient[dict[str, Any]]) -> Iterator[Striker]:
    yield Striker(mongo_client)
    mongo_client.admin.command("configureFailPoint", "failCommand", mode="off")


@pytest.fixture(scope="module")
def course(
    mongod: EmbeddedMongo, mongo_client: MongoClient[dict[str, Any]], striker: Striker
) -> Iterator[World]:
    uri = mongod.uri_for("struck")
    with pytest.MonkeyPatch.context() as patch:
        # What the driver waits before it looks for a server that hung up: seconds over all cases.
        patch.setattr(pymongo.common, "MIN_HEARTBEAT_INTERVAL", 0.01)
        with connected(uri, mongo_client, striker, serverMonitoringMode="poll") as made:
            yield made
            mongo_client.drop_database("struck")


@pytest.fixture
def world(course: World) -> World:
    course.empty()
    return course


def strike_at_each_write(
    world: World, striker: Striker, scenario: Scenario, strike: Strike
) -> Iterator[tuple[str, bool]]:
    """Yield each write, and whether the landing went on; all of them must end alike."""
    scenario.prepare(world)
    before, lease, at = world.snapshot(), scenario.lease(world), world.clock()
    with striker.watched():
        assert scenario.act(world, lease)
    writes = list(striker.writes)
    assert len(writes) >= scenario.writes_min, writes
    world.maintain()
    expected = world.digest()
    for write, name in enumerate(writes, start=1):
        world.restore(before, at=at)
        striker.strike, striker.at = strike, write
        done = False
        with striker.watched(), suppress(PyMongoError):
            done = scenario.act(world, lease)
        striker.strike = None
        if not done:
            scenario.resend(world, lease)
        world.maintain()
        assert world.digest() == expected, (write, striker.writes)
        assert world.wrong() == [], (write, striker.writes)
        yield name, done


@pytest.mark.parametrize("strike", HARD, ids=lambda strike: strike.name)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_i6_struck_at_every_write(
    world: World, striker: Striker, scenario: Scenario, strike: Strike
) -> None:
    noticed = [
        not done
        for name, done in strike_at_each_write(world, striker, scenario, strike)
        # Whose fault a failure was is noted or not: no landing fails by it.
        if name not in NOTES
    ]
    # A judge error's landing is begun again from any failure; else only a lost end may pass: a
    # resend is then told that it had landed.
    assert sum(noticed) >= len(noticed) - 1


@pytest.mark.parametrize("strike", SOFT, ids=lambda strike: strike.name)
@pytest.mark.parametrize("scenario", SCENARIOS[1:2], ids=lambda scenario: scenario.name)
def test_i6_what_the_driver_retries_nobody_notices(
    world: World, striker: Striker, scenario: Scenario, strike: Strike
) -> None:
    for _, done in strike_at_each_write(world, striker, scenario, strike):
        assert done or not striker.retryable
