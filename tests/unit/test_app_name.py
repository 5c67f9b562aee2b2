"""The database's log tells the service's processes apart if the operator wants it to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mongo import engine


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    engine.disconnect()


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("", "judge-dispatch"),
        ("?replicaSet=rs0", "judge-dispatch"),
        ("?replicaSet=rs0&appName=api%20on%20a", "api on a"),
        ("?appname=a", "a"),
    ],
)
def test_the_name_in_the_uri_is_what_the_database_is_told(query: str, name: str) -> None:
    database = engine.connect(f"mongodb://127.0.0.1:1,127.0.0.1:2/judge{query}")
    assert database.client.options.pool_options.appname == name
