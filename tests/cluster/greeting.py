"""Who opens a connection to a `mongod`, by the first message on it.

Pure. A member of a set names itself there (`hostInfo`, its host's name and its own port) if it
runs with `enableTestCommands`; a client's driver tells the `appName` of its URI. A `mongod` that
wants to know which entry of the set's configuration it is asks every host who it is (`_isSelf`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import bson
from bson.errors import BSONError

HEADER_BYTES = 16
MESSAGE_BYTES_MAX = 256 * 1024
OP_QUERY, OP_MSG = 2004, 2013


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """`port`: a member's own port. `application`: a client's name for itself, or empty."""

    port: int | None = None
    application: str = ""
    looks_for_itself: bool = False


UNKNOWN = Caller()
"""A client without a name."""


def caller_of(message: bytes) -> Caller:
    """Return who sends this as its first message. What is no greeting comes from a client."""
    body = _body(message)
    host, client = body.get("hostInfo"), body.get("client")
    application = client.get("application") if isinstance(client, dict) else None
    return Caller(
        port=int(host.rpartition(":")[2]) if isinstance(host, str) else None,
        application=application.get("name", "") if isinstance(application, dict) else "",
        looks_for_itself="_isSelf" in body,
    )


def length_of(header: bytes) -> int:
    """Return how many bytes the message has whose first 16 these are."""
    return int(struct.unpack_from("<i", header)[0])


def _body(message: bytes) -> dict[str, Any]:
    if len(message) < HEADER_BYTES:
        return {}
    operation = struct.unpack_from("<i", message, 12)[0]
    if operation == OP_MSG:
        start = HEADER_BYTES + 5  # flags, and the kind of the first section
    elif operation == OP_QUERY:
        start = message.find(b"\0", HEADER_BYTES + 4) + 9  # flags, collection, two numbers
    else:
        return {}
    try:
        size = struct.unpack_from("<i", message, start)[0]
        return bson.decode(message[start : start + size])
    except (struct.error, BSONError):
        return {}
