"""A connection is known by the first message on it."""

from __future__ import annotations

import struct
from typing import Any

import bson
import pytest

from tests.cluster.greeting import OP_MSG, OP_QUERY, UNKNOWN, Caller, caller_of, length_of

CLIENT = {"driver": {"name": "PyMongo"}, "application": {"name": "api0"}}


def message(body: dict[str, Any], operation: int = OP_MSG) -> bytes:
    document = bson.encode(body)
    if operation == OP_MSG:
        payload = struct.pack("<ib", 0, 0) + document
    else:
        payload = struct.pack("<i", 0) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1) + document
    return struct.pack("<iiii", 16 + len(payload), 1, 0, operation) + payload


@pytest.mark.parametrize("operation", [OP_MSG, OP_QUERY])
@pytest.mark.parametrize(
    ("body", "caller"),
    [
        ({"isMaster": 1, "hostInfo": "vm:4711"}, Caller(port=4711)),
        (
            # As the one that fetches the oplog does: a member, whatever it calls itself.
            {"isMaster": 1, "hostInfo": "vm:4711", "client": {"application": {"name": "Fetcher"}}},
            Caller(port=4711, application="Fetcher"),
        ),
        ({"ismaster": 1, "client": CLIENT}, Caller(application="api0")),
        ({"ismaster": 1, "client": {"driver": {"name": "PyMongo"}}}, UNKNOWN),
        ({"_isSelf": 1, "$db": "admin"}, Caller(looks_for_itself=True)),
        ({"ping": 1}, UNKNOWN),
    ],
)
def test_a_greeting_says_who_it_comes_from(
    body: dict[str, Any], caller: Caller, operation: int
) -> None:
    sent = message(body, operation)
    assert caller_of(sent) == caller
    assert length_of(sent[:16]) == len(sent)


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\n\r\n", message({"isMaster": 1})[:30], message({}, 2012)]
)
def test_what_is_no_greeting_comes_from_a_client(sent: bytes) -> None:
    assert caller_of(sent) == UNKNOWN
