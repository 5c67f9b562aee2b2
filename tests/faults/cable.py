"""The cable between one thread and the database, cut at a chosen write.

The server is real, and so is the driver with its retries: what is broken is the sending of a
message, or the arrival of its answer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent
from pymongo.monitoring import CommandSucceededEvent as Succeeded
from pymongo.synchronous.pool import Connection

WRITES = frozenset({"insert", "update", "delete", "findAndModify"})
READS = frozenset({"find", "aggregate", "getMore", "distinct", "listIndexes", "killCursors"})


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where the cable is cut."""

    write: int
    """1 is the first write."""
    after: bool
    """The server applies the write, and the answer is lost; else the write never leaves."""
    for_good: bool
    """Nothing gets through afterwards either; else this one write alone fails, retries included."""


class Cable(CommandListener):
    """Counts the writes of the thread that watches, and cuts where it is told to."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.unknown: set[str] = set()
        self._thread: int | None = None
        self._cut: Cut | None = None
        self._last: Any = None
        self._now: str | None = None

    @contextmanager
    def watched(self, cut: Cut | None = None) -> Iterator[None]:
        """Count the writes of this thread in here, and cut."""
        self.writes, self._last, self._cut, self._now = [], None, cut, None
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = self._cut = self._now = None
        assert not self.unknown, f"is it a write? {self.unknown}"

    def before(self, number: int, event: CommandStartedEvent, *, retried: bool) -> None:
        """Called before write `number` is sent, and again for its retry."""

    def started(self, event: CommandStartedEvent) -> None:
        if threading.get_ident() != self._thread:
            return
        name = event.command_name
        is_write = name in WRITES
        if not is_write and name not in READS:
            self.unknown.add(name)
        if is_write:
            # The driver's retry of a write carries the same transaction number.
            number = event.command.get("txnNumber")
            same = None if number is None else (bytes(event.command["lsid"]["id"]), number)
            retried = same is not None and same == self._last
            self._last = same
            if not retried:
                self.writes.append(f"{name} {event.command[name]}")
            self.before(len(self.writes), event, retried=retried)
        self._now = self._fate(is_write)

    def _fate(self, is_write: bool) -> str | None:
        cut, count = self._cut, len(self.writes)
        if cut is None or count < cut.write:
            return None
        if is_write and count == cut.write:
            return "after" if cut.after else "before"
        return "before" if cut.for_good else None

    def succeeded(self, event: Succeeded) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass

    def breaks(self, when: str) -> bool:
        """Whether this thread's message breaks now. Once: connecting anew is not in question."""
        if threading.get_ident() != self._thread or self._now != when:
            return False
        self._now = None
        return True


@contextmanager
def strung(cable: Cable) -> Iterator[None]:
    """String the cable between the driver and its sockets.

    What breaks looks like a time-out: the driver takes a time-out for the one message's, and does
    not wait for the server to be found again.
    """
    send, receive = Connection.send_message, Connection.receive_message

    def send_message(self: Connection, *args: Any) -> None:
        if cable.breaks("before"):
            self._raise_connection_failure(TimeoutError("cut before the write"))
        send(self, *args)

    def receive_message(self: Connection, *args: Any) -> Any:
        answer = receive(self, *args)
        if cable.breaks("after"):
            self._raise_connection_failure(TimeoutError("cut after the write"))
        return answer

    Connection.send_message = send_message  # type: ignore[method-assign]
    Connection.receive_message = receive_message  # type: ignore[method-assign]
    try:
        yield
    finally:
        Connection.send_message = send  # type: ignore[method-assign]
        Connection.receive_message = receive  # type: ignore[method-assign]
