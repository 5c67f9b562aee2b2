"""A live service for tests: `serve.py` in a process of its own, on a free loopback port."""

import io
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from pymongo import MongoClient

from mongo.embedded import EmbeddedMongo

ROOT = Path(__file__).parents[1]
START_S_MAX = 60


@dataclass
class LiveService:
    """One running service. `environment` is what it was started with."""

    url: str
    environment: dict[str, str]
    process: subprocess.Popen[bytes] = field(repr=False)
    log: Path

    @property
    def admin_headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.environment['ADMIN_API_KEY']}"}

    def admin(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.admin_headers, timeout=40)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(20)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_service(mongo_uri: str, log: Path, **settings: str) -> LiveService:
    """Start a service on a database and wait until it is ready."""
    port = free_port()
    environment = {
        "MONGODB_URI": mongo_uri,
        "SECRET_KEY": secrets.token_urlsafe(24),
        "ADMIN_API_KEY": f"ak_{secrets.token_urlsafe(24)}",
        "RUNNER_REGISTRATION_TOKEN": secrets.token_urlsafe(12),
        "PORT": str(port),
        "WEB_CONCURRENCY": "1",
        # Most runners of the tests make verdicts up.
        "RUNNER_CHECKS": "off",
        **settings,
    }
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "serve.py"],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=out,
            stderr=out,
        )
    service = LiveService(f"http://127.0.0.1:{port}", environment, process, log)
    until = time.monotonic() + START_S_MAX
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            if httpx.get(f"{service.url}/readyz").status_code == 200:
                return service
        except httpx.TransportError:
            time.sleep(0.1)
    process.kill()
    process.wait()
    raise RuntimeError(f"the service did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture
def live_service(mongo_uri: str, tmp_path: Path) -> Iterator[LiveService]:
    """A service on an empty database; nothing of it is left after the test."""
    service = start_service(mongo_uri, tmp_path / "service.log")
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.stop()


@pytest.fixture(scope="module")
def shared_service(
    mongod: EmbeddedMongo,
    mongo_client: MongoClient[dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[LiveService]:
    """A service that the tests of a module share, with users `ada` and `bob` and problem 1.

    Tests take ids of their own. Runs as two API processes.
    """
    name = f"shared_{os.getpid()}_{secrets.token_hex(4)}"
    log = tmp_path_factory.mktemp("service") / "service.log"
    service = start_service(mongod.uri_for(name), log, WEB_CONCURRENCY="2")
    try:
        with service.admin() as admin:
            prepare(admin)
        yield service
    finally:
        if service.process.poll() is None:
            service.stop()
        mongo_client.drop_database(name)


def prepare(admin: httpx.Client) -> None:
    """Make users `ada` and `bob`, and problems 1 and 2 of one case each."""
    task = {"task_score": 100, "memory_limit_kib": 65536, "time_limit_ms": 1000, "case_count": 1}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("0000.in", "1\n")
        archive.writestr("0000.out", "1\n")
    for name in ("ada", "bob"):
        admin.put(f"/users/{name}", json={}).raise_for_status()
    for number in (1, 2):
        body = {"name": f"problem {number}", "tasks": [task]}
        admin.put(f"/problems/{number}", json=body).raise_for_status()
        admin.put(
            f"/problems/{number}/testdata",
            content=packed.getvalue(),
            headers={"Content-Type": "application/zip"},
        ).raise_for_status()
