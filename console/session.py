"""Who is at the console: the session's cookie, and the token that every form carries.

Guarantees: the cookie holds a signed, random session id and nothing else; it is out of reach of
scripts and of other sites. No form takes effect without its token, which belongs to one session
(or, before there is one, to one visit) and is compared in constant time.
"""

from __future__ import annotations

import secrets

from flask import Response, abort, g, redirect, request, url_for
from flask.typing import ResponseReturnValue
from itsdangerous import BadSignature, Signer

from api.ports import ConsoleSession
from api.services import services
from console.blueprint import STATIC, console

SESSION_COOKIE = "console_session"
VISIT_COOKIE = "console_visit"
FORM_TOKEN = "form_token"  # noqa: S105 - a field's name
SIGN_IN = "console.sign_in"
OPEN_TO_ALL = (STATIC, SIGN_IN, "console.take_key")
COOKIE_CHARS_MAX = 500


@console.before_request
def require_session() -> ResponseReturnValue | None:
    """Let nobody in who is not signed in, and no form whose token is not this session's."""
    if request.endpoint in OPEN_TO_ALL:
        return None
    token = _read(SESSION_COOKIE)
    session = None if token is None else services().judge.console_session(token)
    if token is None or session is None:
        wanted = request.full_path.rstrip("?") if request.method == "GET" else None
        return redirect(url_for(SIGN_IN, next=wanted), 303)
    g.console_session = session
    g.console_token = token
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        require_form_token(token)
    return None


def current_session() -> ConsoleSession | None:
    """Return the session of this request, or None where nobody is signed in."""
    session: ConsoleSession | None = g.get("console_session")
    return session


def require_form_token(of: str) -> None:
    """Abort with 403 unless the form carries the token that belongs to `of`."""
    given = request.form.get(FORM_TOKEN, "")
    if not _signer("form").verify_signature(of, given):
        abort(403, "The form is out of date. Go back, reload the page and try again.")


def form_token() -> str:
    """Return the token for this page's forms."""
    of = g.get("console_token") or g.get("console_visit", "")
    return _signer("form").get_signature(of).decode("ascii")


def begin(response: Response, token: str) -> Response:
    """Give the browser the session that was just made, in place of whatever it had."""
    _set(response, SESSION_COOKIE, token)
    response.delete_cookie(VISIT_COOKIE, path="/console")
    return response


def finish() -> Response:
    """End this request's session, here and in the browser."""
    services().judge.end_console_session(g.console_token)
    response = Response(status=303, headers={"Location": url_for(SIGN_IN)})
    response.delete_cookie(SESSION_COOKIE, path="/console")
    return response


def visit() -> str:
    """Return what the sign-in form's token belongs to; remembered by `remember_visit`."""
    g.console_visit = _read(VISIT_COOKIE) or secrets.token_urlsafe(16)
    return str(g.console_visit)


def remember_visit(response: Response) -> Response:
    """Have the browser send the visit along with the sign-in form."""
    _set(response, VISIT_COOKIE, g.console_visit)
    return response


def _set(response: Response, name: str, value: str) -> None:
    response.set_cookie(
        name,
        _signer(name).sign(value).decode("ascii"),
        path="/console",
        secure=request.is_secure or (services().settings.public_url or "").startswith("https://"),
        httponly=True,
        samesite="Strict",
    )


def _read(name: str) -> str | None:
    signed = request.cookies.get(name, "")
    if not signed.isascii() or len(signed) > COOKIE_CHARS_MAX:
        return None
    try:
        return _signer(name).unsign(signed).decode("ascii")
    except BadSignature:
        return None


def _signer(use: str) -> Signer:
    secret_key = services().settings.secret_key
    if not secret_key:
        raise RuntimeError("there is no SECRET_KEY to sign sessions with")
    return Signer(secret_key, salt=f"console-{use}")
