"""The servers under measurement, on free loopback ports, in folders that vanish.

Guarantees: the service runs as in production (`serve.py`, so `gunicorn_conf.py`) but for what a
row names; every server dies with this process, however that ends.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from mongo.child import dying_with_parent

ROOT = Path(__file__).resolve().parents[1]
START_S_MAX = 60.0
STOP_S_MAX = 20.0


class Missing(RuntimeError):
    """Something that is measured beside ours is not to be had; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A running API."""

    port: int
    admin_key: str
    registration_token: str
    processes: int
    arbiter: psutil.Process

    def workers(self) -> list[psutil.Process]:
        """Return the API processes themselves."""
        gunicorn = self.arbiter.children()
        return [worker for process in gunicorn for worker in process.children()]

    def cpu_s(self) -> float:
        """Return the CPU that the API processes have used, in seconds."""
        return sum(cpu_s(worker) for worker in self.workers())

    def memory_mib(self) -> float:
        """Return the private memory of the API processes, in MiB."""
        return sum(worker.memory_full_info().uss for worker in self.workers()) / 2**20


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU that a process has used, in seconds."""
    used = process.cpu_times()
    return float(used.user + used.system)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(
    command: list[str], log: Path, *, user: str | None = None, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a program running while the block does."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT if user is None else "/",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            user=user,
            env=os.environ | (env or {}),
            preexec_fn=dying_with_parent(),
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def service(mongo_uri: str, folder: Path, **settings: str) -> Iterator[Service]:
    """Keep the API running on a database. Settings by the names of their variables."""
    port = free_port()
    environment = {
        "MONGODB_URI": mongo_uri,
        "SECRET_KEY": secrets.token_urlsafe(24),
        "ADMIN_API_KEY": f"ak_{secrets.token_urlsafe(24)}",
        "RUNNER_REGISTRATION_TOKEN": secrets.token_urlsafe(12),
        "PORT": str(port),
        "WEB_CONCURRENCY": "2",
        # Its runners make verdicts up.
        "RUNNER_CHECKS": "off",
        **settings,
    }
    log = folder / f"service-{port}.log"
    with running([sys.executable, "serve.py"], log, env=environment) as process:
        _await_ready(process, port, log)
        yield Service(
            port=port,
            admin_key=environment["ADMIN_API_KEY"],
            registration_token=environment["RUNNER_REGISTRATION_TOKEN"],
            processes=int(environment["WEB_CONCURRENCY"]),
            arbiter=psutil.Process(process.pid),
        )


def _await_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_S_MAX
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the service did not start:\n{log.read_text()[-2000:]}")


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_S_MAX
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"a server did not start:\n{log.read_text()[-2000:]}")


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Keep a Redis that syncs every write; yield its URL.

    Raises:
        Missing: there is none.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise Missing("redis-server is missing (apt-get install redis-server)")
    port, home = free_port(), folder / "redis"
    home.mkdir()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home)]
    command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    log = folder / "redis.log"
    with running(command, log) as process:
        _await_port(process, port, log)
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Keep a PostgreSQL with its default durability (fsync, synchronous_commit); yield its DSN.

    Raises:
        Missing: there is none.
    """
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        raise Missing("PostgreSQL is missing (apt-get install postgresql)")
    user = "postgres" if os.geteuid() == 0 else None
    port, home = free_port(), folder / "postgres"
    home.mkdir()
    # The server refuses to run as root; its user has to get to its folder.
    folder.chmod(0o711)
    log = folder / "postgres.log"
    initdb = [str(programs[-1]), "-D", f"{home}/data", "-U", "bench", "--auth=trust", "-E", "UTF8"]
    try:
        if user is not None:
            shutil.chown(home, user)
        subprocess.run(initdb, check=True, user=user, cwd="/", capture_output=True)
    except (OSError, LookupError, subprocess.CalledProcessError) as error:
        raise Missing(f"PostgreSQL does not start: {error}") from error
    server = [str(programs[-1].with_name("postgres")), "-D", f"{home}/data", "-p", str(port)]
    server += ["-k", str(home), "-c", "listen_addresses=127.0.0.1"]
    with running(server, log, user=user) as process:
        _await_port(process, port, log)
        yield f"postgresql://bench@127.0.0.1:{port}/postgres"
