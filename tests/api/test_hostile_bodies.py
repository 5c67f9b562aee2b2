"""Whatever is sent, the answer is a problem document that says what is wrong, and never a 5xx."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from werkzeug.test import TestResponse

import api.body
from api.admin_api import HOMEWORK_BYTES_MAX
from api.rejudge_schemas import RejudgeBody
from api.runner_api import COMPLETE_BYTES_MAX
from tests.digest import digest
from tests.factories import (
    ADMIN_KEY,
    REGISTRATION_TOKEN,
    Service,
    case_body,
    result_body,
    task_bodies,
)

START, END = "2040-01-01T00:00:00Z", "2040-02-01T00:00:00Z"


@dataclass(frozen=True)
class Endpoint:
    """An endpoint that takes JSON, and a body that it takes."""

    method: str
    path: str
    body: dict[str, Any]
    runner: bool = False
    strict: bool = True
    """Fields that are not known are refused."""
    optional: frozenset[str] = frozenset()
    may_be_left_out: bool = False
    """The body as a whole is optional."""
    refusals: tuple[int, ...] = (400,)
    """What a field's wrong value may be answered."""


ENDPOINTS = {
    "register": Endpoint(
        "POST",
        "/runners/register",
        {"registration_token": REGISTRATION_TOKEN, "name": "r", "languages": [0]},
        strict=False,
        optional=frozenset({"languages"}),
        refusals=(400, 401),
    ),
    "heartbeat": Endpoint(
        "POST",
        "heartbeat",
        {"active_job_ids": ["jb_1"], "report_lost": True},
        runner=True,
        strict=False,
        optional=frozenset({"report_lost"}),
    ),
    "complete": Endpoint(
        "PUT",
        "jobs/{job}/complete",
        {**result_body("AC"), "lease_token": "other"},
        runner=True,
        strict=False,
        optional=frozenset({"lease_token"}),
        refusals=(400, 409),
    ),
    "abort": Endpoint(
        "PUT",
        "jobs/{job}/abort",
        {"reason": "drain", "lease_token": "other"},
        runner=True,
        strict=False,
        optional=frozenset({"lease_token"}),
        refusals=(400, 409),
    ),
    "user": Endpoint(
        "PUT", "/users/new", {"display_name": "New"}, optional=frozenset({"display_name"})
    ),
    "problem": Endpoint(
        "PUT",
        "/problems/2",
        {"name": "p", "tasks": task_bodies((100, 1)), "allowed_languages": [0]},
        optional=frozenset({"allowed_languages"}),
    ),
    "homework": Endpoint(
        "PUT",
        "/homeworks/new",
        {
            "name": "h",
            "start": START,
            "end": END,
            "penalty": "score / 2",
            "problem_ids": [1],
            "students": ["ada"],
        },
        optional=frozenset({"penalty"}),
    ),
    "pause": Endpoint("POST", "/queue/pause", {"why": "testing"}),
    "rejudges": Endpoint(
        "POST",
        "/rejudges",
        {
            "mode": "preview",
            "problem_id": 2,
            "homework_id": "none",
            "username": "bob",
            "verdict": "AC",
            "runner_id": "rn_1",
            "since": START,
            "until": END,
        },
        optional=frozenset(RejudgeBody.model_fields),
        refusals=(400, 404),
    ),
    "rejudge a problem": Endpoint(
        "POST",
        "/problems/1/rejudge",
        {"mode": "preview"},
        optional=frozenset({"mode"}),
        may_be_left_out=True,
    ),
    "rejudge a homework": Endpoint(
        "POST",
        "/homeworks/hw/rejudge",
        {"mode": "preview"},
        optional=frozenset({"mode"}),
        may_be_left_out=True,
    ),
}
DEEP = 100_000

