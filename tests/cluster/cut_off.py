"""A primary that is cut off in the middle of what the service does, and still answers it.

What is written on it alone is a phantom: no majority will ever have it. Or the others have gone on
under another primary, and the one that the service asks knows too little. Nothing here depends on
how long anything takes, within `PATIENCE_MS`.

`Drop` takes a rule of the code away: then the same fault must do its harm. So a test whose fault
does not come about any more is noticed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import Context
from dataclasses import dataclass, field
from enum import Enum
from threading import Timer
from typing import Any

import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.database import Database
from pymongo.errors import OperationFailure
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

import dispatch.control
import dispatch.store
from dispatch.concerns import DURABLE, LOCAL, SOFT
from dispatch.lease import LeaseRules
from dispatch.queue import Queue, open_queue
from mongo import engine
from tests.cluster.replica_set import Member, ReplicaSet

Document = dict[str, Any]
Write = Callable[[Database[Document]], object]

READS = ("find", "aggregate", "count", "distinct")
WRITES = ("insert", "update", "delete", "findAndModify")
PATIENCE_MS = 20_000
BLOCKED_S = 1.5
"""How long a write is left to a primary that cannot have it acknowledged."""
FOLLOW_TRIES = 200
ELECTIONS_MAX = 20


class Drop(Enum):
    """What is taken from the code, to see that it is what keeps the harm off."""

    READS = "reads are of the newest state"
    PROOF = "nothing is proved before it is told or deleted"
    WRITES = "the domain's writes wait for no majority"


def drop(rule: Drop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a rule away from the service that is built next."""
    if rule is Drop.READS:
        monkeypatch.setitem(engine.CLIENT_OPTIONS, "readConcernLevel", "local")
        monkeypatch.setattr(dispatch.store, "MAJORITY", LOCAL)
        monkeypatch.setattr(dispatch.control, "MAJORITY", LOCAL)
    if rule is Drop.WRITES:
        monkeypatch.setitem(engine.CLIENT_OPTIONS, "w", 1)
        monkeypatch.setitem(engine.CLIENT_OPTIONS, "readConcernLevel", "local")
        monkeypatch.delitem(engine.CLIENT_OPTIONS, "journal")
    monkeypatch.setattr(dispatch.store, "proven", lambda database: nullcontext())
    monkeypatch.setattr(engine, "catch_up", lambda: None)


def queue_of(database: Database[Document]) -> Queue:
    """Return the queue as another process has it there, whose writes wait for no majority."""
    queue = open_queue(database, rules=LeaseRules())
    queue.jobs.jobs = queue.jobs.jobs.with_options(write_concern=SOFT, read_concern=LOCAL)
    return queue


def make_patient(replica_set: ReplicaSet) -> None:
    """Have a primary that is cut off go on as one for a while; who is asked is elected at once."""
    wanted = {"electionTimeoutMillis": PATIENCE_MS, "catchUpTimeoutMillis": 0}
    with replica_set.await_healthy().client(limit_s=10) as client:
        config = client.admin.command("replSetGetConfig")["config"]
        if config["settings"]["electionTimeoutMillis"] != PATIENCE_MS:
            config["settings"].update(wanted)
            config["version"] += 1
            client.admin.command("replSetReconfig", config)
    replica_set.await_healthy()


def choose_heir(replica_set: ReplicaSet, old: Member) -> Member:
    """Return who is to be elected when `old` is cut off; the third member follows it already.

    One that has just been cut off from the member that it follows waits for that for a while, and
    nothing is acknowledged meanwhile.
    """
    heir, third = (member for member in replica_set.members if member is not old)
    with third.client(limit_s=10) as client, old.client(limit_s=10) as primary:
        for _ in range(FOLLOW_TRIES):
            if client.admin.command("replSetGetStatus")["syncSourceHost"] != heir.host:
                client.admin.command("replSetSyncFrom", heir.host)
                # It changes over when something comes from the member it has followed.
                primary.admin.command("appendOplogNote", data={"for": "the change"})
            elif _is_level(primary):
                return heir
            time.sleep(0.1)
    raise TimeoutError(f"member {third.number} does not follow member {heir.number}")


def _is_level(primary: MongoClient[Document]) -> bool:
    """Tell whether all members have all: one that the third is ahead of would not be elected."""
    members = primary.admin.command("replSetGetStatus")["members"]
    return len({str(member["optime"]) for member in members}) == 1


