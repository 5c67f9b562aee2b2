"""Holding an answer until there is one.

Guarantees: at most `WAITERS_MAX` requests of a process wait; others are answered at once, so that
waiting polls never take the threads that heartbeats need. Who waits asks the database nothing until
there is reason to. A poll whose client has hung up takes nothing.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from flask import request

from api.services import services
from dispatch.wakeup import Interest, Notice, Waiter

T = TypeVar("T")

LISTENS_EVERY_S = 1.0
"""How often a waiting request looks whether its client is still there. (No database is asked.)"""
READS_EVERY_S = 5.0
"""How often a waiting reader looks all the same: for what no notice told of."""


def hold_for_job(look: Callable[[], T | None], wait_s: float, interest: Interest) -> T | None:
    """Call `look` until it returns a job, for at most `wait_s` seconds.

    One notice has one poll look. It is handed on after a look in vain as long as its job may still
    be had, and, where it told of several jobs, after one that found a job, too.
    """
    wakeup = services().wakeup

    def answer(waiter: Waiter) -> T | None:
        notice = waiter.look()
        try:
            found = look()
        except BaseException:
            if notice is not None:
                wakeup.hand_on(notice)
            raise
        if notice is not None:
            _answered(notice, found is not None)
        return found

    return _hold(look, answer, wait_s, interest, look_every_s=None)


def _answered(notice: Notice, found: bool) -> None:
    wakeup = services().wakeup
    if notice.submission_id is None:
        if found:
            wakeup.notify()
        else:
            wakeup.hand_on(notice)
    elif not found and services().is_free(notice.submission_id):
        wakeup.hand_on(notice)


def hold_for_verdict(look: Callable[[], T | None], wait_s: float, submission_id: str) -> T | None:
    """Call `look` until it returns something, for at most `wait_s` seconds."""

    def answer(waiter: Waiter) -> T | None:
        waiter.look()
        return look()

    interest = Interest(submission_id=submission_id)
    return _hold(look, answer, wait_s, interest, look_every_s=READS_EVERY_S)


def _hold(
    look: Callable[[], T | None],
    answer: Callable[[Waiter], T | None],
    wait_s: float,
    interest: Interest,
    *,
    look_every_s: float | None,
) -> T | None:
    if wait_s <= 0:
        return look()
    with services().waiters.place() as may_wait:
        if not may_wait:
            return look()
        with services().wakeup.waiter(interest) as waiter:
            return _until_found(answer, waiter, time.monotonic() + wait_s, look_every_s)


def _until_found(
    answer: Callable[[Waiter], T | None],
    waiter: Waiter,
    until: float,
    look_every_s: float | None,
) -> T | None:
    wakeup = services().wakeup
    while not wakeup.closed:
        found = answer(waiter)
        if found is not None:
            return found
        look_at = until if look_every_s is None else time.monotonic() + look_every_s
        woken = _sleep(waiter, min(until, look_at))
        if not woken and time.monotonic() >= until:
            return None
        if _client_is_gone():
            # Nobody would hear the answer, and a job claimed for it would wait a whole lease.
            return None
    return None


def _sleep(waiter: Waiter, until: float) -> bool:
    """Sleep until the waiter is woken (True), `until` comes or the client hangs up."""
    while (left_s := until - time.monotonic()) > 0:
        if waiter.wait(min(left_s, LISTENS_EVERY_S)):
            return True
        if _client_is_gone():
            return False
    return False


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
