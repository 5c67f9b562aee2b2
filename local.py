"""The store and the secret of a service that was given neither: for one's own machine.

Guarantees: data and signing key stay under one folder and are found again at the next start. If
no `mongod` can run here, that is said in one loud line; a `mongod` that is there but fails is an
error, never a reason to start on an empty store.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import sys
import tempfile
from pathlib import Path

from mongo.embedded import EmbeddedMongo, EmbeddedUnavailable, attach_or_start
from settings import IN_PROCESS_URI


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


def kept_secret_key(data_dir: Path) -> str:
    """The signing key of `data_dir`, readable by its owner alone; made at the first call.

    Processes that ask at once get the same one.
    """
    path = data_dir / "secret_key"
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    data_dir.mkdir(parents=True, exist_ok=True)
    # Written elsewhere and linked: the file is never seen half written, and the first link wins.
    with tempfile.NamedTemporaryFile("w", dir=data_dir) as draft:
        draft.write(secrets.token_urlsafe(32) + "\n")
        draft.flush()
        with contextlib.suppress(FileExistsError):
            os.link(draft.name, path)
    return path.read_text().strip()


def _one_line(reason: BaseException) -> str:
    return " ".join(str(reason).split())
