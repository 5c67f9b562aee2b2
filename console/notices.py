"""What a page says after something was done.

Guarantees: only sentences of this table are shown, whatever an address holds.
"""

from __future__ import annotations

from typing import Any

import structlog
from flask import redirect, request, url_for
from flask.typing import ResponseReturnValue

from console.session import current_session

log = structlog.get_logger("console")

NOTICES = {
    "paused": "The queue is paused. What runners hold goes on.",
    "resumed": "The queue hands out jobs again.",
    "problem_released": "The problem's jobs are handed out again.",
    "revoked": "The runner is revoked. What it holds goes to others when its leases end.",
    "asked-to-drain": "The runner gets no more jobs. It ends by itself if it asks to be told.",
    "reinstated": "The runner gets jobs again.",
    "rejudge": "A fresh judging is on its way. Until it lands, the earlier result counts.",
    "cancelled": "The rejudge is taken back. The earlier result stands.",
    "front": "It is the next to be judged.",
    "check": "The check has begun. It goes on by itself, also when nobody looks.",
    "check_repair": "The check has begun, and puts right what it finds.",
    "rejudges": "The rejudge has begun. It goes on by itself, also when nobody looks.",
    "rejudge_hold": "The rejudge is paused. What runners hold still lands.",
    "rejudge_release": "The rejudge goes on.",
    "rejudge_cancel": "The rejudge is cancelled. What was not claimed yet keeps its old result.",
    "rejudge_apply": "The new verdicts count from now on.",
    "rejudge_discard": "The new verdicts are dropped. Every grade is as it was.",
}


def after(did: str, endpoint: str, **values: Any) -> ResponseReturnValue:
    """Log what was done and by whom, and send the browser to a page that says so."""
    log.info("console_action", did=did, by=actor(), **values)
    return redirect(url_for(endpoint, did=did, **values), 303)


def notice() -> str | None:
    """Return what this page is to say first."""
    return NOTICES.get(request.args.get("did", ""))


def actor() -> str:
    """Return how the books name whoever is signed in."""
    session = current_session()
    return "console" if session is None else f"console, key {session.key_mark}"
