"""The wires of a replica set: every member is reached through a relay that can be cut.

`python -m tests.cluster.switchboard` reads commands on stdin, one JSON object a line, and answers
each with one line. A wire that is cut says nothing and breaks nothing, as a network does: what is
sent waits, and goes on when the wire is mended.

Whose connection it is, is told by its socket: a member's own sockets are found by its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

import psutil

READ_BYTES_MAX = 256 * 1024
LOOK_EVERY_S = 0.1


@dataclass(eq=False)
class Wire:
    """One connection to a member. `source`: the member that opened it, if one did.

    Whose it is, is looked up when it matters: during a cut, for many at once.
    """

    port: int
    target: int
    known: bool = False
    source: int | None = None
    open: asyncio.Event = field(default_factory=asyncio.Event)


class Switchboard:
    """Relays to the members; `isolated` ones are cut off."""

    def __init__(self) -> None:
        self.pids: dict[int, int] = {}
        self.isolated: set[int] = set()
        self.clients_too = True
        self._wires: set[Wire] = set()
        self._servers: list[asyncio.Server] = []

    async def listen(self, number: int, port: int, member_port: int) -> None:
        """Relay what comes to `port` to the member."""

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._relay(number, member_port, reader, writer)

        server = await asyncio.start_server(
            relay, "127.0.0.1", port, limit=READ_BYTES_MAX, backlog=1_000
        )
        self._servers.append(server)

    def cut(self, isolated: set[int], *, clients_too: bool) -> None:
        """Cut `isolated` off from the others, and from clients or not; nobody: mend everything."""
        self.isolated, self.clients_too = isolated, clients_too
        self.recognise()
        for wire in self._wires:
            self._set(wire)

    async def watch(self) -> None:
        """During a cut, see again and again whose the new connections are."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.recognise()

    def recognise(self) -> None:
        """Find out whose connections are whose, where it matters."""
        unknown = [wire for wire in self._wires if not wire.known]
        if not self.isolated or not unknown:
            return
        owners: dict[int, int] = {}
        for number, pid in self.pids.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                for end in psutil.Process(pid).net_connections("tcp4"):
                    owners[end.laddr.port] = number
        for wire in unknown:
            wire.known, wire.source = True, owners.get(wire.port)
            self._set(wire)

    def _set(self, wire: Wire) -> None:
        if not self.isolated:
            blocked = False
        elif not wire.known:
            blocked = True
        elif wire.source is None:
            blocked = self.clients_too and wire.target in self.isolated
        else:
            blocked = (wire.source in self.isolated) != (wire.target in self.isolated)
        if blocked:
            wire.open.clear()
        else:
            wire.open.set()

    async def _relay(
        self,
        number: int,
        member_port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        wire = Wire(writer.get_extra_info("peername")[1], number)
        self._wires.add(wire)
        self._set(wire)
        try:
            await wire.open.wait()
            there, back = await asyncio.open_connection(
                "127.0.0.1", member_port, limit=READ_BYTES_MAX
            )
        except OSError:
            self._wires.discard(wire)
            writer.transport.abort()
            return
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
    watching = asyncio.ensure_future(board.watch())
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        command: dict[str, Any] = json.loads(line)
        match command["do"]:
            case "listen":
                await board.listen(command["member"], command["port"], command["member_port"])
            case "pid":
                board.pids[command["member"]] = command["pid"]
            case "cut":
                board.cut(set(command["members"]), clients_too=command["clients_too"])
            case other:
                raise ValueError(other)
        print("ok", flush=True)
        if watching.done():
            watching.result()
    # At once: the connections that are left have nobody to be closed for.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
