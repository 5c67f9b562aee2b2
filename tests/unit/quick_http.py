"""The API's way of taking requests in, with little patience and a service of a few lines."""

from __future__ import annotations

from flask import Flask, request

from http_worker import PatientWorker


class QuickWorker(PatientWorker):
    header_s = 0.4
    body_s = 0.4
    answer_s = 0.4


class SlowWorker(PatientWorker):
    """Patient beyond any test's end: what it answers it answers for another reason."""

    header_s = body_s = answer_s = 600.0


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
