"""The processes of a cluster under test: API services, runners, clients, and their diaries."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from mongo.child import dying_with_parent
from tests.cluster.wire import TASK_SCORES
from tests.factories import packed_testdata, task_bodies
from tests.live import ROOT, START_S_MAX, free_port


@dataclass
class Api:
    """`serve.py` on a port that it keeps over restarts."""

    environment: dict[str, str]
    log: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def name(self) -> str:
        """As in its log's name."""
        return self.log.stem

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it, with its name in the database's URI: so its connections are told apart."""
        uri = self.environment["MONGODB_URI"]
        named = f"{uri}&appName={self.name}"
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "serve.py"],
                cwd=ROOT,
                env=os.environ | self.environment | {"MONGODB_URI": named, "PORT": str(self.port)},
                stdout=out,
                stderr=out,
                preexec_fn=dying_with_parent(),
            )

    def await_ready(self, limit_s: float = START_S_MAX) -> None:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if self.is_ready():
                return
            time.sleep(0.1)
        raise TimeoutError(f"the service is not ready:\n{self.log.read_text()[-3000:]}")

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    def workers(self) -> list[psutil.Process]:
        """The processes that answer requests."""
        if self.process is None:
            return []
        try:
            arbiters = psutil.Process(self.process.pid).children()
            return [one for arbiter in arbiters for one in arbiter.children()]
        except psutil.NoSuchProcess:
            return []

    def kill_worker(self) -> None:
        """SIGKILL to what answers requests; gunicorn starts another."""
        for worker in self.workers():
            worker.kill()

    def pause(self) -> Callable[[], None]:
        """SIGSTOP to all of it; return what has it go on."""
        if self.process is None:
            raise RuntimeError("the service does not run")
        service = psutil.Process(self.process.pid)
        stopped = [service, *service.children(recursive=True)]
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.suspend()

        def go_on() -> None:
            for process in stopped:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

        return go_on

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, limit_s: float = 20) -> float:
        """SIGTERM; return after how many seconds it had ended."""
        if self.process is None or self.process.poll() is not None:
            return 0.0
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return time.monotonic() - began


def service_environment(uri: str, **settings: str) -> dict[str, str]:
    """What every API process of one service is started with."""
    return {
        "MONGODB_URI": uri,
        "SECRET_KEY": secrets.token_urlsafe(24),
        "ADMIN_API_KEY": f"ak_{secrets.token_urlsafe(24)}",
        "RUNNER_REGISTRATION_TOKEN": secrets.token_urlsafe(12),
        "WEB_CONCURRENCY": "1",
        # Its runners make verdicts up.
        "RUNNER_CHECKS": "off",
        **settings,
    }


def prepare(api: Api) -> None:
    """Make two users, two problems of two tasks, and a homework with all of them."""
    headers = {"Authorization": f"Bearer {api.environment['ADMIN_API_KEY']}"}
    with httpx.Client(base_url=api.url, headers=headers, timeout=40) as admin:
        for name in ("ada", "bob"):
            admin.put(f"/users/{name}", json={}).raise_for_status()
        tasks = task_bodies(*((score, 1) for score in TASK_SCORES))
        for number in (1, 2):
            body = {"name": f"problem {number}", "tasks": tasks}
            admin.put(f"/problems/{number}", json=body).raise_for_status()
            admin.put(
                f"/problems/{number}/testdata",
                content=packed_testdata(1, 1),
                headers={"Content-Type": "application/zip"},
            ).raise_for_status()
        homework = {
            "name": "hw",
            "start": "2020-01-01T00:00:00Z",
            "end": "2100-01-01T00:00:00Z",
            "problem_ids": [1, 2],
            "students": ["ada", "bob"],
        }
        admin.put("/homeworks/hw", json=homework).raise_for_status()


class Player:
    """A process of the tests' own: `python -m <module> <options>`."""

    def __init__(self, module: str, options: dict[str, Any], log: Path) -> None:
        self._command = [sys.executable, "-m", module, json.dumps(options)]
        self._log = log
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as out:
            return subprocess.Popen(
                self._command, cwd=ROOT, stdout=out, stderr=out, preexec_fn=dying_with_parent()
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Start anew if it has ended."""
        if self.process.poll() is not None:
            self.process = self._start()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def finish(self, limit_s: float) -> None:
        """SIGTERM, and wait; one that does not end is killed, and that is an error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
