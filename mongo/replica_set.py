"""Brings one `mongod` on this machine up as the only member of a replica set.

Guarantees: when `make_writable` returns, the server at the port is primary and takes writes, be
it new, restarted cleanly, restarted after SIGKILL, or restarted on another port than the one its
stored configuration names. It either gets there within its limit or raises `TimeoutError`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

SET_NAME = "rs0"
_NOT_YET_INITIALIZED = 94
_PAUSE_S = 0.02


def make_writable(port: int, *, limit_s: float, check: Callable[[], None]) -> None:
    """Initiate or repair the set at 127.0.0.1:`port` and wait until it takes writes.

    `check` is called at every turn and may raise, for a server that has ended meanwhile.

    Raises:
        TimeoutError: it was not writable `limit_s` seconds after the call.
    """
    deadline = time.monotonic() + limit_s
    refusal: PyMongoError | None = None
    while not accepts_connections(port):
        _pause(check, deadline, "mongod accepts no connection")
    with connect(port) as client:
        while True:
            try:
                if _step_towards_primary(client, f"127.0.0.1:{port}"):
                    return
            except PyMongoError as error:
                # Just after the start a step may come too early and be refused; the next turn
                # repeats it. What stays refused is told at the deadline.
                refusal = error
            _pause(check, deadline, f"mongod became no primary; last refusal: {refusal}")


def accepts_connections(port: int) -> bool:
    """Whether anything listens at 127.0.0.1:`port`."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def refuses_connections(port: int) -> bool:
    """Whether nothing listens at 127.0.0.1:`port`. False for what listens and is slow."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def connect(port: int, *, limit_s: float = 2) -> MongoClient[dict[str, Any]]:
    """A client of this very member, whatever state the set is in."""
    return MongoClient(
        "127.0.0.1",
        port,
        directConnection=True,
        serverSelectionTimeoutMS=int(limit_s * 1000),
        connectTimeoutMS=int(limit_s * 1000),
        socketTimeoutMS=int(limit_s * 1000),
        tz_aware=True,
    )


def _pause(check: Callable[[], None], deadline: float, complaint: str) -> None:
    check()
    if time.monotonic() > deadline:
        raise TimeoutError(complaint)
    time.sleep(_PAUSE_S)


def _step_towards_primary(client: MongoClient[dict[str, Any]], host: str) -> bool:
    """Whether the member is a writable primary; if not, do what may still be missing."""
    if client.admin.command("hello")["isWritablePrimary"]:
        return True
    if _has_no_configuration(client):
        members = [{"_id": 0, "host": host}]
        client.admin.command("replSetInitiate", {"_id": SET_NAME, "members": members})
        return False
    # Read from where it is stored: a member that does not find itself in its configuration
    # refuses replSetGetConfig.
    config = client.local["system.replset"].find_one()
    if config is not None and config["members"][0]["host"] != host:
        config["members"][0]["host"] = host
        config["version"] += 1
        client.admin.command("replSetReconfig", config, force=True)
    return False


def _has_no_configuration(client: MongoClient[dict[str, Any]]) -> bool:
    try:
        client.admin.command("replSetGetStatus")
    except OperationFailure as failure:
        return failure.code == _NOT_YET_INITIALIZED
    return False
