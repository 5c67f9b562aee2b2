"""The replica set of the cluster tests: one per module, whole again before each test."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mongo.embedded import find_mongod
from tests.cluster.replica_set import ReplicaSet

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
