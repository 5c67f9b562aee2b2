"""The fixture does what it says: what is killed, paused or cut off is gone, and comes back.

And what ended by itself is told, by whoever looks next.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from bson import Timestamp
from pymongo import MongoClient, WriteConcern
from pymongo.errors import PyMongoError

from tests.cluster.greeting import OP_MSG
from tests.cluster.member import Member, MemberDied
from tests.cluster.replica_set import ELECTION_TIMEOUT_MS, ReplicaSet, has_committed
from tests.cluster.test_greeting import message

IDLE = 1_000
"""Connections that are open during a cut and say nothing."""


@pytest.mark.parametrize("how", ["kill", "pause", "isolate", "isolate from members"])
def test_another_member_is_elected_and_the_first_follows_when_it_is_back(
    replica_set: ReplicaSet, how: str
) -> None:
    first = replica_set.await_healthy()
    match how:
        case "kill":
            first.kill()
        case "pause":
            first.pause()
        case "isolate":
            replica_set.isolate(first)
        case _:
            replica_set.isolate(first, clients_too=False)
    assert replica_set.await_primary(but=first) is not first
    replica_set.mend()
    assert replica_set.await_healthy() is not None


def test_who_is_cut_off_is_out_of_reach_of_clients_and_acknowledges_nothing(
    replica_set: ReplicaSet,
) -> None:
    first = replica_set.await_healthy()
    with client_of(first) as client:
        client.admin.command("ping")
        replica_set.isolate(first)
        with pytest.raises(PyMongoError):
            client.admin.command("ping")
        replica_set.isolate(first, clients_too=False)
        client.admin.command("ping")


def test_a_client_that_is_cut_off_with_a_member_reaches_that_one_and_no_other(
    replica_set: ReplicaSet,
) -> None:
    first = replica_set.await_healthy()
    other = next(member for member in replica_set.members if member is not first)
    with ExitStack() as stack:
        reach = {
            (name, member.number): stack.enter_context(client_of(member, name))
            for name in ("lost", "well")
            for member in (first, other)
        }
        replica_set.isolate(first, clients_too=False, with_them=["lost"])
        for at, client in reach.items():
            if at == ("lost", other.number):
                with pytest.raises(PyMongoError):
                    client.admin.command("ping")
            else:
                client.admin.command("ping")


def test_of_two_primaries_each_is_one_for_its_own_clients_until_the_set_is_mended(
    replica_set: ReplicaSet,
) -> None:
    first = replica_set.await_healthy()
    with ExitStack() as stack:
        lost, well = (
            stack.enter_context(
                MongoClient(f"{replica_set.uri}&appName={name}", serverSelectionTimeoutMS=5_000)
            )
            for name in ("lost", "well")
        )
        for client in (lost, well):
            client.admin.command("ping")
        second = replica_set.two_primaries(first, with_them=["lost"])
        assert second is not first
        notes = well["judge"].get_collection("notes", write_concern=WriteConcern("majority"))
        notes.insert_one({"_id": 1})
        assert lost["judge"]["notes"].find_one({"_id": 1}) is None
        assert lost.primary == ("127.0.0.1", first.public_port)
        replica_set.mend()
        replica_set.await_healthy()
        assert lost["judge"]["notes"].find_one({"_id": 1}) is not None
    with second.client() as client:
        settings = client.admin.command("replSetGetConfig")["config"]["settings"]
    assert settings["electionTimeoutMillis"] == ELECTION_TIMEOUT_MS


def client_of(member: Member, name: str | None = None) -> MongoClient[dict[str, Any]]:
    """A client through the relay."""
    return MongoClient(
        member.host,
        directConnection=True,
        serverSelectionTimeoutMS=500,
        socketTimeoutMS=500,
        appName=name,
    )


def test_whose_a_wire_is_is_told_by_its_greeting_and_not_by_its_socket(
    replica_set: ReplicaSet,
) -> None:
    first, second, *_ = replica_set.members
    as_second = message({"isMaster": 1, "hostInfo": f"here:{second.port}", "$db": "admin"})
    as_first = message({"isMaster": 1, "hostInfo": f"here:{first.port}", "$db": "admin"})
    replica_set.isolate(first)
    assert is_answered(first, as_first)
    assert is_answered(second, as_second)
    assert not is_answered(first, as_second)
    assert not is_answered(second, as_first)
    assert not is_answered(first, message({"isMaster": 1, "$db": "admin"}))


def is_answered(member: Member, greeting: bytes) -> bool:
    with socket.create_connection(("127.0.0.1", member.public_port), timeout=1.5) as wire:
        wire.sendall(greeting)
        try:
            return wire.recv(16)[12:] == OP_MSG.to_bytes(4, "little")
        except TimeoutError:
            return False


def test_a_thousand_idle_connections_during_a_cut_stop_no_other_wire(
    replica_set: ReplicaSet,
) -> None:
    first = replica_set.await_healthy()
    replica_set.isolate(first)
    with ExitStack() as stack:
        for _ in range(IDLE):
            address = ("127.0.0.1", first.public_port)
            stack.enter_context(socket.create_connection(address, timeout=5))
        second = replica_set.await_primary(but=first)
        with client_of(second) as client:
            client.admin.command("ping")


def test_a_member_that_is_started_while_it_is_cut_off_finds_itself(
    replica_set: ReplicaSet,
) -> None:
    replica_set.await_healthy()
    lost = replica_set.members[0]
    replica_set.isolate(lost)
    lost.kill()
    replica_set.start(lost)
    with lost.client(limit_s=20) as client:
        # Until it has read its configuration, with or without finding itself in it.
        while "setName" not in (hello := client.admin.command("hello")):
            assert "does not have a valid replica set config" in hello.get("info", "")
        assert hello["me"] == lost.host


def test_a_set_in_which_a_secondary_has_not_committed_is_not_healthy(
    replica_set: ReplicaSet,
) -> None:
    primary = replica_set.await_healthy()
    secondary = next(member for member in replica_set.members if member is not primary)
    stop = {"configureFailPoint": "rsSyncApplyStop"}
    with secondary.client(limit_s=5) as client:
        client.admin.command({**stop, "mode": "alwaysOn"})
        try:
            with suppress(TimeoutError):
                replica_set.await_healthy(limit_s=1)  # it may apply a last batch
            with pytest.raises(TimeoutError, match="does not come together"):
                replica_set.await_healthy(limit_s=3)
            assert "PRIMARY" in replica_set.states()[primary.number]
        finally:
            client.admin.command({**stop, "mode": "off"})
    replica_set.await_healthy()


@pytest.mark.parametrize(
    ("term", "second", "has"), [(1, 10, True), (1, 11, True), (1, 9, False), (-1, 11, False)]
)
def test_a_member_has_committed_what_it_says_itself(term: int, second: int, has: bool) -> None:
    # Term -1: it has fetched nothing yet since the set was initiated.
    status = {"optimes": {"lastCommittedOpTime": {"t": term, "ts": Timestamp(second, 1)}}}
    assert has_committed(status, Timestamp(10, 1)) is has


def test_a_fault_as_soon_as_a_set_is_there_ends_no_member(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path / "set") as replica_set:
        primary = replica_set.await_primary()
        replica_set.isolate(primary)
        replica_set.await_primary(but=primary)
        replica_set.mend()
        replica_set.await_healthy()


LOOKS: dict[str, Callable[[ReplicaSet], object]] = {
    "await_primary": ReplicaSet.await_primary,
    "await_healthy": ReplicaSet.await_healthy,
    "mend": ReplicaSet.mend,
    "start": lambda replica_set: replica_set.start(replica_set.members[0]),
    "kill": lambda replica_set: replica_set.members[0].kill(),
}


def test_a_member_that_ends_by_itself_is_told_at_once_and_started_by_nobody(
    tmp_path: Path,
) -> None:
    told = r'member 0 ended with -6: .*"s":"F".*Got signal'
    with (  # noqa: PT012
        pytest.raises(MemberDied, match=told),
        ReplicaSet(tmp_path / "set", members=1) as one,
    ):
        process = one.members[0].process
        assert process is not None
        os.kill(process.pid, signal.SIGABRT)
        process.wait(20)
        for look in LOOKS.values():
            with pytest.raises(MemberDied, match=told):
                look(one)
        assert not one.members[0].running
