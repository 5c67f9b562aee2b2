"""A start repairs what indexes were lost, and says so; on an empty database it says nothing."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import MongoClient

import app
from dispatch import events
from mongo import engine
from mongo.embedded import EmbeddedMongo
from tests.factories import Service
from tests.fixtures import build_app

DROPPED = [
    ("jobs", "claim_id"),
    ("jobs", "ended"),
    ("submissions", "counting"),
    ("runners", "unseen"),
    ("blobs.chunks", "files_id_1_n_1"),
]


def prepare(service: Service) -> None:
    """Do what a start does, once more."""
    services = service.services
    app._prepare(services.settings, service.database, services.queue, service.clock)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []

    def emit(event: str, **fields: Any) -> None:
        assert event == "index_repaired"
        found.append((fields["collection"], fields["index"]))
        events.emit(event, **fields)

    monkeypatch.setattr(app, "emit", emit)
    return found


def test_lost_indexes_are_made_again_and_named(
    service: Service, told: list[tuple[str, str]]
) -> None:
    service.user("ada")
    service.problem(1)
    service.runner()
    service.submit("ada", 1, "s1")
    for collection, index in DROPPED:
        service.database[collection].drop_index(index)
    before = events.EVENTS.labels(event="index_repaired")._value.get()
    prepare(service)
    assert sorted(told) == sorted(DROPPED)
    for collection, index in DROPPED:
        assert index in service.database[collection].index_information()
    assert events.EVENTS.labels(event="index_repaired")._value.get() == before + len(DROPPED)
    told.clear()
    prepare(service)
    assert told == []


def test_an_empty_databases_indexes_are_no_repair(
    mongod: EmbeddedMongo, mongo_uri: str, told: list[tuple[str, str]]
) -> None:
    build_app(mongo_uri, None)
    try:
        assert told == []
        with MongoClient(mongo_uri) as client:
            made = client.get_default_database()["jobs"].index_information()
        assert "claim_id" in made
    finally:
        engine.disconnect()
