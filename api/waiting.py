"""Holding an answer until there is one.

Guarantees: at most `WAITERS_MAX` requests of a process wait; others are answered at once, so that
waiting polls never take the threads that heartbeats need.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from flask import request

from api.services import services

T = TypeVar("T")


def hold(look: Callable[[], T | None], wait_s: float) -> T | None:
    """Call `look` until it returns something, for at most `wait_s` seconds."""
    found = look()
    if found is not None or wait_s <= 0:
        return found
    wakeup = services().wakeup
    with services().waiters.place() as may_wait:
        if not may_wait:
            return None
        until = time.monotonic() + wait_s
        while not wakeup.closed:
            generation = wakeup.generation()
            found = look()
            left_s = until - time.monotonic()
            if found is not None or left_s <= 0:
                return found
            wakeup.wait(generation, left_s)
            if _client_is_gone():
                # Nobody would hear the answer, and a job claimed for it would wait a whole lease.
                return None
    return None


def _client_is_gone() -> bool:
    """Tell whether the client has hung up. A server that does not show its socket cannot tell."""
    connection = request.environ.get("gunicorn.socket") or request.environ.get("werkzeug.socket")
    if not isinstance(connection, socket.socket):
        return False
    try:
        # Asked first: on a socket with a timeout, even a receive that is not to wait would wait.
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return bool(poll.poll(0)) and connection.recv(1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):
        return True
