"""Reaping what bubblewrap leaves behind.

Guarantees: the first process inside the walls, an orphan once bubblewrap has ended, is reaped by
the runner, in bounded time. Else it would stay a zombie where nobody else reaps, as in a container
without an init, and count against its user's processes for ever. What the kernel then tells of it
covers its whole tree, the last moment included.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import time
from contextlib import suppress

import structlog

PR_SET_CHILD_SUBREAPER = 36
REAP_S_MAX = 2.0
PAUSE_S = 0.001

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


def adopt_orphans() -> None:
    """Have this process become the parent of its descendants' orphans. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "orphans cannot be adopted")


def first_inside(status: str) -> int | None:
    """Return the pid that bubblewrap's status names, as it is seen from outside."""
    for line in status.splitlines():
        with suppress(ValueError):
            told = json.loads(line)
            if isinstance(told, dict) and isinstance(told.get("child-pid"), int):
                return int(told["child-pid"])
    return None


def reap(pid: int) -> resource.struct_rusage | None:
    """Wait for an adopted process that is ending; return what its tree used, if it is ours."""
    deadline = time.monotonic() + REAP_S_MAX
    while True:
        try:
            reaped, _, usage = os.wait4(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if reaped:
            return usage
        if time.monotonic() > deadline:
            _log.error("process_not_reaped", pid=pid)
            return None
        time.sleep(PAUSE_S)
