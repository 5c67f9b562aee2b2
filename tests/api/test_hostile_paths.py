"""Whatever stands in a path, a query or a form, at every endpoint: refused, and nothing changed.

Endpoints and their parameters are found by themselves, so a new one is thrown at, too.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from flask import Flask
from werkzeug.datastructures import FileStorage
from werkzeug.routing import Rule

from tests.console.support import Operator
from tests.digest import digest
from tests.factories import ADMIN_KEY, CODE, Service, packed_testdata
from tests.fixtures import AppKeeper

TEXTS = {
    "not null": '{"$ne": null}',
    "an operator": "$where",
    "a dotted key": "a.b.c",
    "an array": "[]",
    "a NUL": "a\0b",
    "a line break": "a\r\nSet-Cookie: a=b",
    "long": "x" * 10_000,
    "up": "../../../etc/passwd",
    "up, quoted twice": "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "up, the other way": "..\\..\\windows",
    "a slash": "a/b",
    "a dot": ".",
    "two dots": "..",
    "a blank": " ",
    "markup": "<script>alert(1)</script>",
    "a template": "{{ 7 * 7 }}${7*7}%(x)s{0}",
    "true": "true",
    "2**63": str(2**63),
    "1e400": "1e400",
    "NaN": "NaN",
    "-1": "-1",
    "many digits": "9" * 5000,
    "Arabic digits": "\u0661",
    "an accent": "e\u0301",
    "a right-to-left mark": "\u202egnp.exe",
}
QUOTED = {
    **{name: quote(text, safe="") for name, text in TEXTS.items()},
    "a lone surrogate": "%ED%A0%80",
    "no UTF-8": "%FF%FE",
    "half a character": "%C3",
    "quoted badly": "%zz%",
}
"""The same as they stand in an address, and what no text becomes."""

SLUG = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
CONVERTED = {"problem_id": "1", "task": "0", "case": "0", "stream": "stdout", "action": "hold"}


def endpoints(app: Flask) -> Iterator[tuple[str, Rule, str]]:
    """Every method, route and name of a part of its path."""
    for rule in app.url_map.iter_rules():
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            for name in sorted(rule.arguments):
                yield method, rule, name


def path_of(rule: Rule, name: str, odd: str, known: dict[str, str]) -> str:
    """The rule's path with `odd` in the place of the part `name`, which is quoted already."""
    path = ""
    for is_dynamic, part in rule._trace:
        if not is_dynamic:
            path += part.lstrip("|")
        else:
            path += odd if part == name else known[part]
    return path


@pytest.fixture(scope="module")
def rules(app_keeper: AppKeeper) -> list[tuple[str, Rule, str]]:
    return list(endpoints(app_keeper.app()))


@pytest.mark.parametrize("kind", QUOTED)
def test_odd_parts_of_every_path(
    service: Service, rules: list[tuple[str, Rule, str]], kind: str
) -> None:
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    runner = service.runner()
    operator = Operator(service)
    operator.sign_in()
    token = operator.token()
    known = {
        **CONVERTED,
        "rn": runner.runner_id,
        "jb": service.view_job("sn_1")["job_id"],
        "name": "ada",
        "homework_id": "hw",
        "submission_id": "sn_1",
        "rejudge_id": "rj_1",
        "runner_id": runner.runner_id,
        "token": "none",
        "filename": "console.css",
        "rest": "nowhere",
    }
    before = digest(service.database)
    asked = 0
    for method, rule, name in rules:
        path = path_of(rule, name, QUOTED[kind], known)
        if path.startswith("/console"):
            form = {"form_token": token} if method != "GET" else None
            answer = operator.client.open(path, method=method, data=form)
        else:
            of_runners = rule.rule.startswith("/runners/<rn>/")
            key = runner.token if of_runners else ADMIN_KEY
            answer = service.call(method, path, key=key, json={"anything": 1})
        assert 300 <= answer.status_code < 500, (method, path)
        answer.close()
        asked += 1
    assert asked >= 60
    assert digest(service.database) == before


