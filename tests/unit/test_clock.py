"""The clock follows the database server, whatever this host believes of the time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import AutoReconnect

from dispatch.clock import RESYNC_S, ROUND_TRIP_MAX_S, ServerClock, cut_to_ms, system_clock

START = datetime(2030, 1, 1, tzinfo=UTC)


class World:
    """A server with a clock of its own, and this host's monotonic clock."""

    def __init__(self) -> None:
        self.elapsed_s = 1000.0
        self.server_ahead_s = 0.0
        self.out_s = self.back_s = 0.0
        self.reachable = True
        self.asked = 0
        self.admin = self

    def command(self, name: str) -> dict[str, Any]:
        assert name == "hello"
        self.asked += 1
        self.elapsed_s += self.out_s
        if not self.reachable:
            raise AutoReconnect("no server")
        answer = {"localTime": self.server_time()}
        self.elapsed_s += self.back_s
        return answer

    def server_time(self) -> datetime:
        return START + timedelta(seconds=self.elapsed_s - 1000 + self.server_ahead_s)

    def monotonic(self) -> float:
        return self.elapsed_s


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clock(world: World) -> Callable[[], datetime]:
    return ServerClock(world, monotonic=world.monotonic)  # type: ignore[arg-type]


def test_it_tells_the_servers_time(world: World, clock: Callable[[], datetime]) -> None:
    assert clock() == START
    world.elapsed_s += 1.5
    assert clock() == START + timedelta(seconds=1.5)
    assert world.asked == 1


def test_half_the_round_trip_is_taken_off(world: World, clock: Callable[[], datetime]) -> None:
    world.out_s = world.back_s = 0.1
    assert clock() == world.server_time()


def test_it_asks_again_after_a_while(world: World, clock: Callable[[], datetime]) -> None:
    clock()
    world.server_ahead_s = 2.0
    world.elapsed_s += RESYNC_S - 0.001
    assert clock() != world.server_time()
    world.elapsed_s += 0.001
    assert clock() == world.server_time()
    assert world.asked == 2


def test_a_slow_answer_is_not_believed(world: World, clock: Callable[[], datetime]) -> None:
    clock()
    world.server_ahead_s = 2.0
    world.elapsed_s += RESYNC_S
    world.out_s = ROUND_TRIP_MAX_S + 0.1
    assert clock() == world.server_time() - timedelta(seconds=2)
    world.out_s = 0.0
    assert clock() == world.server_time()


def test_a_first_answer_is_believed_however_slow(
    world: World, clock: Callable[[], datetime]
) -> None:
    world.out_s = world.back_s = 2.0
    assert clock() == world.server_time()


def test_without_a_server_the_old_time_goes_on(world: World, clock: Callable[[], datetime]) -> None:
    clock()
    world.reachable = False
    world.elapsed_s += RESYNC_S
    assert clock() == world.server_time()
    world.elapsed_s += RESYNC_S / 2
    assert clock() == world.server_time()
    assert world.asked == 2, "a server that is away is not asked at every call"
    world.reachable = True
    world.elapsed_s += RESYNC_S
    assert clock() == world.server_time()
    assert world.asked == 3


def test_a_server_never_reached_is_said(world: World, clock: Callable[[], datetime]) -> None:
    world.reachable = False
    with pytest.raises(AutoReconnect):
        clock()
    world.reachable = True
    assert clock() == world.server_time()


def test_times_are_whole_milliseconds_in_utc(world: World, clock: Callable[[], datetime]) -> None:
    world.elapsed_s += 0.0012345
    assert clock().microsecond == 1000
    assert clock().tzinfo is UTC
    assert cut_to_ms(START.replace(microsecond=999_999)).microsecond == 999_000
    assert system_clock().microsecond % 1000 == 0


def test_a_naive_answer_is_utc(world: World) -> None:
    class Naive(World):
        def server_time(self) -> datetime:
            return super().server_time().replace(tzinfo=None)

    naive = Naive()
    assert ServerClock(naive, monotonic=naive.monotonic)() == START  # type: ignore[arg-type]


def test_it_follows_a_real_server(mongo_client: MongoClient[dict[str, Any]]) -> None:
    def server_time() -> datetime:
        told: datetime = mongo_client.admin.command("hello")["localTime"]
        return told.replace(tzinfo=UTC)

    clock = ServerClock(mongo_client)
    before, told, after = server_time(), clock(), server_time()
    slack = timedelta(seconds=ROUND_TRIP_MAX_S)
    assert before - slack <= told <= after + slack
