"""A real `mongod` without installing one: for development, the demo and the tests.

Guarantees:
- It listens on loopback alone and keeps its data under one folder; they survive a clean stop,
  SIGKILL and a changed port.
- At most one server runs per folder. Of several processes that ask at once one starts it and the
  others attach; what a killed process left behind is recognised and replaced.
- It dies with the process that started it, however that one ends, and ignores a terminal's Ctrl-C
  so that its users can finish first.
- Every wait is bounded; what goes wrong is raised with the server's last words.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from pymongo.errors import PyMongoError

from mongo.child import dying_with_parent
from mongo.replica_set import (
    SET_NAME,
    accepts_connections,
    connect,
    make_writable,
    refuses_connections,
)

DATABASE = "judge"
_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 15.0
_LOCK_LIMIT_S = 90.0
_BUSY_LIMIT_S = 10.0
_CANNOT_LISTEN = 48
_FOLDER_IN_USE = 100
_LOADER_FAILED = 127
_ILLEGAL_INSTRUCTION = -4


class EmbeddedError(Exception):
    """The embedded server is not to be had; the message says why."""


class EmbeddedUnavailable(EmbeddedError):
    """No `mongod` can run on this machine at all. Callers may fall back to another store."""


class EmbeddedFailed(EmbeddedError):
    """A `mongod` is there, but did not start on this data. Falling back would hide the data."""


def find_mongod() -> Path | None:
    """The `mongod` to use: one in `PATH`, else the one that the local wheel carries, else None."""
    if in_path := shutil.which("mongod"):
        return Path(in_path)
    spec = importlib.util.find_spec("fiftyone")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        candidate = Path(folder, "db", "bin", "mongod")
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    return None


class EmbeddedMongo:
    """The server of one data folder: started by this process, or one that it attached to.

    As a context manager it attaches or starts on entry and stops on exit. `stop` ends only a
    server that this object started.
    """

    def __init__(self, data_dir: Path, *, enable_test_commands: bool = False) -> None:
        """`enable_test_commands` allows fail points; for tests alone."""
        self._dir = data_dir.resolve() / "mongod"
        self._enable_test_commands = enable_test_commands
        self._process: subprocess.Popen[bytes] | None = None
        self._port: int | None = None
        self._pid: int | None = None

    @property
    def uri(self) -> str:
        """The URI of the service's own database. Raises `EmbeddedError` before the start."""
        return self.uri_for(DATABASE)

    def uri_for(self, database: str) -> str:
        """The URI of `database` on this server. Raises `EmbeddedError` before the start."""
        return f"mongodb://127.0.0.1:{self.port}/{database}?replicaSet={SET_NAME}"

    @property
    def port(self) -> int:
        if self._port is None:
            raise EmbeddedError("the embedded mongod has not been started")
        return self._port

    @property
    def pid(self) -> int:
        if self._pid is None:
            raise EmbeddedError("the embedded mongod has not been started")
        return self._pid

    @property
    def owned(self) -> bool:
        """Whether this object started the server, so that it ends with this process."""
        return self._process is not None

    def exit_code(self) -> int | None:
        """None while an owned server runs (or for one attached to); else its exit code."""
        return self._process.poll() if self._process else None

    def is_running(self) -> bool:
        """Whether the server is there, be it this object's or another process's.

        One that is merely slow to answer is there.
        """
        if self._process is not None:
            return self._process.poll() is None
        return self._pid is not None and _exists(self._pid) and not refuses_connections(self.port)

    def start(self) -> None:
        """Attach to the folder's server, or start it; return when it takes writes.

        Raises:
            EmbeddedUnavailable: no `mongod` was found, or it cannot run on this machine.
            EmbeddedFailed: it ended or did not become writable in time, or the folder cannot be
                used.
        """
        if self.owned and self.exit_code() is None:
            return
        try:
            self._dir.mkdir(parents=True, exist_ok=True)
            with self._lock():
                if not self._attach():
                    self._start_own()
        except OSError as error:
            why = error.strerror or error
            raise EmbeddedFailed(f"DATA_DIR: {self._dir} cannot be used: {why}") from error

    def stop(self) -> None:
        """End the server if this object started it: SIGTERM, then SIGKILL. May be repeated."""
        if self._process is None:
            return
        # Under the lock, so that nobody attaches to a server that is about to end.
        with self._lock():
            self._end_process()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _port_file(self) -> Path:
        return self._dir / "port"

    @property
    def _log_file(self) -> Path:
        return self._dir / "mongod.log"

    @property
    def _data(self) -> Path:
        return self._dir / "db"

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        deadline = time.monotonic() + _LOCK_LIMIT_S
        with (self._dir / "lock").open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise EmbeddedFailed(f"{file.name} has been locked for too long") from None
                    time.sleep(0.05)
            yield

    def _attach(self) -> bool:
        """Take note of a running server of this folder; whether there is one."""
        port = self._last_port()
        if port is None or not accepts_connections(port):
            return False

        def check() -> None:
            if not accepts_connections(port):
                raise TimeoutError("the server ended while being attached to")

        try:
            with connect(port) as client:
                options = client.admin.command("getCmdLineOpts")["parsed"]
                if options.get("storage", {}).get("dbPath") != str(self._data):
                    return False
                pid = int(client.admin.command("serverStatus")["pid"])
            make_writable(port, limit_s=_START_LIMIT_S, check=check)
        except (PyMongoError, TimeoutError):
            return False
        self._process, self._port, self._pid = None, port, pid
        return True

    def _last_port(self) -> int | None:
        try:
            port = int(self._port_file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return port if 0 < port < 65536 else None

    def _start_own(self) -> None:
        mongod = find_mongod()
        if mongod is None:
            raise EmbeddedUnavailable("no mongod in PATH and none in the Python environment")
        self._data.mkdir(exist_ok=True)
        deadline = time.monotonic() + _BUSY_LIMIT_S
        while not self._started(mongod, _free_port(self._last_port())):
            if time.monotonic() > deadline:
                raise EmbeddedFailed(f"port or folder stay in use:\n{self._last_words()}")
            time.sleep(0.1)
        self._port_file.write_text(f"{self._port}\n")

    def _started(self, mongod: Path, port: int) -> bool:
        """Start the server; False if its port or its folder were still in use."""
        self._spawn(mongod, port)
        try:
            make_writable(port, limit_s=_START_LIMIT_S, check=self._check_running)
        except _Busy:
            return False
        except TimeoutError as error:
            words = self._last_words()
            self._end_process()
            raise EmbeddedFailed(f"{error}\n{words}") from error
        except BaseException:
            self._end_process()
            raise
        return True

    def _spawn(self, mongod: Path, port: int) -> None:
        command = [
            str(mongod),
            *("--dbpath", str(self._data)),
            *("--port", str(port), "--bind_ip", "127.0.0.1", "--nounixsocket"),
            *("--replSet", SET_NAME, "--oplogSize", "128"),
            *("--wiredTigerCacheSizeGB", "0.25", "--quiet"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
        ]
        if self._enable_test_commands:
            command += ["--setParameter", "enableTestCommands=1"]
        with self._log_file.open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=dying_with_parent(),
                )
            except OSError as error:
                raise EmbeddedUnavailable(f"{mongod} cannot be run: {error}") from error
        self._port, self._pid = port, self._process.pid

    def _check_running(self) -> None:
        """Raise if the server has ended, with the reason that its exit code tells."""
        code = self.exit_code()
        if code is None:
            return
        if code in (_CANNOT_LISTEN, _FOLDER_IN_USE):
            raise _Busy
        if code in (_LOADER_FAILED, _ILLEGAL_INSTRUCTION):
            raise EmbeddedUnavailable(f"mongod cannot run on this machine:\n{self._last_words()}")
        raise EmbeddedFailed(f"mongod ended with {code} at its start:\n{self._last_words()}")

    def _end_process(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_LIMIT_S)
        self._process = self._port = self._pid = None

    def _last_words(self, lines: int = 8) -> str:
        with self._log_file.open(errors="replace") as log:
            return "".join(log.readlines()[-lines:]).rstrip()


class _Busy(Exception):
    """Another process took the port meanwhile, or a killed server has not quite ended yet."""


def attach_or_start(data_dir: Path, *, enable_test_commands: bool = False) -> EmbeddedMongo:
    """The running server of `data_dir`: attached to if there is one, else started.

    Raises:
        EmbeddedUnavailable, EmbeddedFailed: as `EmbeddedMongo.start`.
    """
    server = EmbeddedMongo(data_dir, enable_test_commands=enable_test_commands)
    server.start()
    return server


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # It is there, and another user's.
    return True


def _free_port(preferred: int | None) -> int:
    """`preferred` if it is free (clients of before a restart find the server again), or another."""
    for port in (preferred, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port or 0))
            return int(probe.getsockname()[1])
    raise EmbeddedFailed("no free port on 127.0.0.1")
