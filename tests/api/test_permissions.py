"""Who may do what: every endpoint against everybody, cell by cell.

An endpoint that is new has no row here and fails; a row whose endpoint is gone fails, too.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from flask import Flask
from werkzeug.datastructures import FileStorage
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from tests.console.support import Operator
from tests.factories import (
    ADMIN_KEY,
    CODE,
    REGISTRATION_TOKEN,
    Runner,
    Service,
    packed_testdata,
    result_body,
    task_bodies,
)

ROLES = (
    "nobody",
    # A runner that was revoked while it held a job, at its own path.
    "revoked",
    # A runner in force, at the path of the one that holds the job.
    "impostor",
    # The same, at its own path. Its own job was rejudged, so its links' job is replaced.
    "runner",
    # A student, and the one whose things are asked for.
    "other",
    "user",
    # The runner that holds the job.
    "holder",
    # Somebody signed in at the console, with the cookie and no key.
    "console",
    "admin",
)
"""In the order in which they ask: whoever may change things comes last."""

SIGN_IN = "sign in"
"""Sent to the console's sign-in page."""

Expected = dict[str, int | str]


def row(else_: int | str, **cells: int | str) -> Expected:
    assert set(cells) <= set(ROLES)
    return {role: cells.get(role, else_) for role in ROLES}


def everybody(status: int) -> Expected:
    return row(status)


def admins(status: int) -> Expected:
    return row(401, user=403, other=403, admin=status)


def users(status: int, *, other: int) -> Expected:
    return row(401, user=status, other=other, admin=status)


def runners(*, holder: int, runner: int) -> Expected:
    return row(401, holder=holder, runner=runner)


def links() -> Expected:
    return row(403, holder=200)


def pages(status: int) -> Expected:
    return row(SIGN_IN, console=status)


ONE, BULK, CASE = (
    "/submissions/<submission_id>",
    "/rejudges/<rejudge_id>",
    "/outputs/<int:task>/<int:case>/<any(stdout, stderr):stream>",
)
TABLE: dict[str, Expected] = {
    "GET /healthz": everybody(200),
    "GET /readyz": everybody(200),
    "GET /metrics": everybody(200),
    "GET /openapi.json": everybody(200),
    # With the registration token, which is in the body.
    "POST /runners/register": everybody(201),
    "POST /runners/<rn>/heartbeat": runners(holder=204, runner=204),
    "GET /runners/<rn>/next-job": runners(holder=204, runner=204),
    "PUT /runners/<rn>/jobs/<jb>/complete": runners(holder=204, runner=409),
    "PUT /runners/<rn>/jobs/<jb>/abort": runners(holder=202, runner=409),
    "GET /files/code/<token>": links(),
    "GET /files/testdata/<token>": links(),
    "POST /submissions": row(401, user=201, other=201, admin=201),
    "GET /submissions": row(401, user=200, other=200, admin=200),
    f"GET {ONE}": users(200, other=404),
    f"GET {ONE}/code": users(200, other=404),
    f"GET {ONE}{CASE}": users(200, other=404),
    "GET /users/<name>": users(200, other=403),
    "GET /homeworks/<homework_id>": users(200, other=404),
    "PUT /users/<name>": admins(200),
    "POST /users/<name>/keys": admins(201),
    "PUT /problems/<int:problem_id>": admins(200),
    "GET /problems/<int:problem_id>": admins(200),
    "PUT /problems/<int:problem_id>/testdata": admins(200),
    "PUT /homeworks/<homework_id>": admins(200),
    f"POST {ONE}/rejudge": admins(202),
    f"POST {ONE}/cancel": admins(409),
    f"POST {ONE}/front": admins(409),
    "GET /runners": admins(200),
    "DELETE /runners/<rn>": admins(204),
    "POST /runners/<rn>/drain": admins(204),
    "POST /runners/<rn>/reinstate": admins(204),
    # It has failed no check.
    "POST /runners/<rn>/rejudge": admins(409),
    "GET /queue": admins(200),
    "POST /queue/pause": admins(204),
    "POST /queue/resume": admins(204),
    "POST /problems/<int:problem_id>/release": admins(409),
    "POST /rejudges": admins(202),
    "GET /rejudges": admins(200),
    "POST /problems/<int:problem_id>/rejudge": admins(202),
    "POST /homeworks/<homework_id>/rejudge": admins(202),
    f"GET {BULK}": admins(200),
    f"GET {BULK}/items": admins(200),
    f"GET {BULK}/students": admins(200),
    f"POST {BULK}/pause": admins(204),
    f"POST {BULK}/resume": admins(204),
    f"POST {BULK}/cancel": admins(202),
    f"POST {BULK}/apply": admins(409),
    f"POST {BULK}/discard": admins(409),
    "GET /submissions.csv": admins(200),
    "GET /submissions.jsonl": admins(200),
    "GET /homeworks/<homework_id>/standings.csv": admins(200),
    "GET /homeworks/<homework_id>/standings.jsonl": admins(200),
    # The console: a key alone opens nothing, and where one signs in it must be an admin's.
    "GET /console/static/<path:filename>": everybody(200),
    "GET /console/sign-in": everybody(200),
    "POST /console/sign-in": row(401, admin=303, console=303),
    "POST /console/sign-out": row(SIGN_IN),
    "GET /console": pages(200),
    "GET /console/queue": pages(200),
    "POST /console/queue/pause": pages(303),
    "POST /console/queue/resume": pages(303),
    "POST /console/queue/problems/<int:problem_id>/release": pages(409),
    "GET /console/runners": pages(200),
    "POST /console/runners/<runner_id>/revoke": pages(303),
    "POST /console/runners/<runner_id>/drain": pages(303),
    "POST /console/runners/<runner_id>/reinstate": pages(303),
    "POST /console/runners/<runner_id>/rejudge": pages(409),
    "GET /console/submissions": pages(200),
    "GET /console/submissions.csv": pages(200),
    "GET /console/submissions.jsonl": pages(200),
    "GET /console/judge-errors": pages(200),
    f"GET /console{ONE}": pages(200),
    f"POST /console{ONE}/rejudge": pages(303),
    f"POST /console{ONE}/front": pages(409),
    f"POST /console{ONE}/cancel": pages(409),
    f"GET /console{ONE}/cases/<int:task>/<int:case>": pages(200),
    f"GET /console{ONE}{CASE}": pages(200),
    f"GET /console{ONE}/code": pages(200),
    "GET /console/homeworks": pages(200),
    "GET /console/homeworks/<homework_id>": pages(200),
    "GET /console/homeworks/<homework_id>/standings.csv": pages(200),
    "GET /console/homeworks/<homework_id>/standings.jsonl": pages(200),
    "GET /console/check": pages(200),
    "POST /console/check": pages(303),
    "POST /console/check/repair": pages(303),
    "GET /console/rejudges": pages(200),
    "POST /console/rejudges": pages(303),
    f"GET /console{BULK}": pages(200),
    f"GET /console{BULK}/students": pages(200),
    f"POST /console{BULK}/<any(hold, release, cancel, apply, discard):action>": pages(303),
    **{f"{method} /console/<path:rest>": pages(404) for method in ("GET", "POST", "PUT")},
    **{f"{method} /console/<path:rest>": pages(404) for method in ("PATCH", "DELETE")},
}
CELLS = len(TABLE) * len(ROLES)

