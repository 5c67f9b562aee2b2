"""What a runner remembers of its identity, so that after a crash it can say who it was.

Guarantees: the file is its user's alone; of several runners that share a folder none takes the
identity of one that lives; after an orderly end nothing is remembered. What cannot be remembered
costs nothing but the waiting for leases of a dead runner to run out.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from runner.outcomes import Registered

PREFIX = "identity-"
FILES_MAX = 64
FILE_BYTES_MAX = 4096

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Former:
    """Who this runner was. `token` is a credential: keep it out of logs."""

    runner_id: str
    token: str = field(repr=False)


class IdentityFile:
    """One runner's memory in a folder, held while it lives. Close it at the end."""

    def __init__(self, folder: Path, service: str) -> None:
        """`service` is the address of the service that the identity is of."""
        self._service = service
        self._fd = _free_file(folder)

    def former(self) -> Former | None:
        """Return the identity of a runner that ended without a word, or `None`."""
        if self._fd is None:
            return None
        try:
            found = json.loads(os.pread(self._fd, FILE_BYTES_MAX, 0) or b"null")
            if not isinstance(found, dict) or found["service"] != self._service:
                return None
            return Former(runner_id=str(found["runner_id"]), token=str(found["token"]))
        except (OSError, ValueError, KeyError) as error:
            _log.warning("identity_unreadable", error=type(error).__name__)
            return None

    def remember(self, identity: Registered) -> None:
        """Keep an identity for the time after a crash."""
        self._write(
            {
                "service": self._service,
                "runner_id": identity.runner_id,
                "token": identity.token,
            }
        )

    def forget(self) -> None:
        """Keep none: this runner owes nobody anything."""
        self._write(None)

    def close(self) -> None:
        """Leave the file to the next runner."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, value: dict[str, str] | None) -> None:
        if self._fd is None:
            return
        try:
            os.ftruncate(self._fd, 0)
            if value is not None:
                os.pwrite(self._fd, json.dumps(value).encode(), 0)
        except OSError as error:
            _log.warning("identity_not_kept", error=error.strerror)


def _free_file(folder: Path) -> int | None:
    """Open and hold the first file that no living runner holds; `None` where there is none."""
    for number in range(FILES_MAX):
        try:
            fd = os.open(
                folder / f"{PREFIX}{number}",
                os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
            )
        except OSError as error:
            _log.warning("identity_not_kept", error=error.strerror)
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, 0o600)
        except OSError:
            os.close(fd)
            continue
        return fd
    return None