def elect(heir: Member) -> None:
    """Have `heir` be elected by the third member."""
    with heir.client(limit_s=20) as client:
        for left in reversed(range(ELECTIONS_MAX)):
            try:
                client.admin.command("replSetStepUp")
                break
            except OperationFailure:  # a busy machine: the vote came late
                if not left:
                    raise
        while not client.admin.command("hello")["isWritablePrimary"]:
            time.sleep(0.02)


@dataclass
class Fault(CommandListener):
    """Cuts the primary off when the service comes to the command `before`."""

    replica_set: ReplicaSet
    name: str
    disturbs: bool
    before: tuple[str, str] | None = None
    phantom: Write | None = None
    elsewhere: Write | None = None
    then: Write | None = None
    old: Member | None = None
    answered: list[str] = field(default_factory=list)
    """What the primary that was cut off was asked for, before the next write."""
    troubles: list[Exception] = field(default_factory=list)
    _waits: bool = False
    _holds_writes: bool = True
    _heir: Member | None = None
    _cut_address: Any = None
    _later: Timer | None = None
    _skip: int = 0

    def arm(
        self,
        before: tuple[str, str],
        phantom: Write | None = None,
        *,
        elsewhere: Write | None = None,
        then: Write | None = None,
        skip: int = 0,
    ) -> None:
        """Do it at the next such command, or after `skip` more of them.

        `elsewhere`: what another process writes on the new primary at that moment, of which the
        old one, that the service still asks, learns nothing. `then`: the same, later: just before
        the service's own write.
        Where `before` is a write itself, it is sent to the old primary and meets the phantom, and
        so is what follows it.
        """
        self.before, self.phantom, self.then, self._skip = before, phantom, then, skip
        self.elsewhere, self._holds_writes = elsewhere, before[0] in READS

    def started(self, event: CommandStartedEvent) -> None:
        # Not in the service's session, which belongs to its own client.
        Context().run(self._started, event)

    def _started(self, event: CommandStartedEvent) -> None:
        what = (event.command_name, str(event.command.get(event.command_name)))
        try:
            came = what == self.before
            if came and self._skip:
                self._skip -= 1
            elif came:
                self._cut(event.connection_id)
            if self._waits and self._holds_writes and event.command_name in WRITES:
                self._fail_over()
            elif self._waits and event.connection_id == self._cut_address:
                self.answered.append(" ".join(what))
        except Exception as error:  # the driver would swallow it
            self.troubles.append(error)

    def _cut(self, asked: Any) -> None:
        self.before, self._waits = None, True
        self.old = self.replica_set.await_primary()
        if asked != ("127.0.0.1", self.old.public_port):
            raise RuntimeError(f"{asked} is asked, and {self.old} is the primary")
        if not self.disturbs:
            self._write(self.old, self.elsewhere, DURABLE)
            return
        self._cut_address = asked
        self._heir = choose_heir(self.replica_set, self.old)
        if self.elsewhere is None:
            self.replica_set.isolate(self.old, clients_too=False)
            self._write(self.old, self.phantom, SOFT)
        else:
            others = [member for member in self.replica_set.members if member is not self.old]
            self.replica_set.isolate(*others)
            elect(self._heir)
            self._write(self._heir, self.elsewhere, DURABLE)
        if not self._holds_writes:
            self._later = Timer(BLOCKED_S, Context().run, (self._fail_over_later,))
            self._later.start()

    def complete(self) -> None:
        """Have another primary be elected even where the service had nothing to write."""
        if self._later is not None:
            self._later.join()
        elif self._waits:
            self._fail_over()

    def _fail_over_later(self) -> None:
        try:
            self._fail_over()
        except Exception as error:  # nobody hears of it in this thread
            self.troubles.append(error)

    def _fail_over(self) -> None:
        """Have another be elected, which has no phantom, and let the old one come back to it."""
        self._waits = False
        if self._heir is not None and self.elsewhere is None:
            elect(self._heir)
        self._write(self._heir or self.replica_set.await_primary(), self.then, DURABLE)
        self.replica_set.mend()

    def _write(self, member: Member, write: Write | None, concern: WriteConcern) -> None:
        if write is not None:
            with member.client(limit_s=10) as client:
                write(client.get_database(self.name, write_concern=concern))

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass
