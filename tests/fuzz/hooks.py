"""What schemathesis needs to know of the service to get past its door.

The fuzzer runs in a process of its own; it is told the service's address and credentials by its
environment. It is handed, for about half of what it makes up, ids that exist: behind an id that
nobody knows there is nothing to find.
"""

from __future__ import annotations

import os
import threading
import zlib
from typing import Any

import schemathesis
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import TestPhase

ADMIN_KEY = os.environ["FUZZ_ADMIN_KEY"]
USER_KEY = os.environ["FUZZ_USER_KEY"]
RUNNER_ID = os.environ["FUZZ_RUNNER_ID"]
RUNNER_TOKEN = os.environ["FUZZ_RUNNER_TOKEN"]
REGISTRATION_TOKEN = os.environ["FUZZ_REGISTRATION_TOKEN"]
KNOWN = {
    "rn": RUNNER_ID,
    "name": "ada",
    "problem_id": 1,
    "homework_id": "hw",
    "submission_id": "sn_judged",
    "rejudge_id": os.environ["FUZZ_REJUDGE_ID"],
    "task": 0,
    "case": 0,
    "token": os.environ["FUZZ_LINK_TOKEN"],
}
KEPT = {("DELETE", "/runners/{rn}"), ("PUT", "/problems/{problem_id}")}
"""Operations that would take the standing things away from the others."""
OF_USERS = {
    ("POST", "/submissions"),
    ("GET", "/submissions"),
    ("GET", "/submissions/{submission_id}"),
    ("GET", "/submissions/{submission_id}/code"),
    ("GET", "/users/{name}"),
    ("GET", "/homeworks/{homework_id}"),
}
WAIT_S_MAX = 0.05

_tokens = {RUNNER_ID: RUNNER_TOKEN}
_jobs: dict[str, str] = {}
_lock = threading.Lock()


def half(value: object) -> bool:
    """Tell the same half of all values every time."""
    return bool(zlib.crc32(repr(value).encode("utf-8", "surrogatepass")) & 1)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Put ids that exist in the place of made-up ones, half the time; have nothing wait long.

    What was made to be wrong stays as it is.
    """

    def meant_well(location: ParameterLocation) -> bool:
        return case.meta is None or not case.meta.is_negative_at(location)

    stateful = case.meta is not None and case.meta.phase.name == TestPhase.STATEFUL
    if not stateful and meant_well(ParameterLocation.PATH):
        _use_known_ids(case)
    if _waits((case.query or {}).get("wait")):
        case.query["wait"] = WAIT_S_MAX
    if isinstance(case.body, dict) and meant_well(ParameterLocation.BODY):
        body = _whole(case.body) if case.media_type == "application/json" else case.body
        if case.operation.path == "/runners/register" and half(body.get("registration_token")):
            body = {**body, "registration_token": REGISTRATION_TOKEN}
        if repr(body) != repr(case.body):
            case.body = body


def _waits(given: object) -> bool:
    try:
        return WAIT_S_MAX < float(str(given)) <= 30
    except ValueError:
        return False


def _whole(value: Any) -> Any:
    """Write whole numbers as such: JSON schemas take 1.0 for an integer, the contract does not."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole(entry) for entry in value]
        case dict():
            return {name: _whole(entry) for name, entry in value.items()}
        case _:
            return value


def _use_known_ids(case: Any) -> None:
    made_up = case.path_parameters or {}
    if (case.operation.method.upper(), case.operation.path) in KEPT:
        return
    used = {
        name: KNOWN[name] if name in KNOWN and half(value) else value
        for name, value in made_up.items()
    }
    if "jb" in used and half(used["jb"]):
        with _lock:
            used["jb"] = _jobs.get(str(used.get("rn")), used["jb"])
    if used != made_up:
        case.path_parameters = used


@schemathesis.auth(refresh_interval=None)
class Credentials:
    """A runner's token below its own path; elsewhere an admin's key, or a student's."""

    def get(self, case: Any, context: Any) -> str:
        path = context.operation.path
        if path.startswith("/runners/{rn}/"):
            with _lock:
                return _tokens.get(str((case.path_parameters or {}).get("rn")), RUNNER_TOKEN)
        operation = (context.operation.method.upper(), path)
        return USER_KEY if operation in OF_USERS and half(case.path_parameters) else ADMIN_KEY

    def set(self, case: Any, data: str, context: Any) -> None:
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {data}"}


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Remember who registered, and who holds which job."""
    if response.status_code not in (200, 201) or not response.content:
        return
    path = case.operation.path
    with _lock:
        if path == "/runners/register":
            made = response.json()
            _tokens[made["runner_id"]] = made["token"]
        elif path == "/runners/{rn}/next-job":
            _jobs[str(case.path_parameters["rn"])] = response.json()["job_id"]
