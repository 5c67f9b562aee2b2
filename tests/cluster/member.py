"""One `mongod` of a replica set under test: killed, paused, started, and never dead unnoticed."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from mongo.child import dying_with_parent
from mongo.embedded import find_mongod
from mongo.replica_set import connect
from tests.live import free_port

SET_NAME = "cluster"


class MemberDied(Exception):
    """A member has ended, and nobody killed it. No test goes on with that."""


@dataclass
class Member:
    """One `mongod`. `port` is its own, `public_port` the relay's.

    `process` is None where it was never started, or was killed here.
    """

    number: int
    folder: Path
    options: tuple[str, ...]
    port: int = field(default_factory=free_port)
    public_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    paused: bool = False
    _log_start: int = field(default=0, repr=False)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.public_port}"

    @property
    def log(self) -> Path:
        return self.folder / "mongod.log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def client(self, *, limit_s: float = 1.0) -> MongoClient[dict[str, Any]]:
        """A client of this very member, past the relay."""
        return connect(self.port, limit_s=limit_s)

    def check(self) -> None:
        """Raise MemberDied if it has ended by itself, with what it said of that."""
        code = None if self.process is None else self.process.poll()
        if code is not None:
            raise MemberDied(f"member {self.number} ended with {code}: {self._last_words()}")

    def _last_words(self) -> str:
        """The first fatal line of its log since it was started, else the last line."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        return next((line for line in lines if '"s":"F"' in line), "".join(lines[-1:]))

    def start(self) -> None:
        """Start it on the data that it left.

        Raises:
            MemberDied: it ended by itself; to start it again would hide that.
        """
        self.check()
        if self.process is not None:
            raise RuntimeError(f"member {self.number} runs")
        mongod = find_mongod()
        if mongod is None:
            raise RuntimeError("no mongod here")
        data = self.folder / "db"
        data.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(
                [
                    *(str(mongod), "--dbpath", str(data), "--port", str(self.port)),
                    *("--bind_ip", "127.0.0.1", "--nounixsocket", "--replSet", SET_NAME),
                    *("--wiredTigerCacheSizeGB", "0.25", "--quiet"),
                    *("--setParameter", "diagnosticDataCollectionEnabled=false"),
                    # Fail points; and a member names itself when it opens a connection.
                    *("--setParameter", "enableTestCommands=1"),
                    # With a short election timeout two too often stand at once, and split the vote.
                    *("--setParameter", "replElectionTimeoutOffsetLimitFraction=0.5"),
                    *self.options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=dying_with_parent(),
            )

    def kill(self) -> None:
        """SIGKILL, as a power cut.

        Raises:
            MemberDied: it was dead before.
        """
        self.check()
        self.end()

    def end(self) -> None:
        """SIGKILL, however it is."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None
        self.paused = False

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self._signal(signal.SIGCONT)
            self.paused = False

    def _signal(self, number: int) -> None:
        if self.process is None:
            raise RuntimeError(f"member {self.number} does not run")
        self.process.send_signal(number)
