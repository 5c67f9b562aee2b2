"""Metrics on a port of their own, for networks in which the public must not read them.

Guarantees: where the port is set, it answers `/metrics` and nothing else, and nothing else answers
`/metrics`. Which port a request came in on is told by the server's socket, not by the request.
"""

from __future__ import annotations

from flask import Flask, request

from api.errors import ProblemError

ENDPOINT = "ops.metrics"


def install(app: Flask, metrics_port: int | None) -> None:
    """Keep `app`'s metrics to `metrics_port`, if there is one."""
    if metrics_port is None:
        return

    def keep_apart() -> None:
        came_in_there = request.environ.get("SERVER_PORT") == str(metrics_port)
        if came_in_there != (request.endpoint == ENDPOINT):
            raise ProblemError(404, "not_found", "there is nothing under this path")

    app.before_request(keep_apart)
