"""Three real `mongod` on loopback: one replica set whose members can be killed, paused, cut off.

Every member has two ports: its own, and the relay's, which the set's configuration and all clients
know. So a partition cuts members off from each other and from clients, in the middle of whatever
is being said.

Nothing here hides a member that ended by itself: whoever looks at the set next gets `MemberDied`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bson import Timestamp
from pymongo.errors import OperationFailure, PyMongoError

from mongo.child import dying_with_parent
from tests.cluster.member import SET_NAME, Member
from tests.live import ROOT

ELECTION_TIMEOUT_MS = 2_000
LONG_ELECTION_TIMEOUT_MS = 20_000
START_S_MAX = 60.0


class ReplicaSet:
    """The three members and the wires between them. A context manager."""

    def __init__(
        self, folder: Path, *, options: tuple[str, ...] = ("--oplogSize", "64"), members: int = 3
    ) -> None:
        self._folder = folder
        self.members = [Member(n, folder / f"member{n}", options) for n in range(members)]
        self._board: subprocess.Popen[str] | None = None
        self._long_elections = False

    @property
    def uri(self) -> str:
        return self.uri_for("judge")

    def uri_for(self, database: str) -> str:
        hosts = ",".join(member.host for member in self.members)
        return f"mongodb://{hosts}/{database}?replicaSet={SET_NAME}"

    def __enter__(self) -> Self:
        try:
            self._board = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.switchboard"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                preexec_fn=dying_with_parent(),
            )
            for member in self.members:
                self._tell(
                    do="listen",
                    member=member.number,
                    port=member.public_port,
                    member_port=member.port,
                )
                self.start(member)
            self._initiate()
            self.await_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.check()
        finally:
            self.stop()

    def stop(self) -> None:
        for member in self.members:
            member.end()
        if self._board is not None and self._board.stdin and self._board.stdout:
            self._board.stdin.close()
            self._board.wait(10)
            self._board.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- what happens to it --------------------------------------------------------------

    def start(self, member: Member) -> None:
        """Start a member that was killed, on the data that it left."""
        member.start()

    def isolate(
        self, *members: Member, clients_too: bool = True, with_them: Iterable[str] = ()
    ) -> None:
        """Cut members off from the others; without `clients_too` clients still reach them.

        Clients whose URI has one of the names `with_them` as `appName` reach them and nobody else.
        """
        self._tell(
            do="cut",
            members=[member.number for member in members],
            clients_too=clients_too,
            with_them=list(with_them),
        )

    def two_primaries(self, first: Member, *, with_them: Iterable[str]) -> Member:
        """Cut the primary off from the members, and have another elected at once; return it.

        The first goes on as a primary, for clients `with_them` the only one, until it misses the
        majority: for `LONG_ELECTION_TIMEOUT_MS`, or until the set is mended. The usual timeout is
        back once the set is healthy.

        Raises:
            PyMongoError: the set is not whole enough for that.
        """
        _set_election_timeout(first, LONG_ELECTION_TIMEOUT_MS)
        self._long_elections = True
        self.isolate(first, clients_too=False, with_them=with_them)
        # Nobody else stands for so long: the fault needs an election, and this is no remedy.
        second = next(member for member in self.members if member is not first)
        with second.client(limit_s=5) as client:
            client.admin.command("replSetStepUp")
        return self.await_primary(but=first)

    def mend(self) -> None:
        """End every partition, resume who is paused, start who was killed.

        Raises:
            MemberDied: one has ended by itself.
        """
        self.isolate()
        for member in self.members:
            member.resume()
        self.check()
        for member in self.members:
            if not member.running:
                self.start(member)

    # -- how it stands -------------------------------------------------------------------

    def check(self) -> None:
        """Raise MemberDied if a member has ended by itself."""
        for member in self.members:
            member.check()

    def primary(self) -> Member | None:
        """The member that takes writes, as it and a majority say; None while there is none.

        Raises:
            MemberDied: one has ended by itself.
        """
        self.check()
        found: list[tuple[Any, Member]] = []
        for member in self.members:
            if not member.running or member.paused:
                continue
            with member.client() as client:
                try:
                    hello = client.admin.command("hello")
                except PyMongoError:
                    continue
            if hello.get("isWritablePrimary"):
                found.append((hello["electionId"], member))
        # Of two that call themselves primary, the later elected one is.
        return max(found, key=lambda entry: entry[0])[1] if found else None

    def await_primary(self, but: Member | None = None, limit_s: float = START_S_MAX) -> Member:
        """Return the primary as soon as there is one that is not `but`.

        Raises:
            MemberDied: one has ended by itself.
            TimeoutError: there is none in time.
        """

        def there() -> Member | None:
            primary = self.primary()
            return None if primary is but else primary

        return self._await(there, "no primary", limit_s)

    def await_healthy(self, limit_s: float = START_S_MAX) -> Member:
        """Return the primary when all members are up, follow it, and have committed what it wrote.

        A set that says 1, 2, 2 may be one in which a secondary has fetched nothing yet of the
        primary's term. A fault at that moment leaves histories that part before anything was
        committed, and who would have to roll back ends itself instead.

        Raises:
            MemberDied: one has ended by itself.
            TimeoutError: it does not come to that in time.
        """

        def healthy() -> Member | None:
            primary = self.primary()
            if primary is None:
                return None
            try:
                return primary if self._is_whole(primary) else None
            except PyMongoError:
                return None

        return self._await(healthy, "the set does not come together", limit_s)

    def _is_whole(self, primary: Member) -> bool:
        if any(not member.running or member.paused for member in self.members):
            return False
        with primary.client() as client:
            states = client.admin.command("replSetGetStatus")["members"]
            if sorted(one["state"] for one in states) != [1, *[2] * (len(states) - 1)]:
                return False
            everywhere = {"w": len(self.members), "wtimeout": 500}
            note = {"appendOplogNote": 1, "data": {"is": "whole"}, "writeConcern": everywhere}
            noted = client.admin.command(note)
        if "writeConcernError" in noted:
            return False
        if not all(self._has_committed(member, noted["operationTime"]) for member in self.members):
            return False
        if self._long_elections:
            _set_election_timeout(primary, ELECTION_TIMEOUT_MS)
            self._long_elections = False
        return True

    def _has_committed(self, member: Member, moment: Timestamp) -> bool:
        with member.client() as client:
            return has_committed(client.admin.command("replSetGetStatus"), moment)

    def _await(self, wanted: Callable[[], Member | None], complaint: str, limit_s: float) -> Member:
        found: list[Member] = []

        def there() -> bool:
            member = wanted()
            if member is not None:
                found.append(member)
            return bool(found)

        try:
            _until(there, complaint, limit_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.states()}") from None
        return found[0]

    def states(self) -> list[str]:
        """How each member says that all members are, for people."""
        told = []
        for member in self.members:
            with member.client() as client:
                try:
                    status = client.admin.command("replSetGetStatus")["members"]
                    words = " ".join(one["stateStr"] for one in status)
                except PyMongoError as error:
                    words = f"{type(error).__name__}, running {member.running}"
            told.append(f"member {member.number}: {words}")
        return told

    # -- inside --------------------------------------------------------------------------

    def _tell(self, **command: Any) -> None:
        board = self._board
        if board is None or board.stdin is None or board.stdout is None:
            raise RuntimeError("the switchboard does not run")
        board.stdin.write(json.dumps(command) + "\n")
        board.stdin.flush()
        if board.stdout.readline() != "ok\n":
            raise RuntimeError(f"the switchboard failed at {command}")

    def _initiate(self) -> None:
        config = {
            "_id": SET_NAME,
            "members": [{"_id": one.number, "host": one.host} for one in self.members],
            "settings": {
                "electionTimeoutMillis": ELECTION_TIMEOUT_MS,
                "heartbeatIntervalMillis": 500,
                # Else whoever is elected waits for the writes that only the lost one has: for as
                # long as heartbeats to it hang, and then without end.
                "heartbeatTimeoutSecs": 2,
                "catchUpTimeoutMillis": 2_000,
            },
        }

        def initiated() -> bool:
            self.check()
            with self.members[0].client(limit_s=5) as client:
                try:
                    client.admin.command("replSetInitiate", config)
                except OperationFailure as refusal:
                    return refusal.code == 23  # already, by a turn whose answer was late
                except PyMongoError:
                    return False
            return True

        _until(initiated, "the set was not initiated", START_S_MAX)


def _set_election_timeout(primary: Member, timeout_ms: int) -> None:
    with primary.client(limit_s=5) as client:
        config = client.admin.command("replSetGetConfig")["config"]
        config["version"] += 1
        config["settings"]["electionTimeoutMillis"] = timeout_ms
        client.admin.command("replSetReconfig", config)


def has_committed(status: dict[str, Any], moment: Timestamp) -> bool:
    """Tell whether a member of that status knows that what was written then is on a majority."""
    committed = status["optimes"]["lastCommittedOpTime"]
    return bool(committed["t"] > 0 and committed["ts"] >= moment)


def _until(true: Callable[[], bool], complaint: str, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(complaint)
        time.sleep(0.05)
