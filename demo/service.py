"""The service as the demo uses it: an administrator's and a student's HTTP calls.

Guarantees: an answer that the wire protocol does not promise for the call stops the demo with a
`DemoFailed` that names the call, the status and the problem's detail. Every call is bounded in
time. Nothing is resent.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from demo.processes import DemoFailed
from mongo.problem_package import ProblemPackage

CALL_TIMEOUT_S = 20.0
DETAIL_CHARS_MAX = 500

Json = dict[str, Any]


class Service:
    """Calls of the HTTP API at `base_url`, as the administrator that `admin_key` names."""

    def __init__(self, base_url: str, admin_key: str) -> None:
        # trust_env off: a proxy in the environment has no business on the loopback address.
        self._http = httpx.Client(base_url=base_url, timeout=CALL_TIMEOUT_S, trust_env=False)
        self._admin_key = admin_key

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def ready(self) -> bool:
        """Say whether `GET /readyz` answers 200 now."""
        try:
            return self._http.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def put_problem(self, problem_id: int, package: ProblemPackage) -> None:
        """Create the problem and upload its test data."""
        tasks = [
            {
                "task_score": task.task_score,
                "memory_limit_kib": task.memory_limit_kib,
                "time_limit_ms": task.time_limit_ms,
                "case_count": task.case_count,
            }
            for task in package.tasks
        ]
        body = {"name": package.name, "tasks": tasks, "allowed_languages": [0, 1, 2]}
        self._call("PUT", f"/problems/{problem_id}", json=body)
        self._call(
            "PUT",
            f"/problems/{problem_id}/testdata",
            content=package.testdata_zip,
            headers={"Content-Type": "application/zip"},
        )

    def create_user(self, name: str) -> str:
        """Create the user and return a key of theirs."""
        self._call("PUT", f"/users/{name}", json={"display_name": name.title()})
        return str(self._call("POST", f"/users/{name}/keys")["key"])

    def put_homework(
        self,
        homework_id: str,
        *,
        name: str,
        start: datetime,
        end: datetime,
        penalty: str,
        problem_ids: Sequence[int],
        students: Sequence[str],
    ) -> None:
        """Create the homework, or change it, which recomputes it."""
        body = {
            "name": name,
            "start": start.isoformat(),
            "end": end.isoformat(),
            "penalty": penalty,
            "problem_ids": list(problem_ids),
            "students": list(students),
        }
        self._call("PUT", f"/homeworks/{homework_id}", json=body)

    def submit(
        self, submission_id: str, *, key: str, problem_id: int, language: int, program: Path
    ) -> None:
        """Hand in the source file `program` as the student that `key` names."""
        self._call(
            "POST",
            "/submissions",
            key=key,
            data={
                "submission_id": submission_id,
                "problem_id": str(problem_id),
                "language": str(language),
            },
            files={"code": (program.name, program.read_bytes(), "text/plain")},
        )

    def submission(self, submission_id: str) -> Json:
        """Return the submission as an administrator sees it."""
        return self._call("GET", f"/submissions/{submission_id}")

    def submissions(self, limit: int) -> list[Json]:
        """Return the newest submissions, at most `limit`."""
        items = self._call("GET", "/submissions", params={"limit": limit})["submissions"]
        return list(items)

    def user(self, name: str) -> Json:
        """Return the user's counters."""
        return self._call("GET", f"/users/{name}")

    def homework(self, homework_id: str) -> Json:
        """Return the homework with the standings of all its students."""
        return self._call("GET", f"/homeworks/{homework_id}")

    def runner_names(self) -> dict[str, str]:
        """Return the id and the name of every runner that is alive."""
        answer = self._request("GET", "/runners")
        return {str(item["runner_id"]): str(item["name"]) for item in answer if item["alive"]}

    def _call(self, method: str, path: str, *, key: str | None = None, **rest: Any) -> Json:
        answer = self._request(method, path, key=key, **rest)
        if not isinstance(answer, dict):
            raise DemoFailed(f"{method} {path} did not answer with an object.")
        return answer

    def _request(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        **rest: Any,
    ) -> Any:
        bearer = {"Authorization": f"Bearer {key or self._admin_key}"}
        try:
            response = self._http.request(
                method, path, headers={**(headers or {}), **bearer}, **rest
            )
        except httpx.TransportError as error:
            raise DemoFailed(f"{method} {path} got no answer: {error!r}") from error
        if not response.is_success:
            detail = response.text[:DETAIL_CHARS_MAX]
            raise DemoFailed(f"{method} {path} answered {response.status_code}: {detail}")
        if not response.content:
            return {}
        try:
            return response.json()
        except ValueError as error:
            raise DemoFailed(f"{method} {path} answered no JSON.") from error
