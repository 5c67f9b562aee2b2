"""I6 and I8: the API is killed before and after every write of a landing; it ends as if it had not.

`test_killed_at_every_write` kills a first landing; here are the landings that replace a result,
touch several homeworks, or bring a judge error. Killed before a write, the runner resends; killed
after it, the lease runs out and another runner finishes. Both meet every state that a kill can
leave, since after one write is before the next.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from pymongo import MongoClient

from dispatch.records import Job
from mongo.embedded import EmbeddedMongo
from tests.factories import result_body
from tests.faults.cable import Cable
from tests.faults.dying_service import Death, serve
from tests.faults.landing_scenarios import SCENARIOS, Scenario
from tests.faults.landing_world import World, connected

pytestmark = pytest.mark.usefixtures("blobs_apart")

KILLED = [scenario for scenario in SCENARIOS if scenario.name not in ("first", "je_by_abort")]

_forkserver = multiprocessing.get_context("forkserver")
_forkserver.set_forkserver_preload(["tests.faults.dying_service"])


@pytest.fixture(scope="module")
def cable() -> Cable:
    return Cable()


@pytest.fixture(scope="module")
def course(
    mongod: EmbeddedMongo, mongo_client: MongoClient[dict[str, Any]], cable: Cable
) -> Iterator[World]:
    uri = mongod.uri_for("killed")
    with connected(uri, mongo_client, cable) as made:
        yield made
        mongo_client.drop_database("killed")


@pytest.fixture
def world(course: World) -> World:
    course.empty()
    return course


@contextmanager
def dying(world: World, death: Death) -> Iterator[str]:
    """Yield the URL of a service with that death before it, whose clock shows the world's time."""
    settings = {
        "mongodb_uri": world.uri,
        "secret_key": "signs the links of a service",
        "retry_pauses_s": (),
        "give_up_s": 0,
        "log_level": "CRITICAL",
    }
    receive, send = _forkserver.Pipe(duplex=False)
    process = _forkserver.Process(target=serve, args=(settings, death, send, world.clock()))
    process.start()
    send.close()
    try:
        yield f"http://127.0.0.1:{receive.recv()}"
    finally:
        process.kill()
        process.join()
        process.close()
        receive.close()


def act_over_http(world: World, scenario: Scenario, lease: Job, death: Death) -> bool:
    """Let a dying service land; tell whether it died of it."""
    runner = f"/runners/{world.runner.runner_id}"
    headers = {"Authorization": f"Bearer {world.token}"}
    with dying(world, death) as url, httpx.Client(base_url=url, headers=headers) as client:
        try:
            if scenario.tasks:
                body = {**result_body(*scenario.tasks), "lease_token": lease.lease_token}
                client.put(f"{runner}/jobs/{lease.job_id}/complete", json=body, timeout=20)
            else:
                # The sweep runs on a poll.
                client.get(f"{runner}/next-job", timeout=20)
        except httpx.TransportError:
            return True
        return False


@pytest.mark.parametrize("scenario", KILLED, ids=lambda scenario: scenario.name)
def test_i6_killed_at_every_write(world: World, cable: Cable, scenario: Scenario) -> None:
    scenario.prepare(world)
    before, lease, at = world.snapshot(), scenario.lease(world), world.clock()
    with cable.watched():
        assert scenario.act(world, lease)
    writes = len(cable.writes)
    assert writes >= scenario.writes_min, cable.writes
    world.maintain()
    expected = world.digest()
    route = rf"(PUT|GET) /runners/{world.runner.runner_id}/.*"
    # As many as there are over HTTP: a poll also notes that its runner was seen.
    for write in itertools.count(1):
        for after in (False, True):
            world.restore(before, at=at)
            death = Death(route=route, write=write, after=after, blobs_apart=True)
            if not act_over_http(world, scenario, lease, death):
                assert write > writes, "a write of the landing was not met"
                return
            finish = scenario.hand_over if after else scenario.resend
            finish(world, lease)
            world.maintain()
            assert world.digest() == expected, death
            assert world.wrong() == [], death