def test_odd_values_of_every_query(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    service.homework("hw", [1], ["ada"])
    service.submit("ada", 1, "sn_1")
    runner = service.runner()
    service.judge(runner, "sn_1", "AC")
    rejudge = service.ok("POST", "/rejudges", json={"username": "nobody"})["rejudge_id"]
    known = {"rn": runner.runner_id, "submission_id": "sn_1", "homework_id": "hw"}
    known |= {"rejudge_id": rejudge, "name": "ada", **CONVERTED, "token": "none"}
    asked = 0
    for path, methods in service.ok("GET", "/openapi.json", key=None)["paths"].items():
        if "get" not in methods:
            continue
        declared = [one["name"] for one in methods["get"]["parameters"] if one["in"] == "query"]
        asked_for = path.format(**known)
        key = runner.token if path.startswith("/runners/{rn}") else ADMIN_KEY
        for name in [*declared, "a[$ne]"]:
            for kind, odd in QUOTED.items():
                answer = service.call("GET", f"{asked_for}?{name}={odd}", key=key)
                assert answer.status_code < 500, (path, name, kind)
                answer.close()
                asked += 1
        for name in declared:
            twice = service.call("GET", f"{asked_for}?{name}=1&{name}=1", key=key)
            assert twice.status_code == 400, (path, name)
    assert asked > 1000


@pytest.mark.parametrize("field", ["problem_id", "language", "submission_id", "username", "code"])
def test_odd_fields_of_a_submit(service: Service, field: str) -> None:
    service.user("ada")
    service.problem(1)
    good = {"problem_id": "1", "language": "2", "username": "ada", "submission_id": "sn_1"}
    for kind, odd in TEXTS.items():
        code = FileStorage(io.BytesIO(CODE), filename="main.py")
        answer = service.post_form(ADMIN_KEY, {**good, "code": code, field: odd})
        if field == "code":
            assert answer.status_code in (201, 409), kind
        elif field == "submission_id" and SLUG.fullmatch(odd):
            assert answer.status_code == 201, kind
        else:
            assert answer.status_code in (400, 404), (field, kind)
        file = FileStorage(io.BytesIO(odd.encode()), filename=odd)
        answer = service.post_form(ADMIN_KEY, {**good, "code": file, field: file})
        assert answer.status_code in (201, 400, 409), (field, kind)
    assert all(SLUG.fullmatch(one["_id"]) for one in service.database["submissions"].find())


@pytest.mark.parametrize("media_type", ["application/zip", "application/octet-stream"])
def test_odd_test_data(service: Service, media_type: str) -> None:
    service.problem(1)
    good = service.ok("GET", "/problems/1")["testdata_sha256"]
    whole = packed_testdata(1)
    bodies = [b"", b"[]", b"null", b"PK", whole[:-5], whole[5:], whole[:40] + whole[60:]]
    bodies += [text.encode() for text in TEXTS.values()]
    for body in bodies:
        answer = service.call(
            "PUT", "/problems/1/testdata", data=body, headers={"Content-Type": media_type}
        )
        assert answer.status_code == 400, body[:50]
    assert service.ok("GET", "/problems/1")["testdata_sha256"] == good


FORMS = {
    "/console/queue/pause": ("why",),
    "/console/rejudges": (
        "mode",
        "problem_id",
        "homework_id",
        "username",
        "verdict",
        "runner_id",
        "since",
        "until",
    ),
    "/console/sign-in": ("key", "next"),
}
PAGES = {
    "/console": ("did", "undeclared"),
    "/console/submissions": ("username", "problem_id", "verdict", "cursor", "after", "did"),
    "/console/judge-errors": ("cursor", "after"),
    "/console/homeworks/hw": ("student", "by", "page"),
    "/console/submissions.csv": ("username", "problem_id", "verdict"),
    "/console/sign-in": ("next",),
}


def test_odd_fields_of_the_console_s_forms_and_pages(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    service.homework("hw", [1], ["ada"])
    operator = Operator(service)
    operator.sign_in()
    token = operator.token()
    for odd in TEXTS.values():
        for path, fields in FORMS.items():
            for field in fields:
                given = operator.token("/console/sign-in") if "sign-in" in path else token
                answer = operator.post(path, token=given, **{field: odd})
                assert "\n" not in answer.headers.get("Location", "")
        operator.post("/console/queue/pause", token=odd, why="because")
    for odd in QUOTED.values():
        for path, fields in PAGES.items():
            for field in fields:
                answer = operator.get(f"{path}?{field}={odd}")
                assert "<script>alert" not in answer.text
