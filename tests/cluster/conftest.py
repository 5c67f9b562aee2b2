"""The replica set of the cluster tests: one per module, whole again before each test."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo import MongoClient

from mongo import engine, storage
from mongo.embedded import find_mongod
from tests.cluster.replica_set import ReplicaSet
from tests.cluster.stage import Stage
from tests.factories import EPOCH, ManualClock, Service
from tests.fixtures import build_app

_numbers = itertools.count()


@pytest.fixture(scope="module")
def three_members() -> Iterator[ReplicaSet]:
    """Three members, started once for a module's tests; use `replica_set`."""
    if find_mongod() is None:
        if os.environ.get("CI"):
            pytest.fail("no mongod here")
        pytest.skip("NOT TESTED, no real MongoDB here")
    with ReplicaSet(Path(tempfile.mkdtemp(prefix="judge-cluster-"))) as replica_set:
        yield replica_set


@pytest.fixture
def replica_set(three_members: ReplicaSet) -> Iterator[ReplicaSet]:
    """The replica set with all members up; whatever the test did to it is mended."""
    three_members.await_healthy()
    yield three_members
    three_members.mend()


@pytest.fixture
def cluster_uri(replica_set: ReplicaSet) -> str:
    """The URI of an empty database on the replica set."""
    return replica_set.uri_for(f"cluster_{os.getpid()}_{next(_numbers)}")


@pytest.fixture
def cluster_service(replica_set: ReplicaSet, cluster_uri: str) -> Iterator[Service]:
    """The service on three members, in this process, its clock standing still."""
    clock = ManualClock(EPOCH)
    app = build_app(cluster_uri, clock)
    with MongoClient(cluster_uri, tz_aware=True) as client:
        yield Service(app=app, clock=clock, database=client.get_default_database())
    engine.disconnect()


@pytest.fixture
def stage(replica_set: ReplicaSet, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """What plays a scenario with the primary cut off under it. Every blob is stored apart."""
    monkeypatch.setattr(storage, "INLINE_BYTES_MAX", storage.NEVER_INLINE)
    return Stage(replica_set)