PROBLEM = {"name": "p", "tasks": task_bodies((100, 1)), "allowed_languages": [0, 1, 2]}
HOMEWORK = {
    "name": "h",
    "start": "2039-01-01T00:00:00Z",
    "end": "2041-01-01T00:00:00Z",
    "problem_ids": [1],
    "students": ["ada"],
}
BODIES: dict[str, Any] = {
    "POST /runners/register": {"registration_token": REGISTRATION_TOKEN, "name": "r"},
    "POST /runners/<rn>/heartbeat": {"active_job_ids": []},
    "PUT /runners/<rn>/jobs/<jb>/complete": result_body("AC"),
    "PUT /runners/<rn>/jobs/<jb>/abort": {"reason": "drain"},
    "PUT /users/<name>": {"display_name": "Ada"},
    "PUT /problems/<int:problem_id>": PROBLEM,
    "PUT /homeworks/<homework_id>": HOMEWORK,
    "POST /queue/pause": {"why": "testing"},
    "POST /rejudges": {"username": "ada"},
}
FORMS = {
    "POST /console/queue/pause": {"why": "testing"},
    "POST /console/rejudges": {"username": "ada"},
}


def endpoints(app: Flask) -> dict[str, Rule]:
    """Every method of every route."""
    return {
        f"{method} {rule.rule}": rule
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }


def test_every_endpoint_has_a_row_and_every_row_an_endpoint(service: Service) -> None:
    assert set(TABLE) == set(endpoints(service.app))
    assert CELLS > 600


