"""A live service for tests: `serve.py` in a process of its own, on a free loopback port."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

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