NOT_AN_OBJECT: dict[str, bytes] = {
    "nothing": b"",
    "white space": b" \n",
    "an empty list": b"[]",
    "a list of an object": b"[{}]",
    "null": b"null",
    "a text": b'"x"',
    "a number": b"7",
    "true": b"true",
    "no JSON": b"{",
    "single quotes": b"{'name': 'x'}",
    "two objects": b"{}{}",
    "a comment": b"{} // x",
    "not UTF-8": b'{"name": "\xff"}',
    "UTF-16": '{"name": "x"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"name": "x"}',
    "a NUL": b'{"name": "x"}\0',
    "a bare NaN": b"NaN",
    "a NaN inside": b'{"name": NaN}',
    "an Infinity": b'{"name": -Infinity}',
    "a number too large": b'{"name": 1e400}',
    "a number of many digits": b'{"name": ' + b"9" * 5000 + b"}",
    "a key given twice": b'{"name": "a", "name": "b"}',
    "a surrogate key given twice": b'{"\\ud800": 1, "\\ud800": 2}',
    "a deep list": b"[" * DEEP + b"]" * DEEP,
    "a deep object": b'{"name":' * DEEP + b"1" + b"}" * DEEP,
    "a raw control character": b'{"name": "a\nb"}',
}
BYTES_MAX = {"complete": COMPLETE_BYTES_MAX, "homework": HOMEWORK_BYTES_MAX}
FIFTY_MB = b'{"tasks": "' + b"x" * 50_000_000 + b'"}'
MEDIA_TYPES = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


HOSTILE_VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "a text": "x",
    "an empty text": "",
    "a long text": "x" * 100_000,
    "a NUL": "a\0b",
    "a lone surrogate": "a\ud800b",
    "a line break": "a\nb",
    "a list": [],
    "a deep list": [[[[[[]]]]]],
    "a list of null": [None],
    "a list of true": [True],
    "a list of surrogates": ["\udfff"],
    "a list of big numbers": [2**63],
    "an object": {},
    "an operator": {"$gt": ""},
    "not null": {"$ne": None},
    "code for the database": {"$where": "while (true) {}"},
    "a dotted key": {"a.b": 1},
    "a list of operators": [{"$ne": None}],
    "a path": "../../etc/passwd",
    "a dotted name": "a.b",
    "a dollar name": "$where",
    "a deep value": deep(900),
    "0": 0,
    "-1": -1,
    "a fraction": 0.5,
    "a whole float": 1.0,
    "2**31": 2**31,
    "2**63": 2**63,
    "-2**63 - 1": -(2**63) - 1,
    "a huge number": 10**300,
    "1e308": 1e308,
}


@pytest.fixture
def job_id(service: Service) -> str:
    """A world in which every endpoint's body is a good one; the job leased to the runner."""
    service.user("ada")
    service.problem(1)
    service.homework("hw", [1], ["ada"])
    service.submit("ada", 1, "sn_1")
    found: str = service.view_job("sn_1")["job_id"]
    return found


Send = Callable[..., TestResponse]


@pytest.fixture
def send(service: Service, job_id: str) -> Send:
    runner = service.runner()
    service.claim(runner)

    def send(
        endpoint: Endpoint,
        body: bytes,
        media_type: str = "application/json",
        chunked: bool = False,
    ) -> TestResponse:
        sent: dict[str, Any] = {"data": body}
        if chunked:
            # As gunicorn hands it over.
            environ = {"wsgi.input_terminated": True}
            sent = {"input_stream": io.BytesIO(body), "environ_overrides": environ}
        path = endpoint.path.format(job=job_id)
        return service.call(
            endpoint.method,
            runner.path(path) if endpoint.runner else path,
            key=runner.token if endpoint.runner else ADMIN_KEY,
            headers={"Content-Type": media_type},
            **sent,
        )

    return send


@pytest.fixture
def unchanged(service: Service, send: Send) -> Iterator[None]:
    """Nothing that the test sends may change anything."""
    before = digest(service.database)
    yield
    assert digest(service.database) == before


def test_these_are_all_the_endpoints_that_take_json(service: Service) -> None:
    paths = service.ok("GET", "/openapi.json", key=None)["paths"]
    described = {
        (method.upper(), path)
        for path, methods in paths.items()
        for method, operation in methods.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    }
    known = {"heartbeat": "/runners/rn_1/heartbeat", "complete": "/runners/rn_1/jobs/jb_1/complete"}
    known["abort"] = "/runners/rn_1/jobs/jb_1/abort"
    urls = service.app.url_map.bind("judge.example")
    thrown_at = set()
    for name, endpoint in ENDPOINTS.items():
        rule, _ = urls.match(known.get(name, endpoint.path), endpoint.method, return_rule=True)
        thrown_at.add((endpoint.method, re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)))
    assert thrown_at == described