@dataclass(frozen=True, kw_only=True)
class World:
    """Everybody, with something in their hands."""

    service: Service
    keys: dict[str, str | None]
    runners: dict[str, Runner]
    links: dict[str, dict[str, str]]
    job_id: str
    rejudge_id: str
    signed_in: Operator

    def values(self, role: str, endpoint: str) -> dict[str, Any]:
        """What stands in the path."""
        own = self.runners.get(role, self.runners["holder"])
        kind = "code" if "/code/" in endpoint else "testdata"
        return {
            "rn": self.runners["holder"].runner_id if "DELETE" in endpoint else own.runner_id,
            "jb": self.job_id,
            "token": self.links.get(role, {}).get(kind, "none"),
            "name": "ada",
            "problem_id": 1,
            "homework_id": "hw",
            "submission_id": "sn_done",
            "rejudge_id": self.rejudge_id,
            "runner_id": self.runners["holder"].runner_id,
            "task": 0,
            "case": 0,
            "stream": "stdout",
            "action": "hold",
            "filename": "console.css",
            "rest": "nowhere/at/all",
        }

    def ask(self, role: str, endpoint: str, path: str) -> TestResponse:
        method = endpoint.partition(" ")[0]
        if path.startswith("/console"):
            return self._ask_console(role, method, endpoint, path)
        sent: dict[str, Any] = {"json": BODIES[endpoint]} if endpoint in BODIES else {}
        if endpoint == "PUT /problems/<int:problem_id>/testdata":
            sent = {"data": packed_testdata(1), "headers": {"Content-Type": "application/zip"}}
        if endpoint == "POST /submissions":
            form = {"problem_id": "1", "language": "2"}
            form |= {"username": "ada"} if role == "admin" else {}
            sent = {"data": {**form, "code": FileStorage(io.BytesIO(CODE), filename="main.py")}}
        if role != "console":
            return self.service.call(method, path, key=self.keys[role], **sent)
        return self.signed_in.client.open(path, method=method, **sent)

    def _ask_console(self, role: str, method: str, endpoint: str, path: str) -> TestResponse:
        operator = self.signed_in if role == "console" else Operator(self.service)
        key = self.keys[role]
        if endpoint == "POST /console/sign-in":
            return operator.sign_in(key or "nothing")
        token = operator.token() if role == "console" else "none"
        form = {"form_token": token, **FORMS.get(endpoint, {})}
        return operator.client.open(
            path,
            method=method,
            data=form if method != "GET" else None,
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
        )


@pytest.fixture
def world(service: Service) -> World:
    ada, bob = service.user("ada"), service.user("bob")
    service.problem(1)
    service.homework("hw", [1], ["ada"])
    made = {name: service.runner(name) for name in ("holder", "runner", "revoked")}
    service.submit("ada", 1, "sn_done")
    service.judge(made["runner"], "sn_done", "AC")
    links, jobs = {}, {}
    for name in ("revoked", "runner", "holder"):
        service.submit("ada", 1, f"sn_{name}")
        payload = service.claim(made[name])
        assert payload["submission_id"] == f"sn_{name}"
        jobs[name] = payload["job_id"]
        links[name] = {
            kind: payload[f"{kind}_url"].rpartition("/")[2] for kind in ("code", "testdata")
        }
    service.call("DELETE", f"/runners/{made['revoked'].runner_id}")
    # The replaced job waits as a new one; nobody is to be given it.
    service.ok("POST", "/submissions/sn_runner/rejudge")
    service.database["jobs"].delete_one({"_id": "sn_runner"})
    begun = service.ok("POST", "/rejudges", json={"username": "ada"})
    signed_in = Operator(service)
    signed_in.sign_in()
    tokens: dict[str, str | None] = {name: runner.token for name, runner in made.items()}
    keys = {"nobody": None, "user": ada, "other": bob, "admin": ADMIN_KEY, "console": ADMIN_KEY}
    return World(
        service=service,
        keys={**tokens, **keys, "impostor": made["runner"].token},
        runners={name: made[name] for name in ("holder", "runner", "revoked")},
        links=links,
        job_id=jobs["holder"],
        rejudge_id=begun["rejudge_id"],
        signed_in=signed_in,
    )


@pytest.mark.parametrize("endpoint", sorted(TABLE))
def test_everybody_gets_what_the_table_says(world: World, endpoint: str) -> None:
    rule = endpoints(world.service.app)[endpoint]
    got = {}
    for role in ROLES:
        values = world.values(role, endpoint)
        built = rule.build({name: values[name] for name in rule.arguments})
        assert built is not None
        answer = world.ask(role, endpoint, built[1])
        got[role] = SIGN_IN if _to_sign_in(answer) else answer.status_code
        answer.close()  # the static file
    assert got == TABLE[endpoint]


def _to_sign_in(answer: TestResponse) -> bool:
    location = answer.headers.get("Location", "")
    return answer.status_code == 303 and location.startswith("/console/sign-in")


SEES: dict[str, Callable[[Any], set[str]]] = {
    "/submissions": lambda found: {one["username"] for one in found["submissions"]},
    "/homeworks/hw": lambda found: {*found["students"], *found["student_status"]},
}


@pytest.mark.parametrize("path", SEES)
def test_where_both_are_let_in_each_sees_the_own(world: World, path: str) -> None:
    service = world.service
    service.homework("hw", [1], ["ada", "bob"])
    service.submit("bob", 1, "sn_bob")
    seen = {
        role: SEES[path](service.ok("GET", path, key=world.keys[role]))
        for role in ("user", "other", "admin")
    }
    assert seen == {"user": {"ada"}, "other": {"bob"}, "admin": {"ada", "bob"}}
