"""The check of the whole database: what the last one found, and the buttons that start one."""

from __future__ import annotations

from flask import abort, render_template
from flask.typing import ResponseReturnValue

from api.services import services
from console.blueprint import console
from console.notices import actor, after


@console.get("/check")
def check() -> ResponseReturnValue:
    """Show how far the check is, or what the last one found."""
    return render_template("console/check.html", last=services().judge.last_check())


@console.post("/check")
def start_check() -> ResponseReturnValue:
    """Have everything checked; nothing is changed."""
    return _start("check", repair=False)


@console.post("/check/repair")
def start_repair() -> ResponseReturnValue:
    """Have everything checked, and put right as it is found."""
    return _start("check_repair", repair=True)


def _start(did: str, *, repair: bool) -> ResponseReturnValue:
    if not services().judge.start_check(repair=repair, by=actor()):
        abort(409, "A check is running already.")
    return after(did, "console.check")
