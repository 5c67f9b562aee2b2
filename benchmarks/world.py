"""A small course for the rows that go through HTTP: students, a problem, a homework."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from benchmarks.client import Connection, Refused, RunnerKey, register
from benchmarks.servers import Service

STUDENTS = 1_000
PROBLEM = 1
CASES = (5, 5)
CODE = b"import sys\n" + b"print(sum(int(line) for line in sys.stdin))\n" * 20
HOMEWORK = "hw-1"


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """What the clients need to know. `keys`: a key for each student."""

    port: int
    keys: tuple[str, ...]
    runners: tuple[RunnerKey, ...]


def furnish(service: Service, runners: int) -> World:
    """Make the course through the service's own API, and register runners.

    Raises:
        Refused: the service did not take something.
    """
    with Connection(service.port) as connection:
        admin = _Admin(connection, service.admin_key)
        tasks = [
            {
                "task_score": 50,
                "memory_limit_kib": 65536,
                "time_limit_ms": 1000,
                "case_count": cases,
            }
            for cases in CASES
        ]
        admin.put(f"/problems/{PROBLEM}", {"name": "sum", "tasks": tasks})
        admin.send("PUT", f"/problems/{PROBLEM}/testdata", _testdata(), "application/zip")
        names = [f"student{number}" for number in range(STUDENTS)]
        keys = []
        for name in names:
            admin.put(f"/users/{name}", {})
            keys.append(str(json.loads(admin.send("POST", f"/users/{name}/keys", b"{}"))["key"]))
        now = datetime.now(UTC)
        admin.put(
            f"/homeworks/{HOMEWORK}",
            {
                "name": "hw",
                "start": (now - timedelta(days=1)).isoformat(),
                "end": (now + timedelta(days=7)).isoformat(),
                "problem_ids": [PROBLEM],
                "students": names,
            },
        )
        registered = [
            register(connection, service.registration_token, f"runner{number}")
            for number in range(runners)
        ]
    return World(port=service.port, keys=tuple(keys), runners=tuple(registered))


class _Admin:
    def __init__(self, connection: Connection, key: str) -> None:
        self._connection = connection
        self._key = key

    def put(self, path: str, fields: dict[str, object]) -> None:
        self.send("PUT", path, json.dumps(fields).encode())

    def send(self, method: str, path: str, body: bytes, kind: str = "application/json") -> bytes:
        status, answer = self._connection.request(method, path, self._key, body, kind)
        if status not in (200, 201, 204):
            raise Refused(f"{method} {path}: {status} {answer[:300]!r}")
        return answer


def _testdata() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for task, cases in enumerate(CASES):
            for case in range(cases):
                archive.writestr(f"{task:02d}{case:02d}.in", "1\n2\n")
                archive.writestr(f"{task:02d}{case:02d}.out", "3\n")
    return packed.getvalue()
