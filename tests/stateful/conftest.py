"""One database for all examples: emptying collections is faster than making indexes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from tests.stateful.bench import Bench


@pytest.fixture(scope="session")
def shared_bench(mongo_client: MongoClient[dict[str, Any]]) -> Iterator[Bench]:
    database = mongo_client["stateful"]
    bench = Bench(database)
    bench.queue.create_indexes()
    yield bench
    mongo_client.drop_database("stateful")
