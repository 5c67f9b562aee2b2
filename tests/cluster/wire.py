"""What chaos traffic is made of: requests over bare sockets, programs with one verdict, a diary.

Only the standard library, so that twenty runners are twenty light processes.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER_S_MAX = 45.0
VERDICTS = ("AC", "AC", "AC", "WA", "CE", "TLE", "MLE", "RE", "OLE")
CODES = {"AC": 0, "WA": 1, "CE": 2, "TLE": 3, "MLE": 4, "RE": 5, "OLE": 7}
TASK_SCORES = (40, 60)


def verdicts_of(code: bytes) -> list[str]:
    """The verdict of each task that this program has, whoever judges it, whenever."""
    digest = hashlib.sha256(code).digest()
    return [VERDICTS[digest[task] % len(VERDICTS)] for task in range(len(TASK_SCORES))]


def expected_of(code: bytes) -> dict[str, int]:
    """Status and score that a submission of this program ends with."""
    verdicts = verdicts_of(code)
    scores = zip(verdicts, TASK_SCORES, strict=True)
    return {
        "status": max(CODES[verdict] for verdict in verdicts),
        "score": sum(score for verdict, score in scores if verdict == "AC"),
    }


def result_of(code: bytes) -> list[list[dict[str, Any]]]:
    """The `tasks` of a `complete` for this program."""
    return [
        [
            {
                "exitCode": 0,
                "status": verdict,
                "stdout": f"{verdict}\n",
                "stderr": "",
                "execTime": 1,
                "memoryUsage": 1,
            }
        ]
        for verdict in verdicts_of(code)
    ]


class Diary:
    """One JSON object a line, each written at once: what a killed process knew is in it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"at": time.time(), "kind": kind, **fields}) + "\n"
        os.write(self._file, line.encode())


def read_diaries(folder: Path) -> list[dict[str, Any]]:
    """Return all that was noted, in order of time."""
    entries = [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")  # not so where a process was killed in the middle of it
    ]
    return sorted(entries, key=lambda entry: entry["at"])


@dataclass(frozen=True)
class Answer:
    """Status 0: there was none."""

    status: int
    body: bytes = b""
    retry_after_s: float = 0.0

    def json(self) -> Any:
        return json.loads(self.body)


NO_ANSWER = Answer(0)


class Api:
    """A client of several API processes, on a network that lies.

    With chance `lose` an answer is not read, and with `twice` a request is also sent a second
    time, at once, on another connection.
    """

    def __init__(
        self,
        ports: list[int],
        diary: Diary,
        seed: str,
        *,
        key: str = "",
        lose: float = 0.0,
        twice: float = 0.0,
    ) -> None:
        self.random = random.Random(seed)
        self.key = key
        self.diary = diary
        self._ports = ports
        self._lose, self._twice = lose, twice
        self._turn = self.random.randrange(len(ports))
        self._local = threading.local()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = "application/json",
    ) -> Answer:
        """Ask once. Whatever keeps the answer from coming makes it `NO_ANSWER`."""
        headers = {"Content-Type": content_type} if body else {}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        second = None
        if self.random.random() < self._twice:
            second = threading.Thread(target=self._send_aside, args=(method, path, body, headers))
            second.start()
        lost = self.random.random() < self._lose
        answer = self._send(method, path, body, headers, lost=lost)
        if second is not None:
            self.diary.note("duplicate", request=_name(method, path))
            second.join()
        if answer.status >= 500 and answer.status != 503:
            self.diary.note("bug", request=_name(method, path), status=answer.status)
        if answer.status == 503 and answer.retry_after_s <= 0:
            self.diary.note("bug", request=_name(method, path), status="503 without Retry-After")
        return answer

    def _send(
        self, method: str, path: str, body: bytes, headers: dict[str, str], *, lost: bool
    ) -> Answer:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect()
        try:
            connection.request(method, path, body or None, headers)
            if lost:
                # The service may or may not have done it by now; nobody hears.
                time.sleep(self.random.uniform(0, 0.2))
                self.diary.note("answer_dropped", request=_name(method, path))
                raise ConnectionError
            response = connection.getresponse()
            answer = Answer(
                response.status, response.read(), float(response.headers.get("Retry-After", 0))
            )
        except (OSError, http.client.HTTPException):
            connection.close()
            self._local.connection = None
            self._turn += 1  # perhaps another process answers
            return NO_ANSWER
        self._local.connection = None if response.will_close else connection
        return answer

    def _connect(self) -> http.client.HTTPConnection:
        port = self._ports[self._turn % len(self._ports)]
        return http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S_MAX)

    def _send_aside(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        connection = self._connect()
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status >= 500 and answer.status != 503:
                self.diary.note("bug", request=_name(method, path), status=answer.status)
        except (OSError, http.client.HTTPException):
            return  # the network has swallowed the duplicate
        finally:
            connection.close()


def _name(method: str, path: str) -> str:
    parts = path.partition("?")[0].split("/")
    return f"{method} {parts[1] if len(parts) < 4 else parts[-1]}"


def multipart(fields: dict[str, str], code: bytes) -> tuple[bytes, str]:
    """Return a form with the file `code`, and its media type."""
    boundary = uuid.uuid4().hex
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    file = 'Content-Disposition: form-data; name="code"; filename="main.py"'
    parts.append(f"--{boundary}\r\n{file}\r\n\r\n".encode() + code)
    parts.append(f"\r\n--{boundary}--\r\n".encode())
    return b"".join(parts), f"multipart/form-data; boundary={boundary}"