@pytest.mark.parametrize("name", ENDPOINTS)
def test_what_is_no_object_is_400(send: Send, unchanged: None, name: str) -> None:
    for kind, body in NOT_AN_OBJECT.items():
        if not body and ENDPOINTS[name].may_be_left_out:
            continue
        answer = send(ENDPOINTS[name], body)
        assert answer.status_code == 400, (kind, answer.text)
        assert answer.get_json(force=True)["reason"] in ("invalid_request", "invalid_result")


@pytest.mark.parametrize("name", ENDPOINTS)
def test_json_is_strict_in_fields_that_nobody_reads(send: Send, unchanged: None, name: str) -> None:
    """All else is as it should be, so only the reader itself can refuse."""
    good = json.dumps(ENDPOINTS[name].body)[:-1]
    for value in ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", '{"a": 1, "a": 1}', "01"):
        answer = send(ENDPOINTS[name], f'{good}, "surplus": {value}}}'.encode())
        assert answer.status_code == 400, value
        assert answer.get_json(force=True)["reason"] == "invalid_request", value
    first = json.dumps(ENDPOINTS[name].body)[1:-1].partition(": ")[0]
    answer = send(ENDPOINTS[name], f"{good}, {first}: 1}}".encode())
    assert answer.get_json(force=True)["detail"].endswith("is given twice")


@pytest.mark.parametrize("name", ENDPOINTS)
@pytest.mark.parametrize("levels", [900, 10_000])
def test_a_value_that_nobody_reads_may_be_deep_or_is_400(
    send: Send, name: str, levels: int
) -> None:
    good = json.dumps(ENDPOINTS[name].body)[:-1]
    for begin, end in (("[", "]"), ('{"a":', "}")):
        answer = send(
            ENDPOINTS[name],
            f'{good}, "surplus": {begin * levels}1{end * levels}}}'.encode(),
        )
        assert answer.status_code < 500
        if levels > 1000 or ENDPOINTS[name].strict:
            assert answer.status_code == 400


@pytest.mark.parametrize("name", ENDPOINTS)
def test_fifty_megabytes_are_refused(send: Send, unchanged: None, name: str) -> None:
    answer = send(ENDPOINTS[name], FIFTY_MB)
    assert answer.status_code == (400 if name == "complete" else 413)


@pytest.mark.parametrize("name", ENDPOINTS)
def test_a_body_without_a_length_is_refused_as_soon_as_it_is_too_large(
    service: Service, send: Send, unchanged: None, name: str
) -> None:
    """What fits would be a good body: nobody may take the rest for white space."""
    endpoint = ENDPOINTS[name]
    size = BYTES_MAX.get(name, 2 * 1024 * 1024)
    good = json.dumps(endpoint.body).encode()
    answer = send(endpoint, good.ljust(size) + b"x", chunked=True)
    assert (answer.status_code, answer.get_json(force=True)["reason"]) == (413, "body_too_large")


SMALLEST = {
    "lists": b"[],",
    "objects": b"{},",
    "numbers": b"1,",
    "texts": b'"",',
    "escapes": b'"\\"",',
    "pairs": b'{"":1},',
}


