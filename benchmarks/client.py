"""A client that costs next to nothing, so that what is measured is the service.

Guarantees: one connection, kept alive; one that the server closed between two requests is opened
anew. It reads what this service answers (a status, a Content-Length), not HTTP at large.
"""

from __future__ import annotations

import json
import secrets
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

TIMEOUT_S = 60.0


class Connection:
    """One keep-alive connection to 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sock: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up. May be repeated."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def request(
        self, method: str, path: str, key: str, body: bytes = b"", kind: str = "application/json"
    ) -> tuple[int, bytes]:
        """Send a request; return the answer's status and body.

        Raises:
            OSError: the connection broke, or no answer came in time.
        """
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Authorization: Bearer {key}\r\n"
        )
        if body or method != "GET":
            head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        message = head.encode() + b"\r\n" + body
        kept = self._sock is not None
        try:
            return self._exchange(message)
        except (ConnectionError, BrokenPipeError):
            self.close()
            if not kept:
                raise
            # The server may close a connection that was idle; nothing of the answer had come.
            return self._exchange(message)

    def _exchange(self, message: bytes) -> tuple[int, bytes]:
        if self._sock is None:
            self._sock = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.sendall(message)
        data = self._sock.recv(65536)
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = data[:end].lower()
        body = data[end + 4 :]
        length = 0
        if (at := head.find(b"\r\ncontent-length:")) >= 0:
            length = int(head[at + 17 :].split(b"\r\n", 1)[0])
        while len(body) < length:
            body += self._more()
        if b"\r\nconnection: close" in head:
            self.close()
        return int(head[9:12]), body

    def _more(self) -> bytes:
        if self._sock is None:
            raise ConnectionResetError("closed")
        data = self._sock.recv(65536)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        return data


def multipart(fields: dict[str, str], code: bytes) -> tuple[bytes, str]:
    """Return the body of a submit and its content type."""
    boundary = secrets.token_hex(12)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    parts.append(
        f"--{boundary}\r\n"
        'Content-Disposition: form-data; name="code"; filename="main.py"\r\n'
        "Content-Type: text/x-python\r\n\r\n".encode()
        + code
        + f"\r\n--{boundary}--\r\n".encode()
    )
    return b"".join(parts), f"multipart/form-data; boundary={boundary}"


class Refused(RuntimeError):
    """The service answered what the benchmark did not expect."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerKey:
    """A registered runner."""

    runner_id: str
    token: str


def register(connection: Connection, registration_token: str, name: str) -> RunnerKey:
    """Register a runner.

    Raises:
        Refused: the service did not take it.
    """
    wish = json.dumps({"registration_token": registration_token, "name": name}).encode()
    status, body = connection.request("POST", "/runners/register", "none", wish)
    if status != 201:
        raise Refused(f"register: {status} {body[:200]!r}")
    answer = json.loads(body)
    return RunnerKey(runner_id=answer["runner_id"], token=answer["token"])


def next_job(connection: Connection, runner: RunnerKey, wait_s: int = 0) -> dict[str, Any] | None:
    """Ask for a job; None where there is none.

    Raises:
        Refused: any other answer.
    """
    wait = f"?wait={wait_s}" if wait_s else ""
    path = f"/runners/{runner.runner_id}/next-job{wait}"
    status, body = connection.request("GET", path, runner.token)
    if status == 204:
        return None
    if status != 200:
        raise Refused(f"next-job: {status} {body[:200]!r}")
    job: dict[str, Any] = json.loads(body)
    return job


def result_of(job: dict[str, Any], accepted: bool) -> bytes:
    """Return the body of a complete: every case with a few bytes of output."""
    case = {
        "exitCode": 0,
        "status": "AC" if accepted else "WA",
        "stdout": "42\n",
        "stderr": "",
        "execTime": 12,
        "memoryUsage": 3456,
    }
    tasks = [[case] * task["caseCount"] for task in job["tasks"]]
    return json.dumps({"tasks": tasks, "lease_token": job["lease_token"]}).encode()


def complete(connection: Connection, runner: RunnerKey, job: dict[str, Any], accepted: bool) -> int:
    """Report a result; return the status."""
    path = f"/runners/{runner.runner_id}/jobs/{job['job_id']}/complete"
    return connection.request("PUT", path, runner.token, result_of(job, accepted))[0]


def submit(connection: Connection, key: str, problem_id: int, code: bytes) -> tuple[int, str]:
    """Hand in a Python program; return the status and the submission's id."""
    body, kind = multipart({"problem_id": str(problem_id), "language": "2"}, code)
    status, answer = connection.request("POST", "/submissions", key, body, kind)
    return status, json.loads(answer)["submission_id"] if status == 201 else ""
