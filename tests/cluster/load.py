"""A service under load, without chaos: API processes, runners, clients, and what they leave."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pymongo import MongoClient

from dispatch.lease import LeaseRules
from tests.cluster.checker import check
from tests.cluster.processes import Api, Player, prepare, service_environment
from tests.cluster.snapshot import Finding, Snapshot
from tests.cluster.wire import read_diaries


class Load:
    """Processes on one database. A context manager: nothing is left running."""

    def __init__(
        self,
        uri: str,
        folder: Path,
        *,
        apis: int,
        runners: int,
        clients: int,
        pause_s: float,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.uri = uri
        self.folder = folder
        environment = service_environment(uri, **(settings or {}))
        self.apis = [Api(environment, folder / f"api{n}.log") for n in range(apis)]
        self.runners: list[Player] = []
        self.clients: Player | None = None
        self._counts = (runners, clients)
        self._pause_s = pause_s

    def __enter__(self) -> Self:
        try:
            for api in self.apis:
                api.start()
            for api in self.apis:
                api.await_ready()
            prepare(self.apis[0])
            self.runners = [self.runner(str(number)) for number in range(self._counts[0])]
            self.clients = self._clients(self._counts[1])
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for player in (*self.runners, *([self.clients] if self.clients else [])):
            player.kill()
        for api in self.apis:
            api.kill()

    def runner(self, name: str) -> Player:
        """Start a runner; the caller keeps it in `runners`."""
        environment = self.apis[0].environment
        options = {
            "ports": [api.port for api in self.apis],
            "diary": str(self.folder / f"runner{name}.jsonl"),
            "name": f"runner-{name}",
            "token": environment["RUNNER_REGISTRATION_TOKEN"],
            "lose": 0.0,
            "twice": 0.0,
            "judge_s": 0.3,
            "long_share": 0.0,
            "long_s": 0.0,
        }
        return Player("tests.cluster.chaos_runner", options, self.folder / "runners.log")

    def _clients(self, clients: int) -> Player:
        options = {
            "ports": [api.port for api in self.apis],
            "diary": str(self.folder / "clients.jsonl"),
            "seed": 0,
            "admin_key": self.apis[0].environment["ADMIN_API_KEY"],
            "clients": clients,
            "pause_s": self._pause_s,
            "rejudge_s": 2.0,
            "lose": 0.0,
        }
        return Player("tests.cluster.chaos_clients", options, self.folder / "clients.log")

    def diary(self) -> list[dict[str, Any]]:
        return read_diaries(self.folder)

    def await_noted(self, true: Callable[[list[dict[str, Any]]], bool], limit_s: float) -> None:
        """Wait until the diaries say so."""
        deadline = time.monotonic() + limit_s
        while not true(self.diary()):
            if time.monotonic() > deadline:
                raise TimeoutError("nobody noted what was waited for")
            time.sleep(0.1)

    def finish(self, limit_s: float = 120) -> None:
        """End the clients, and wait until nothing is open any more."""
        if self.clients is not None:
            self.clients.finish(limit_s)
        deadline = time.monotonic() + limit_s
        with self.client() as client:
            database = client.get_default_database()
            while database["jobs"].find_one({"state": {"$ne": "done"}}) is not None:
                if time.monotonic() > deadline:
                    raise TimeoutError("jobs stay open")
                time.sleep(0.1)

    def client(self) -> MongoClient[dict[str, Any]]:
        return MongoClient(self.uri, tz_aware=True, serverSelectionTimeoutMS=10_000)

    def findings(self, rules: LeaseRules) -> list[Finding]:
        with self.client() as client:
            snapshot = Snapshot.of(client.get_default_database())
        return check(self.diary(), snapshot, rules)
