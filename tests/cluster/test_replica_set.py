"""The fixture does what it says: what is killed, paused or cut off is gone, and comes back."""

from __future__ import annotations

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.cluster.replica_set import ReplicaSet


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
    with MongoClient(
        first.host, directConnection=True, serverSelectionTimeoutMS=500, socketTimeoutMS=500
    ) as client:
        client.admin.command("ping")
        replica_set.isolate(first)
        with pytest.raises(PyMongoError):
            client.admin.command("ping")
        replica_set.isolate(first, clients_too=False)
        client.admin.command("ping")
