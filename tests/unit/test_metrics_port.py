"""`/metrics` on a port of its own: there alone, and nothing else there."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from flask import Flask

import api.errors
from api import metrics_port
from api.ops_api import ops
from tests.live import free_port, start_service

PATHS = ("/metrics", "/healthz", "/nothing", "/openapi.json")


def statuses(metrics_port_set: int | None, asked_port: int) -> dict[str, int]:
    app = Flask("probe")
    api.errors.install(app, {})
    metrics_port.install(app, metrics_port_set)
    app.register_blueprint(ops)
    # What it tells needs a database; where it is told does not.
    app.view_functions["ops.metrics"] = lambda: "told"
    client = app.test_client()
    return {
        path: client.get(
            path,
            # The request may say what it likes: `Host` names the other port.
            headers={"Host": "judge.example:9100"},
            environ_overrides={"SERVER_PORT": str(asked_port)},
        ).status_code
        for path in PATHS[:3]
    }


def test_without_the_setting_metrics_are_where_everything_is() -> None:
    assert statuses(None, 8080) == {"/metrics": 200, "/healthz": 200, "/nothing": 404}


def test_with_it_they_are_there_alone() -> None:
    assert statuses(9100, 8080) == {"/metrics": 404, "/healthz": 200, "/nothing": 404}
    assert statuses(9100, 9100) == {"/metrics": 200, "/healthz": 404, "/nothing": 404}


@pytest.mark.slow
def test_the_server_listens_on_both(mongo_uri: str, tmp_path: Path) -> None:
    port = free_port()
    service = start_service(mongo_uri, tmp_path / "service.log", METRICS_PORT=str(port))
    try:
        metrics = f"http://127.0.0.1:{port}"
        other = {"Host": service.url.removeprefix("http://")}
        answer = httpx.get(f"{metrics}/metrics", headers=other)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert httpx.get(f"{service.url}/metrics").status_code == 404
        for path in PATHS[1:]:
            assert httpx.get(f"{metrics}{path}", headers=other).status_code == 404
        assert httpx.get(f"{service.url}/readyz").status_code == 200
    finally:
        service.stop()
