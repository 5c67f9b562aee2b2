"""The console put together: its blueprint with every page on it.

Guarantees: whatever is asked for below `/console` is answered by the console, also what does not
exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from flask import Flask, abort
from flask.typing import ResponseReturnValue

from api.services import services
from console import (  # noqa: F401 - pages put themselves on the blueprint
    checks,
    errors,
    homeworks,
    outputs,
    overview,
    queue,
    rejudges,
    runners,
    sign_in,
    submissions,
    words,
)
from console.blueprint import console
from console.notices import notice
from console.session import current_session, form_token
from dispatch.control import Pause

NAVIGATION = (
    ("console.overview", "Overview"),
    ("console.queue", "Queue"),
    ("console.runners", "Runners"),
    ("console.submissions", "Submissions"),
    ("console.judge_errors", "Judge errors"),
    ("console.rejudges", "Rejudges"),
    ("console.homeworks", "Homeworks"),
    ("console.check", "Check"),
)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def install(app: Flask, domain_errors: Mapping[type[Exception], int]) -> None:
    """Serve the console from `app`. `domain_errors`: the domain's exceptions and statuses."""
    errors.install(app, domain_errors)
    app.register_blueprint(console)


@console.route("/<path:rest>", methods=METHODS)
def nowhere(rest: str) -> ResponseReturnValue:
    """Say in the console's own look that there is no such page."""
    abort(404, "There is no such page.")


@console.context_processor
def helpers() -> dict[str, object]:
    """Return what the templates call."""
    return {
        "form_token": form_token,
        "navigation": NAVIGATION,
        "notice": notice,
        "session": current_session,
        "pause": _pause,
        "now": services().now,
        "words": words,
    }


def _pause() -> Pause | None:
    return services().queue.control.paused()
