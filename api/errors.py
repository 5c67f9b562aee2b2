"""Errors as RFC 9457 problem documents: one table from exception to status and reason.

Guarantees: every error leaves as `application/problem+json` with a stable `reason`, never as an
HTML page, never with a stack trace or a secret; what nobody foresaw is logged and answered 500.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import structlog
from flask import Flask, Response, json, request
from pymongo.errors import DocumentTooLarge, PyMongoError
from werkzeug.exceptions import HTTPException

from dispatch.contract import InvalidResult
from dispatch.job import Contended
from logs import without_secrets

log = structlog.get_logger("api")

RETRY_AFTER_S = 1

HTTP_REASONS = {
    400: "invalid_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    414: "uri_too_long",
    415: "unsupported_media_type",
    431: "headers_too_large",
}


class ProblemError(Exception):
    """An answer that is not a success."""

    def __init__(
        self, status: int, reason: str, detail: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.detail = detail
        self.headers = dict(headers or {})


def unauthorized(detail: str) -> ProblemError:
    """Return the 401 for `detail`."""
    return ProblemError(
        401, "unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="judge"'}
    )


def forbidden(detail: str) -> ProblemError:
    """Return the 403 for `detail`."""
    return ProblemError(403, "forbidden", detail)


def invalid(detail: str, reason: str = "invalid_request") -> ProblemError:
    """Return the 400 for `detail`, which names the field."""
    return ProblemError(400, reason, detail)


def unavailable(reason: str, detail: str) -> ProblemError:
    """Return the 503 for `detail`: trying again soon is right."""
    return ProblemError(503, reason, detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def problem_response(problem: ProblemError) -> Response:
    """Return the problem as an answer."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        # A credential that was sent in the place of a name comes back hidden.
        "detail": without_secrets(problem.detail),
        "reason": problem.reason,
    }
    response = Response(
        json.dumps(body), status=problem.status, content_type="application/problem+json"
    )
    response.headers.update(problem.headers)
    return response


def install(
    app: Flask,
    domain_errors: Mapping[type[Exception], int],
    database_errors: Sequence[type[Exception]] = (),
    contended_errors: Sequence[type[Exception]] = (),
) -> None:
    """Answer every error as a problem.

    `domain_errors`: the domain's refusals, which carry `reason` and `detail`, and their statuses.
    `database_errors` and `contended_errors`: what the domain raises, besides the driver's and the
    queue's own, when the database failed it, and when others won every race.
    """

    def on_problem(error: Exception) -> Response:
        if not isinstance(error, ProblemError):
            raise error
        return problem_response(error)

    def on_domain_error(error: Exception) -> Response:
        status = next(code for kind, code in domain_errors.items() if isinstance(error, kind))
        reason, detail = getattr(error, "reason", "refused"), getattr(error, "detail", "refused")
        return problem_response(ProblemError(status, reason, detail))

    app.register_error_handler(ProblemError, on_problem)
    for kind in domain_errors:
        app.register_error_handler(kind, on_domain_error)
    app.register_error_handler(InvalidResult, _on_invalid_result)
    for contended in contended_errors:
        app.register_error_handler(contended, _on_contended)
    for failed in database_errors:
        app.register_error_handler(failed, _on_database_error)
    app.register_error_handler(Contended, _on_contended)
    app.register_error_handler(PyMongoError, _on_database_error)
    app.register_error_handler(HTTPException, _on_http_error)
    app.register_error_handler(Exception, _on_unforeseen)


def _on_invalid_result(error: Exception) -> Response:
    return problem_response(invalid(str(error), "invalid_result"))


def _on_contended(error: Exception) -> Response:
    return problem_response(unavailable("busy", str(error)))


def _on_database_error(error: Exception) -> Response:
    if isinstance(error, DocumentTooLarge):
        return problem_response(ProblemError(413, "body_too_large", "too large to be stored"))
    log.error("database_error", path=request.path, error=type(error).__name__, exc_info=True)
    return problem_response(unavailable("database_unavailable", "the database did not answer"))


def _on_http_error(error: Exception) -> Response:
    if not isinstance(error, HTTPException) or error.code is None:
        return _on_unforeseen(error)
    if error.code < 400:
        # A redirect to a path spelled otherwise: an HTML page, built from the Host header.
        return problem_response(ProblemError(404, "not_found", "there is nothing under this path"))
    detail = error.description or HTTPStatus(error.code).phrase
    reason = HTTP_REASONS.get(error.code, "http_error")
    headers = {}
    valid_methods = getattr(error, "valid_methods", None)
    if valid_methods:
        headers["Allow"] = ", ".join(sorted(valid_methods))
    return problem_response(ProblemError(error.code, reason, detail, headers=headers))


def _on_unforeseen(error: Exception) -> Response:
    log.error("unforeseen_error", method=request.method, path=request.path, exc_info=True)
    return problem_response(ProblemError(500, "internal_error", "this is our fault; it is logged"))
