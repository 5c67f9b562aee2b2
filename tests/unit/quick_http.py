"""The API's way of taking requests in, with little patience and a service of a few lines."""

from __future__ import annotations

import time
from typing import Any

import gunicorn.util
from flask import Flask, request

from http_worker import PatientWorker


def linger_for_ever(sock: Any, **_: Any) -> None:
    time.sleep(600)


# What the main loop of gunicorn's own class would do for up to two seconds per client.
gunicorn.util.close_graceful = linger_for_ever


class QuickWorker(PatientWorker):
    header_s = body_s = answer_s = 0.4
    linger_s = 0.05


class SlowWorker(PatientWorker):
    """Patient beyond any test's end: what it answers it answers for another reason."""

    header_s = body_s = answer_s = 600.0
    linger_s = 0.05


def create_app() -> Flask:
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = 1 << 20

    @app.get("/")
    def hello() -> str:
        return "hello"

    @app.post("/echo")
    def echo() -> bytes:
        return request.get_data()

    @app.post("/ignore")
    def ignore() -> str:
        return "ignored"

    @app.get("/much")
    def much() -> bytes:
        return bytes(64 << 20)

    return app
