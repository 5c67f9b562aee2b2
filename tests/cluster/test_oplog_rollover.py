"""The oplog rolls over under a change stream: its place is gone, and it begins anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import Timestamp
from pymongo import MongoClient
from pymongo.errors import AutoReconnect, OperationFailure

from dispatch.clock import ServerClock
from dispatch.lease import LeaseRules
from dispatch.queue import open_queue
from dispatch.wakeup import Wakeup
from tests.cluster.replica_set import ReplicaSet

feeding = pytest.importorskip("dispatch.feed", reason="NOT TESTED: no change streams here")

HISTORY_LOST = 286
FILLER_BYTES = 900_000


@pytest.fixture
def small_oplog(tmp_path: Path) -> Iterator[MongoClient[dict[str, Any]]]:
    """A member that keeps its oplog for a megabyte or little more, up to its last checkpoint."""
    options = ("--oplogSize", "1", "--syncdelay", "1")
    with (
        ReplicaSet(tmp_path / "set", options=options, members=1) as replica_set,
        MongoClient(replica_set.uri, tz_aware=True) as client,
    ):
        yield client


def roll_over(client: MongoClient[dict[str, Any]]) -> None:
    """Write until what is in the oplog now is not any more."""
    oplog = client["local"]["oplog.rs"]
    newest: Timestamp = oplog.find_one({}, sort=[("$natural", -1)])["ts"]  # type: ignore[index]
    filler = client.get_default_database()["filler"]
    _until(
        lambda: (
            bool(filler.insert_one({"filler": b"x" * FILLER_BYTES}))
            and oplog.find_one({}, sort=[("$natural", 1)])["ts"] > newest  # type: ignore[index]
        )
    )


class Broken:
    """A stream that had come as far as `token` when the connection broke."""

    def __init__(self, token: Any) -> None:
        self.resume_token = token
        self._broken = False

    def try_next(self) -> None:
        if self._broken:
            raise AutoReconnect("gone")
        self._broken = True

    def close(self) -> None: ...


def test_a_place_in_the_oplog_that_is_gone_is_left_and_the_stream_begins_anew(
    small_oplog: MongoClient[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = open_queue(small_oplog.get_default_database(), rules=LeaseRules())
    queue.create_indexes()
    really_open = feeding.change_stream(queue)
    before = really_open(None)
    before.try_next()
    token = before.resume_token
    before.close()
    roll_over(small_oplog)
    opened: list[Any] = []

    def open_stream(resumed: Any) -> Any:
        opened.append(resumed)
        return Broken(token) if len(opened) == 1 else really_open(resumed)

    with pytest.raises(OperationFailure) as refused:
        really_open(token).try_next()
    assert refused.value.code == HISTORY_LOST

    monkeypatch.setattr(Wakeup, "anybody", lambda self: True)
    wakeup = Wakeup()
    feed = feeding.Feed(
        wakeup,
        queue,
        now=ServerClock(small_oplog),
        open_stream=open_stream,
        maintain=lambda: None,
    )
    feed.begin()
    try:
        _until(lambda: len(opened) >= 3 and feed.up)
    finally:
        wakeup.close()
        _until(lambda: not feed.up)
    assert opened == [None, token, None]


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