@pytest.mark.parametrize("kind", SMALLEST)
def test_a_large_body_of_small_values_is_refused_before_it_is_built(
    send: Send, unchanged: None, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(api.body, "json", None)
    many = SMALLEST[kind] * (3 * 1024 * 1024 // len(SMALLEST[kind]))
    answer = send(ENDPOINTS["complete"], b'{"tasks": [' + many + b"1]}")
    assert answer.status_code == 400
    assert answer.get_json(force=True)["detail"] == "body: holds more than 250000 values"


def test_large_outputs_full_of_commas_and_brackets_are_taken(service: Service, job_id: str) -> None:
    runner = service.runner()
    service.claim(runner)
    printed = '[{"a": 1}, [], "\\"", \\]\n' * 200_000
    body = {"tasks": [[case_body(stdout=printed, stderr="\\" * 1_000_000)]]}
    path = runner.path(f"jobs/{job_id}/complete")
    assert service.call("PUT", path, key=runner.token, json=body).status_code == 204


@pytest.mark.parametrize("name", ENDPOINTS)
def test_another_media_type_is_415(send: Send, unchanged: None, name: str) -> None:
    endpoint = ENDPOINTS[name]
    for media_type in MEDIA_TYPES:
        answer = send(endpoint, json.dumps(endpoint.body).encode(), media_type)
        assert answer.status_code == 415, media_type
        assert answer.get_json(force=True)["reason"] == "unsupported_media_type"


@pytest.mark.parametrize("name", ENDPOINTS)
def test_every_missing_field_is_named(send: Send, name: str) -> None:
    endpoint = ENDPOINTS[name]
    for field in endpoint.body:
        body = {key: value for key, value in endpoint.body.items() if key != field}
        if field in endpoint.optional:
            continue
        answer = send(endpoint, json.dumps(body).encode())
        assert answer.status_code == 400, field
        assert answer.get_json(force=True)["detail"].startswith(f"{field}: ")


@pytest.mark.parametrize("name", ENDPOINTS)
def test_every_field_with_every_hostile_value(send: Send, name: str) -> None:
    endpoint = ENDPOINTS[name]
    for field in endpoint.body:
        for kind, value in HOSTILE_VALUES.items():
            body = {**endpoint.body, field: value}
            answer = send(endpoint, json.dumps(body).encode())
            if answer.status_code >= 400:
                problem = answer.get_json(force=True)
                assert answer.status_code in endpoint.refusals, (field, kind, problem)
                if answer.status_code == 400:
                    assert problem["detail"].startswith(field), (field, kind, problem)


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_unknown_field(send: Send, name: str) -> None:
    endpoint = ENDPOINTS[name]
    for field in ("surplus", "$set", "a.b", "\0", "\ud800", "", "__class__"):
        answer = send(endpoint, json.dumps({**endpoint.body, field: 1}).encode())
        if endpoint.strict:
            assert answer.status_code == 400, field
        else:
            assert answer.status_code < 400 or answer.status_code == 409


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("exitCode", True, "tasks[0][0].exitCode"),
        ("exitCode", 2**63, "tasks[0][0].exitCode"),
        ("exitCode", "0", "tasks[0][0].exitCode"),
        ("execTime", -2, "tasks[0][0].execTime"),
        ("execTime", 1.5, "tasks[0][0].execTime"),
        ("execTime", 2**53, "tasks[0][0].execTime"),
        ("memoryUsage", None, "tasks[0][0].memoryUsage"),
        ("memoryUsage", 2**63, "tasks[0][0].memoryUsage"),
        ("status", "PENDING", "tasks[0][0].status"),
        ("status", "ac", "tasks[0][0].status"),
        ("status", 0, "tasks[0][0].status"),
        ("stdout", None, "tasks[0][0].stdout"),
        ("stderr", ["x"], "tasks[0][0].stderr"),
    ],
)
def test_a_wrong_value_in_a_case_is_named_and_the_lease_stays(
    service: Service, job_id: str, field: str, value: Any, where: str
) -> None:
    runner = service.runner()
    service.claim(runner)
    path = runner.path(f"jobs/{job_id}/complete")
    body = {"tasks": [[case_body(**{field: value})]]}
    answer = service.call("PUT", path, key=runner.token, json=body)
    problem = answer.get_json(force=True)
    assert (answer.status_code, problem["reason"]) == (400, "invalid_result")
    assert problem["detail"].startswith(where)
    assert service.view_job("sn_1")["state"] == "leased"
    assert service.complete(runner, job_id, "AC").status_code == 204


@pytest.mark.parametrize(
    "tasks", [(), ("AC", "AC"), ("AC AC",), ("",)], ids=["none", "two", "two cases", "no case"]
)
def test_a_result_that_does_not_fit_leaves_the_lease(
    service: Service, job_id: str, tasks: tuple[str, ...]
) -> None:
    runner = service.runner()
    service.claim(runner)
    answer = service.complete(runner, job_id, *tasks)
    assert (answer.status_code, answer.get_json(force=True)["reason"]) == (400, "invalid_result")
    job = service.view_job("sn_1")
    assert (job["state"], job["leased_by"], job["attempts"]) == ("leased", runner.runner_id, 1)
    assert service.complete(runner, job_id, "AC").status_code == 204
    assert service.view("sn_1")["verdict"] == "AC"


