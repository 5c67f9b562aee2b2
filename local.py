"""The store and the secret of a service that was given neither: for one's own machine.

Guarantees: data and signing key stay under one folder and are found again at the next start. If
no `mongod` can run here, that is said in one loud line; a `mongod` that is there but fails is an
error, never a reason to start on an empty store.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import secrets
import sys
from pathlib import Path

from mongo.embedded import EmbeddedMongo, EmbeddedUnavailable, attach_or_start
from settings import IN_PROCESS_URI, SettingsError


def start_store(data_dir: Path) -> EmbeddedMongo | None:
    """Attach to the embedded server of `data_dir` or start it; None where none can run.

    One that was started here is stopped when this process exits, if not before.

    Raises:
        mongo.embedded.EmbeddedFailed: it is there and does not start on its data.
    """
    try:
        server = attach_or_start(data_dir)
    except EmbeddedUnavailable as reason:
        sys.stderr.write(
            "\n*** NO MONGODB: everything is kept in this process's memory "
            f"and NOTHING WILL SURVIVE IT ({_one_line(reason)}) ***\n\n"
        )
        return None
    atexit.register(server.stop)
    return server


def store_uri(server: EmbeddedMongo | None) -> str:
    """The `MONGODB_URI` that stands for what `start_store` returned."""
    return server.uri if server else IN_PROCESS_URI


def made(folder: Path) -> Path:
    """Return `folder`, made if it is not there.

    Raises:
        SettingsError: it cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from error
    return folder


def kept_secret_key(data_dir: Path) -> str:
    """The signing key of `data_dir`, readable by its owner alone; made at the first call.

    Processes that ask at once get the same one. A file that a power cut left empty counts as
    none.

    Raises:
        SettingsError: the folder cannot be used.
    """
    path = made(data_dir) / "secret_key"
    try:
        return _read(path) or _make_key(path)
    except OSError as error:
        raise _unusable(data_dir, error) from error


def _make_key(path: Path) -> str:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Held for the blink of an eye, and never by the dead.
        fcntl.flock(folder, fcntl.LOCK_EX)
        if key := _read(path):
            return key
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)  # A killed process may have left it.
        with open(draft, "x", opener=_private) as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        os.fsync(folder)
        return _read(path)
    finally:
        os.close(folder)


def _read(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    return ""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _unusable(folder: Path, error: OSError) -> SettingsError:
    return SettingsError(f"DATA_DIR: {folder} cannot be used: {error.strerror}")


def _one_line(reason: BaseException) -> str:
    return " ".join(str(reason).split())
