"""A service of a few lines for the runner's tests: it answers as it is told and notes all it got.

It keeps no leases: what the real one does is tested elsewhere. Here the runner is on trial.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from tests.runner.support import sha256, source_zip, testdata_zip

TOKEN = "rk_the-runners-token"
REGISTRATION_TOKEN = "the-registration-token"
SIGNATURE = "the-signature"
NAMES = ("main.c", "main.cpp", "main.py")


@dataclass(kw_only=True)
class FakeService:
    """Hands out `offers` one by one. `answers[verb]` overrides what comes next, in order."""

    offers: deque[dict[str, Any]] = field(default_factory=deque)
    blobs: dict[str, bytes] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    answers: dict[str, deque[int]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    drain: bool = False
    config: dict[str, Any] = field(
        default_factory=lambda: {
            "heartbeat_interval_sec": 0.1,
            "poll_interval_sec": 0.05,
            "max_concurrent_jobs": 8,
        }
    )
    changed: threading.Condition = field(default_factory=threading.Condition)

    def add_job(
        self,
        job_id: str,
        source: bytes,
        *cases: tuple[bytes, bytes],
        language: int = 2,
        time_ms: int = 5000,
        **more: Any,
    ) -> None:
        """Offer a job of one task."""
        cases = cases or ((b"", b""),)
        data = testdata_zip([cases])
        self.blobs[f"/files/{job_id}/code"] = source_zip(NAMES[language % 3], source)
        self.blobs[f"/files/{job_id}/data"] = data
        self.offers.append(
            {
                "job_id": job_id,
                "submission_id": f"sn_of_{job_id}",
                "problem_id": 1,
                "language": language,
                "code_url": f"/files/{job_id}/code?s={SIGNATURE}",
                "checker": "default",
                "tasks": [
                    {
                        "taskScore": 100,
                        "memoryLimit": 65536,
                        "timeLimit": time_ms,
                        "caseCount": len(cases),
                    }
                ],
                "attempt": 1,
                "lease_token": f"lt_of_{job_id}",
                "testdata_url": f"/files/{job_id}/data?s={SIGNATURE}",
                "testdata_sha256": sha256(data),
                "a_field_of_tomorrow": 1,
                **more,
            }
        )

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        with self.changed:
            answer = self._answer(request)
            self.changed.notify_all()
            return answer

    def got(self, verb: str) -> list[Any]:
        """Return the bodies of all calls of one kind so far."""
        return [body for name, body in self.calls if name == verb]

    def wait_for(self, verb: str, count: int = 1, timeout_s: float = 30) -> list[Any]:
        """Wait until `count` calls of one kind were made, and return their bodies."""
        with self.changed:
            enough = self.changed.wait_for(lambda: len(self.got(verb)) >= count, timeout_s)
        if not enough:
            raise AssertionError(f"no {verb} in {timeout_s} s; calls: {self.calls}")
        return self.got(verb)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.startswith("/files/"):
            self.calls.append(("download", path))
            if request.headers.get("Authorization") or path not in self.blobs:
                return httpx.Response(404)
            return httpx.Response(200, content=self.blobs[path])
        verb = path.rpartition("/")[2]
        body = json.loads(request.content) if request.content else dict(request.url.params)
        if verb in ("complete", "abort"):
            body["job_id"] = path.split("/")[-2]
        self.calls.append((verb, body))
        if verb != "register" and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return httpx.Response(401)
        if self.answers.get(verb):
            return httpx.Response(self.answers[verb].popleft())
        return self._usual_answer(verb, body)

    def _usual_answer(self, verb: str, body: dict[str, Any]) -> httpx.Response:
        if verb == "register":
            identity = {"runner_id": "rn_1", "token": TOKEN, "config": self.config}
            return httpx.Response(201, json=identity)
        if verb == "heartbeat":
            lost = self.lost.intersection(body["active_job_ids"])
            return httpx.Response(200, json={"lost_job_ids": sorted(lost), "drain": self.drain})
        if verb == "next-job":
            return httpx.Response(200, json=self.offers.popleft()) if self.offers else NO_CONTENT
        return httpx.Response(202 if verb == "abort" else 204)


NO_CONTENT = httpx.Response(204)


@contextmanager
def serving(service: FakeService) -> Iterator[str]:
    """Serve it over HTTP on loopback; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            answer = service.handle(
                httpx.Request(
                    self.command,
                    f"http://service{self.path}",
                    headers=dict(self.headers),
                    content=self.rfile.read(length),
                )
            )
            self.send_response(answer.status_code)
            if answer.status_code != 204:
                self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_PUT = _respond

        def log_message(self, *args: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
