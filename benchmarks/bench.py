"""What the rows share: the servers, started when the first row asks, and the client processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
from pymongo import MongoClient

from benchmarks.load import Crowd, crowd
from benchmarks.peers.venv import PeerVenv
from benchmarks.servers import postgres, redis
from benchmarks.sizes import Sizes
from mongo.embedded import EmbeddedMongo


class Bench:
    """One run. Whatever it starts ends with it."""

    def __init__(self, sizes: Sizes, folder: Path, stack: ExitStack) -> None:
        self.sizes = sizes
        self.folder = folder
        self._stack = stack

    @cached_property
    def mongod(self) -> EmbeddedMongo:
        """Return the run's own server, a one-member replica set."""
        return self._stack.enter_context(EmbeddedMongo(self.folder / "mongo"))

    @cached_property
    def mongo_process(self) -> psutil.Process:
        """Return the server's process."""
        return psutil.Process(self.mongod.pid)

    @cached_property
    def mongo(self) -> MongoClient[dict[str, Any]]:
        """Return a client for looking at the server; not for measuring."""
        return self._stack.enter_context(MongoClient(self.mongod.uri_for("admin"), tz_aware=True))

    @cached_property
    def crowd(self) -> Crowd:
        """Return the client processes."""
        return self._stack.enter_context(crowd())

    @cached_property
    def redis_url(self) -> str:
        """Return where Redis is. Raises Missing."""
        return self._stack.enter_context(redis(self.folder))

    @cached_property
    def postgres_dsn(self) -> str:
        """Return where PostgreSQL is. Raises Missing."""
        return self._stack.enter_context(postgres(self.folder))

    @cached_property
    def peers(self) -> PeerVenv:
        """Return the environment in which the peers run. Raises Missing."""
        return PeerVenv.open()

    @staticmethod
    def say(text: str) -> None:
        """Tell whoever watches what is going on."""
        sys.stderr.write(f"bench: {text}\n")
        sys.stderr.flush()


@contextmanager
def open_bench(sizes: Sizes, folder: Path) -> Iterator[Bench]:
    """Hold a run's servers and clients while the block does."""
    with ExitStack() as stack:
        yield Bench(sizes, folder, stack)