def test_what_a_program_printed_never_costs_it_its_verdict(service: Service, job_id: str) -> None:
    runner = service.runner()
    service.claim(runner)
    printed = "a\ud800b\0\x1b[31m\udfff😀"
    body = {"tasks": [[case_body(stdout=printed, stderr="")]]}
    path = runner.path(f"jobs/{job_id}/complete")
    assert service.call("PUT", path, key=runner.token, json=body).status_code == 204
    kept = service.call("GET", "/submissions/sn_1/outputs/0/0/stdout").data.decode()
    assert kept == "a\ufffdb\0\x1b[31m\ufffd😀"


def test_outputs_are_cut_and_marked(service: Service, job_id: str) -> None:
    runner = service.runner()
    service.claim(runner)
    body = {"tasks": [[case_body(stdout="é" * 1024 * 1024, stderr="x" * 1024 * 1024)]]}
    path = runner.path(f"jobs/{job_id}/complete")
    assert service.call("PUT", path, key=runner.token, json=body).status_code == 204
    view = service.ok("GET", "/submissions/sn_1")
    assert view["tasks"][0]["cases"][0]["output_truncated"] is True
    assert len(service.call("GET", "/submissions/sn_1/outputs/0/0/stdout").data) == 1024 * 1024
    assert len(service.call("GET", "/submissions/sn_1/outputs/0/0/stderr").data) == 1024 * 1024


def test_ids_in_paths_may_be_anything(service: Service, job_id: str) -> None:
    runner = service.runner()
    for odd in ("%00", "%ED%A0%80", "%FF", "a%20b", "$x", "..", "%2e%2e", "é", "x" * 3000, "{}"):
        for method, path in (
            ("GET", f"/submissions/{odd}"),
            ("GET", f"/submissions/{odd}/code"),
            ("GET", f"/submissions/{odd}/outputs/0/0/stdout"),
            ("POST", f"/submissions/{odd}/rejudge"),
            ("GET", f"/users/{odd}"),
            ("POST", f"/users/{odd}/keys"),
            ("GET", f"/homeworks/{odd}"),
            ("GET", f"/problems/{odd}"),
            ("DELETE", f"/runners/{odd}"),
            ("GET", f"/files/code/{odd}"),
            ("GET", f"/files/testdata/{odd}"),
        ):
            assert 400 <= service.call(method, path).status_code < 500, (method, path)
        for verb, body in (("complete", result_body("AC")), ("abort", {"reason": "drain"})):
            path = runner.path(f"jobs/{odd}/{verb}")
            answer = service.call("PUT", path, key=runner.token, json=body)
            assert answer.status_code == 404, path


@pytest.mark.parametrize("problem_id", [-1, 2**31, 2**63, 10**40, "x", "1.0"])
def test_problem_ids_out_of_range(service: Service, problem_id: object) -> None:
    body = {"name": "p", "tasks": task_bodies((100, 1))}
    assert service.call("PUT", f"/problems/{problem_id}", json=body).status_code in (400, 404)
    assert service.call("GET", f"/problems/{problem_id}").status_code == 404
    answer = service.call(
        "PUT",
        f"/problems/{problem_id}/testdata",
        data=b"",
        headers={"Content-Type": "application/zip"},
    )
    assert answer.status_code == 404


