"""Holding an answer until there is one.

Guarantees: at most `WAITERS_MAX` requests of a process wait; others are answered at once, so that
waiting polls never take the threads that heartbeats need.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

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
    return None
