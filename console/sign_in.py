"""Signing in with an admin key, and out again.

Guarantees: a session is made anew at every sign-in, so one that somebody planted is worth
nothing; after it the browser is sent to a page of the console and nowhere else.
"""

from __future__ import annotations

import re

import structlog
from flask import make_response, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from api.auth import KEY_CHARS_MAX
from api.services import services
from console import session
from console.blueprint import console

log = structlog.get_logger("console")

_PAGE = re.compile(r"/console(?:[/?][A-Za-z0-9_~.,/?=&%+-]*)?", re.ASCII)
FORM_BYTES_MAX = 64 * 1024


@console.get("/sign-in")
def sign_in() -> ResponseReturnValue:
    """Show the form."""
    return _form(wrong=False)


@console.post("/sign-in")
def take_key() -> ResponseReturnValue:
    """Begin a session, if the key is an admin's."""
    request.max_content_length = FORM_BYTES_MAX
    services().guesses.require_left("sign_in", request.remote_addr)
    session.require_form_token(session.visit())
    key = request.form.get("key", "").strip()
    token = None
    if key.isascii() and len(key) <= KEY_CHARS_MAX:
        token = services().judge.start_console_session(key)
    if token is None:
        services().guesses.failed("sign_in", request.remote_addr)
        log.warning("console_sign_in_refused", address=request.remote_addr)
        return _form(wrong=True)
    log.info("console_signed_in", address=request.remote_addr)
    return session.begin(make_response(redirect(_wanted(), 303)), token)


@console.post("/sign-out")
def sign_out() -> ResponseReturnValue:
    """End the session."""
    return session.finish()


def _form(*, wrong: bool) -> ResponseReturnValue:
    session.visit()
    page = render_template("console/sign_in.html", wrong=wrong, wanted=request.values.get("next"))
    return session.remember_visit(make_response(page, 401 if wrong else 200))


def _wanted() -> str:
    wanted = request.form.get("next", "")
    return wanted if _PAGE.fullmatch(wanted) else url_for("console.overview")
