"""A real `mongod` for the tests: one per test process, a fresh database per test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from mongo.embedded import EmbeddedMongo, EmbeddedUnavailable

_numbers = itertools.count()


@pytest.fixture(scope="session")
def mongod() -> Iterator[EmbeddedMongo]:
    """The server, with fail points allowed. Tests that stop or kill it start one of their own."""
    folder = Path(tempfile.mkdtemp(prefix="judge-dispatch-tests-"))
    server = EmbeddedMongo(folder, enable_test_commands=True)
    try:
        server.start()
    except EmbeddedUnavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"NOT TESTED, no real MongoDB here: {error}")
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def mongo_client(mongod: EmbeddedMongo) -> Iterator[MongoClient[dict[str, Any]]]:
    """One client of the server, shared by all tests of this process."""
    with MongoClient(mongod.uri, tz_aware=True) as client:
        yield client


@pytest.fixture
def mongo_uri(mongod: EmbeddedMongo, mongo_client: MongoClient[dict[str, Any]]) -> Iterator[str]:
    """The URI of an empty database that this test has to itself; it is dropped afterwards."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    yield mongod.uri_for(name)
    mongo_client.drop_database(name)
