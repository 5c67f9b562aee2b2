"""The whole service on the real server: one app per test process, emptied between tests."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import mongoengine
import pytest
from flask import Flask
from pymongo import MongoClient

from app import create_app
from mongo import engine, storage, user
from mongo.embedded import EmbeddedMongo
from settings import Settings
from tests.factories import ADMIN_KEY, EPOCH, REGISTRATION_TOKEN, ManualClock, Service


class AppKeeper:
    """Makes the app once, and anew when something else took the process's one connection."""

    def __init__(self, mongod: EmbeddedMongo) -> None:
        self.name = f"app_{os.getpid()}"
        self.uri = mongod.uri_for(self.name)
        self.clock = ManualClock()
        self._app: Flask | None = None
        self._client: object = None

    def app(self) -> Flask:
        if self._app is None or not self._connected():
            self._app = build_app(self.uri, self.clock)
            self._client = mongoengine.get_connection()
        return self._app

    def _connected(self) -> bool:
        try:
            return mongoengine.get_connection() is self._client
        except mongoengine.ConnectionFailure:
            return False


RELAXED: dict[str, Any] = {
    "failures_per_min_max": 100_000,
    # Tests of other matters do not wait for a job that failed, and a runner of theirs is a crowd.
    "retry_pauses_s": (),
    "give_up_s": 0,
    "max_concurrent_jobs": 1_000,
    # Their runners make verdicts up.
    "runner_checks": "off",
}


def build_app(uri: str, clock: ManualClock | None, **settings: Any) -> Flask:
    """An app that logs nowhere but to pytest, and sweeps only when told to."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    made = create_app(
        Settings(
            mongodb_uri=uri,
            secret_key="signs-the-links-of-the-tests",
            runner_registration_token=REGISTRATION_TOKEN,
            admin_api_key=ADMIN_KEY,
            **{**RELAXED, **settings},
        ),
        clock=clock,
    )
    root.handlers[:] = handlers
    made.extensions["judge_dispatch"].maintain._next = datetime.max.replace(tzinfo=UTC)
    return made


@pytest.fixture(scope="session")
def app_keeper(mongod: EmbeddedMongo) -> Iterator[AppKeeper]:
    """The session's app."""
    keeper = AppKeeper(mongod)
    yield keeper
    engine.disconnect()


@pytest.fixture
def service(app_keeper: AppKeeper, mongo_client: MongoClient[dict[str, Any]]) -> Iterator[Service]:
    """The service with an empty database, one admin key and a clock that stands still."""
    app_keeper.clock.at = EPOCH
    app = app_keeper.app()
    database = mongo_client[app_keeper.name]
    user.ensure_admin_key(ADMIN_KEY, now=EPOCH)
    yield Service(app=app, clock=app_keeper.clock, database=database)
    for collection in database.list_collection_names():
        database[collection].delete_many({})


@pytest.fixture
def course(service: Service) -> Service:
    """Ada, problem 1, and a homework with both."""
    service.user("ada")
    service.problem(1)
    service.homework("hw", [1], ["ada"])
    return service


@pytest.fixture
def blobs_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store every program and output as a blob, as large ones are: the most writes there can be."""
    monkeypatch.setattr(storage, "INLINE_BYTES_MAX", storage.NEVER_INLINE)
