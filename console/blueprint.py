"""The console's blueprint: every page hangs on it, with these headers.

Guarantees: no page runs anything but the console's own script file, is shown inside another page,
is stored by a browser, or tells others where somebody came from.
"""

from __future__ import annotations

from flask import Blueprint, Response, request

STATIC = "console.static"
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

console = Blueprint(
    "console",
    __name__,
    url_prefix="/console",
    template_folder="templates",
    static_folder="static",
    static_url_path="/static",
)


@console.after_request
def add_headers(response: Response) -> Response:
    """Add the headers that every answer of the console carries."""
    response.headers.update(HEADERS)
    # The script and the styles are the same for everybody; a browser asks whether they changed.
    response.headers["Cache-Control"] = "no-cache" if request.endpoint == STATIC else "no-store"
    return response
