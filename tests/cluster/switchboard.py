"""The wires of a replica set: every member is reached through a relay that can be cut.

`python -m tests.cluster.switchboard` reads commands on stdin, one JSON object a line, and answers
each with one line. A wire that is cut says nothing and breaks nothing, as a network does: what is
sent waits, and goes on when the wire is mended.

Whose connection it is, is told by the first message on it. Nothing is looked up: whatever else the
machine does, and however many sockets it has, the wires that are not cut never stand still.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.greeting import (
    HEADER_BYTES,
    MESSAGE_BYTES_MAX,
    UNKNOWN,
    Caller,
    caller_of,
    length_of,
)

READ_BYTES_MAX = 256 * 1024


@dataclass(eq=False)
class Wire:
    """One connection to the member `target`, opened by `caller`."""

    target: int
    caller: Caller = UNKNOWN
    open: asyncio.Event = field(default_factory=asyncio.Event)


class Switchboard:
    """Relays to the members; `isolated` ones are cut off from the others."""

    def __init__(self) -> None:
        self.isolated: set[int] = set()
        self.clients_too = True
        self.with_them: set[str] = set()
        self._members: dict[int, int] = {}
        self._wires: set[Wire] = set()
        self._servers: list[asyncio.Server] = []

    async def listen(self, number: int, port: int, member_port: int) -> None:
        """Relay what comes to `port` to the member."""
        self._members[member_port] = number

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._relay(Wire(number), member_port, reader, writer)

        server = await asyncio.start_server(
            relay, "127.0.0.1", port, limit=READ_BYTES_MAX, backlog=1_000
        )
        self._servers.append(server)

    def cut(self, isolated: set[int], *, clients_too: bool, with_them: set[str]) -> None:
        """Cut `isolated` off from the others, and from clients or not; nobody: mend everything.

        Clients of the names `with_them` are on the side of the isolated, and reach nobody else.
        """
        self.isolated, self.clients_too, self.with_them = isolated, clients_too, with_them
        for wire in self._wires:
            self._set(wire)

    def _is_blocked(self, wire: Wire) -> bool:
        caller, there = wire.caller, wire.target in self.isolated
        if not self.isolated or caller.looks_for_itself:
            # A member that is started while it is cut off must find itself behind its relay.
            return False
        if caller.port in self._members:
            return (self._members[caller.port] in self.isolated) != there
        if caller.application in self.with_them:
            return not there
        return self.clients_too and there

    def _set(self, wire: Wire) -> None:
        if self._is_blocked(wire):
            wire.open.clear()
        else:
            wire.open.set()

    async def _relay(
        self,
        wire: Wire,
        member_port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            greeting = await _first_message(reader)
            wire.caller = caller_of(greeting)
            self._wires.add(wire)
            self._set(wire)
            await wire.open.wait()
            there, back = await asyncio.open_connection(
                "127.0.0.1", member_port, limit=READ_BYTES_MAX
            )
        except (OSError, asyncio.IncompleteReadError):
            self._wires.discard(wire)
            writer.transport.abort()
            return
        back.write(greeting)
        ways = [
            asyncio.ensure_future(_pump(wire, reader, back)),
            asyncio.ensure_future(_pump(wire, there, writer)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)
        for end in (writer, back):
            end.transport.abort()
        self._wires.discard(wire)


async def _first_message(reader: asyncio.StreamReader) -> bytes:
    """Read it whole; of one that is too long to be a greeting, the header.

    Raises:
        IncompleteReadError: the other end hung up.
    """
    header = await reader.readexactly(HEADER_BYTES)
    left = length_of(header) - HEADER_BYTES
    return header + (await reader.readexactly(left) if 0 < left <= MESSAGE_BYTES_MAX else b"")


async def _pump(wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until an end hangs up, however it does that."""
    with contextlib.suppress(OSError):
        while piece := await reader.read(READ_BYTES_MAX):
            if not wire.open.is_set():
                await wire.open.wait()
            writer.write(piece)
            await writer.drain()


async def main() -> None:
    board = Switchboard()
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        command: dict[str, Any] = json.loads(line)
        match command["do"]:
            case "listen":
                await board.listen(command["member"], command["port"], command["member_port"])
            case "cut":
                board.cut(
                    set(command["members"]),
                    clients_too=command["clients_too"],
                    with_them=set(command["with_them"]),
                )
            case other:
                raise ValueError(other)
        print("ok", flush=True)
    # At once: the connections that are left have nobody to be closed for.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
