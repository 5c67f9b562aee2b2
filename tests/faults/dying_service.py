"""A service that kills itself with SIGKILL just before or just after its k-th database write.

Only writes of requests whose `METHOD path` matches are counted, so that the start and other
requests do not interfere. Runs in a process made by `forkserver`, with the application imported
already.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flask import has_request_context, request
from pymongo import monitoring
from werkzeug.serving import make_server

from app import create_app
from mongo import storage
from settings import load_settings

WRITES = {"insert", "update", "delete", "findAndModify"}


@dataclass(frozen=True, kw_only=True)
class Death:
    """When to die."""

    route: str
    """A pattern that `METHOD path` must match in full."""
    write: int
    """1 is the first write of the request."""
    after: bool
    """After the server has applied it, instead of before it is sent."""
    blobs_apart: bool = False
    """Every program and output is a blob, as large ones are."""


class Killer(monitoring.CommandListener):
    """Counts writes and kills the process at the chosen one."""

    def __init__(self, death: Death) -> None:
        self._death = death
        self._route = re.compile(death.route)
        self._count = 0
        self._chosen: int | None = None

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name not in WRITES or not has_request_context():
            return
        if not self._route.fullmatch(f"{request.method} {request.path}"):
            return
        self._count += 1
        if self._count == self._death.write:
            self._chosen = event.request_id
            if not self._death.after:
                os.kill(os.getpid(), signal.SIGKILL)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        if event.request_id == self._chosen:
            os.kill(os.getpid(), signal.SIGKILL)

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


def serve(settings: dict[str, Any], death: Death, ready: Any, at: datetime | None = None) -> None:
    """Serve on a free port, told through `ready`, until killed; the time is `at`, if given."""
    monitoring.register(Killer(death))
    if death.blobs_apart:
        storage.INLINE_BYTES_MAX = storage.NEVER_INLINE
    app = create_app(load_settings(**settings), clock=None if at is None else lambda: at)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    ready.send(server.port)
    server.serve_forever()
