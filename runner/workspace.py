"""Folders for jobs on this machine's disk.

Guarantees: each job has a folder of its own that only its slot's user and the runner can
enter; it is removed afterwards, whoever owns what is in it; what a killed runner left behind
is removed by the next one to start here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

PREFIX = "runner-jobs-"
LOCK = "lock"

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """One job's folder: the program's source, what is compiled from it, and room to write.

    `scratch` serves only where there is no private /tmp.
    """

    folder: Path

    @property
    def sources(self) -> Path:
        """Holds the source; the program may read it."""
        return self.folder / "src"

    @property
    def binaries(self) -> Path:
        """The compiler may write here, nothing else may."""
        return self.folder / "out"

    @property
    def scratch(self) -> Path:
        """A program without walls may write here."""
        return self.folder / "scratch"


class WorkRoot:
    """The folder under which this runner's jobs have theirs. Close it to remove it."""

    def __init__(self, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _sweep(parent)
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        # Programs' users pass through to their own job's folder, but cannot list it.
        self.folder.chmod(0o711)
        self._lock = os.open(self.folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove everything."""
        _remove(self.folder)
        os.close(self._lock)

    @contextmanager
    def workspace(self, uid: int | None) -> Iterator[Workspace]:
        """Make one job's folder for the user `uid` (`None`: our own); remove it at the end."""
        workspace = Workspace(folder=Path(tempfile.mkdtemp(prefix="job-", dir=self.folder)))
        try:
            workspace.sources.mkdir(mode=0o755)
            for writable in (workspace.binaries, workspace.scratch):
                writable.mkdir(mode=0o700)
                if uid is not None:
                    os.chown(writable, uid, uid)
            if uid is not None:
                os.chown(workspace.folder, uid, uid)
            yield workspace
        finally:
            _remove(workspace.folder)


def empty(folder: Path) -> None:
    """Remove what is in a folder, whoever made it and however it is protected."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            _remove(entry)
        else:
            entry.unlink()


def _remove(folder: Path) -> None:
    """Remove a folder. What resists is logged: it must not cost the job its result."""
    # Without root a program's folder may be closed even to the runner, its owner.
    for path, names, _ in os.walk(folder):
        for name in names:
            inner = os.path.join(path, name)
            if not os.path.islink(inner):
                with suppress(PermissionError):
                    os.chmod(inner, stat.S_IRWXU)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        _log.warning("folder_not_removed", error=error.strerror)


def _sweep(parent: Path) -> None:
    """Remove the folders of runners that are gone: those whose lock nobody holds."""
    for folder in parent.glob(f"{PREFIX}*"):
        # A folder that is being made or removed this moment, or is another user's, stays.
        with suppress(OSError):
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(handle)