@pytest.mark.parametrize(
    "name", ["a/b", ".", "..", "x" * 101, "a\0b", "a\nb", "\x7f"], ids=lambda name: ascii(name[:9])
)
def test_user_names_that_are_refused(service: Service, name: str) -> None:
    answer = service.call("PUT", service.url("users", name), json={})
    assert answer.status_code in (400, 404)
    assert service.database["users"].count_documents({}) == 0


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=x",
        "limit=",
        "limit=1&limit=2",
        "limit=²",
        "problem_id=-1",
        "problem_id=2147483648",
        "problem_id=" + "9" * 100,
        "verdict=XX",
        "verdict=ac",
        "cursor=x",
        "cursor=~",
        "cursor=99999999999999999999~x",
        "cursor=-99999999999999~x",
        "cursor=" + "9" * 119,
        "cursor=" + "9" * 121,
        "username=",
        "username=a%2Fb",
        "username=%00",
        "surplus=1",
        "username[$ne]=x",
    ],
)
def test_queries_that_are_refused(service: Service, query: str) -> None:
    answer = service.call("GET", f"/submissions?{query}")
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("wait", ["-1", "30.1", "nan", "inf", "1e400", "x", "", "1&wait=2"])
def test_waits_that_are_refused(service: Service, job_id: str, wait: str) -> None:
    runner = service.runner()
    for path, key in ((runner.path("next-job"), runner.token), ("/submissions/sn_1", ADMIN_KEY)):
        answer = service.call("GET", f"{path}?wait={wait}", key=key)
        assert answer.status_code == 400
        assert answer.get_json(force=True)["detail"].startswith("wait")
    assert service.view_job("sn_1")["state"] == "pending"


@pytest.mark.parametrize("claim_id", ["", "a%20b", "%00", "é", "x" * 101, "x&claim_id=y"])
def test_claim_ids_that_are_refused(service: Service, job_id: str, claim_id: str) -> None:
    runner = service.runner()
    path = runner.path(f"next-job?claim_id={claim_id}")
    assert service.call("GET", path, key=runner.token).status_code == 400
    assert service.view_job("sn_1")["state"] == "pending"


def test_bodies_that_are_too_large_are_413(service: Service, send: Send, job_id: str) -> None:
    for name, endpoint in ENDPOINTS.items():
        size = BYTES_MAX.get(name, 2 * 1024 * 1024)
        body = b'{"name": "' + b"x" * size + b'"}'
        answer = send(endpoint, body)
        assert answer.status_code == 413, name
        assert answer.get_json(force=True)["reason"] == "body_too_large"
    key = service.keys["ada"]
    for code in (b"x" * 3 * 1024 * 1024, b"x" * 5 * 1024 * 1024):
        answer = service.submit_over_http(key, problem_id=1, language=2, code=code)
        assert answer.status_code in (400, 413)
    assert service.post_form(key, {"code": "x" * 3 * 1024 * 1024}).status_code == 413
    assert service.post_form(key, {f"f{n}": "x" for n in range(2000)}).status_code == 413
    assert service.view_job("sn_1")["state"] == "leased"


def test_wrong_methods_and_paths_are_problems_too(service: Service) -> None:
    answer = service.call("DELETE", "/submissions")
    assert (answer.status_code, answer.get_json(force=True)["reason"]) == (
        405,
        "method_not_allowed",
    )
    assert set(answer.headers["Allow"].replace(" ", "").split(",")) >= {"GET", "POST"}
    for path in ("/", "/nothing", "/submissions/", "/users/a/b", "//", "/%00", "/static/x"):
        answer = service.call("GET", path)
        assert (answer.status_code, answer.get_json(force=True)["reason"]) == (404, "not_found")


def test_bodies_where_none_is_asked_for_change_nothing(service: Service, job_id: str) -> None:
    for body in (b"[]", b"{", b"\xff", b"x" * 100_000):
        for method, path in (
            ("POST", "/queue/resume"),
            ("POST", "/users/ada/keys"),
            ("POST", "/submissions/sn_1/rejudge"),
            ("GET", "/submissions/sn_1"),
        ):
            answer = service.call(
                method, path, data=body, headers={"Content-Type": "application/json"}
            )
            assert answer.status_code < 300, path


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(alphabet=st.characters(exclude_categories=())),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=8), inner, max_size=4),
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("name", ENDPOINTS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_json_makes_any_endpoint_fail(send: Send, name: str, data: st.DataObject) -> None:
    endpoint = ENDPOINTS[name]
    fields = data.draw(
        st.dictionaries(st.sampled_from(sorted(endpoint.body)), JSON, max_size=3), label="fields"
    )
    answer = send(endpoint, json.dumps({**endpoint.body, **fields}).encode())
    assert answer.status_code < 500
