"""For operators: health, readiness, metrics, and the API's own description. No key needed."""

from __future__ import annotations

import os

from flask import Blueprint, Response, jsonify
from flask.typing import ResponseReturnValue
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from api.errors import unavailable
from api.gauges import Gauges
from api.schemas import Description, Health
from api.services import services
from api.spec import describe, document

TAG = "operating"

ops = Blueprint("ops", __name__)


@ops.get("/healthz")
@describe(TAG, answers={200: Health}, key=False)
def healthz() -> ResponseReturnValue:
    """Say that the process answers."""
    return jsonify({"status": "ok"})


@ops.get("/readyz")
@describe(TAG, answers={200: Health}, key=False, problems={503: ["not_ready"]})
def readyz() -> ResponseReturnValue:
    """Say whether the database takes writes, and what is wrong if it does not."""
    wrong = services().readiness()
    if wrong is not None:
        raise unavailable("not_ready", wrong)
    return jsonify({"status": "ok"})


@ops.get("/metrics")
@describe(
    TAG,
    answers={200: None},
    streams="text/plain",
    key=False,
    problems={404: ["not_found"]},
)
def metrics() -> ResponseReturnValue:
    """Send the metrics of all processes of this host and of the queue, as Prometheus text."""
    registry = REGISTRY
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    of_the_queue = CollectorRegistry()
    of_the_queue.register(Gauges(services().queue, services().now))
    text = generate_latest(registry) + generate_latest(of_the_queue)
    return Response(text, content_type=CONTENT_TYPE_LATEST)


@ops.get("/openapi.json")
@describe(TAG, answers={200: Description}, key=False)
def openapi() -> ResponseReturnValue:
    """Send the API's description."""
    return jsonify(document())
