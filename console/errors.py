"""Errors of the console as pages in its own look.

Guarantees: no stack trace and no secret on any of them; the page itself needs no database. What
nobody foresaw is logged and shown as 500.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import structlog
from flask import Flask, current_app, render_template, request
from flask.typing import ResponseReturnValue
from pymongo.errors import PyMongoError
from werkzeug.exceptions import HTTPException

from api.errors import RETRY_AFTER_S, ProblemError
from console.blueprint import console
from dispatch.job import Contended
from logs import without_secrets

log = structlog.get_logger("console")

DOMAIN_ERRORS = "console_domain_errors"
LESS_THAN_AN_ERROR = 400


def install(app: Flask, domain_errors: Mapping[type[Exception], int]) -> None:
    """Tell the pages of `app` the domain's exceptions and their statuses.

    They carry a `detail`.
    """
    app.extensions[DOMAIN_ERRORS] = dict(domain_errors)


@console.errorhandler(Exception)
def on_error(error: Exception) -> ResponseReturnValue:
    """Show an error as a page."""
    if isinstance(error, HTTPException) and (error.code or 500) < LESS_THAN_AN_ERROR:
        return error
    status, detail = _described(error)
    page = render_template(
        "console/error.html", status=status, title=HTTPStatus(status).phrase, detail=detail
    )
    headers = error.headers if isinstance(error, ProblemError) else {}
    return page, status, {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else headers


def _described(error: Exception) -> tuple[int, str]:
    match error:
        case ProblemError():
            return error.status, without_secrets(error.detail)
        case HTTPException():
            status = error.code or 500
            return status, error.description or HTTPStatus(status).phrase
        case Contended():
            return 503, "Others are changing this right now. Try again."
        case PyMongoError():
            log.error("database_error", error=type(error).__name__, exc_info=True)
            return 503, "The database does not answer. Nothing is lost; try again in a moment."
        case _:
            return _domain_error(error)


def _domain_error(error: Exception) -> tuple[int, str]:
    for kind, status in current_app.extensions[DOMAIN_ERRORS].items():
        if isinstance(error, kind):
            return status, without_secrets(str(getattr(error, "detail", "refused")))
    log.error("unforeseen_error", method=request.method, path=request.path, exc_info=True)
    return 500, "This is the service's fault, not yours. It has been logged."
