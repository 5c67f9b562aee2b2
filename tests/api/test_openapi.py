"""The API's description: valid, complete, and true about what is answered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from tests.factories import Service
from tests.live import ROOT


@pytest.fixture
def document(service: Service) -> Any:
    return service.ok("GET", "/openapi.json", key=None)


def test_it_is_a_valid_openapi_document(document: Any) -> None:
    assert document["openapi"].startswith("3.1")
    OPENAPI_31_VALIDATOR.validate(document)


def test_it_lists_every_route_and_nothing_else(service: Service, document: Any) -> None:
    served = {
        (re.sub(r"<(?:[^<>]*:)?(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in service.app.url_map.iter_rules()
        if not rule.rule.startswith("/console")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    described = {
        (path, method) for path, methods in document["paths"].items() for method in methods
    }
    assert described == served


def test_every_operation_says_its_errors_and_its_key(document: Any) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            open_to_all = path.startswith(("/files/", "/healthz", "/readyz", "/metrics", "/open"))
            keyless = open_to_all or path == "/runners/register"
            assert bool(operation.get("security")) != keyless, where
            assert ("401" in operation["responses"]) or open_to_all, where
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert set(answer["content"]) == {"application/problem+json"}, where
            parameters = {
                parameter["name"]
                for parameter in operation.get("parameters", [])
                if parameter["in"] == "path"
            }
            assert parameters == set(re.findall(r"{(\w+)}", path)), where


def test_what_is_answered_fits_the_description(service: Service, document: Any) -> None:
    key = service.user("ada")
    service.problem(1)
    service.homework("hw", [1], ["ada"])
    runner = service.runner()
    service.submit("ada", 1, "sn_1")
    service.judge(runner, "sn_1", "AC")
    service.submit("ada", 1, "sn_2")
    service.call("POST", "/queue/pause", json={"why": "testing"})
    asked = [
        ("/submissions/{submission_id}", "/submissions/sn_1", key),
        ("/submissions/{submission_id}", "/submissions/sn_2", None),
        ("/submissions", "/submissions", None),
        ("/users/{name}", "/users/ada", None),
        ("/homeworks/{homework_id}", "/homeworks/hw", None),
        ("/problems/{problem_id}", "/problems/1", None),
        ("/runners", "/runners", None),
        ("/queue", "/queue", None),
        ("/healthz", "/healthz", None),
    ]
    for template, path, given in asked:
        answer = service.ok("GET", path, **({} if given is None else {"key": given}))
        described = document["paths"][template]["get"]["responses"]["200"]
        schema = described["content"]["application/json"]["schema"]
        fits(answer, schema, document, where=path)


def fits(value: Any, schema: dict[str, Any], document: Any, *, where: str) -> None:
    """Check the value against the schema, and that it holds nothing undescribed."""
    root = {**schema, "components": document["components"]}
    jsonschema_rs.validator_for(root).validate(value)
    described = _resolved(schema, document)
    if isinstance(value, dict) and "properties" in described:
        assert set(value) <= set(described["properties"]), where
        for name, entry in value.items():
            fits(entry, described["properties"][name], document, where=f"{where}.{name}")
    elif isinstance(value, list) and "items" in described:
        for entry in value:
            fits(entry, described["items"], document, where=f"{where}[]")


def _resolved(schema: dict[str, Any], document: Any) -> dict[str, Any]:
    if "$ref" in schema:
        found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].split("/")[-1]]
        return found
    return schema


def test_every_problem_lists_its_reasons_and_its_status(document: Any) -> None:
    for path, method, status, answer in problems_of(document):
        where = (method, path, status)
        reference, told = answer["content"]["application/problem+json"]["schema"]["allOf"]
        assert reference == {"$ref": "#/components/schemas/Problem"}, where
        assert told["properties"]["status"] == {"const": int(status)}, where
        reasons = told["properties"]["reason"]["enum"]
        assert reasons, where
        assert len(reasons) == len(set(reasons)), where
        assert ("Retry-After" in answer.get("headers", {})) == (status in ("429", "503")), where


def problems_of(document: Any) -> Iterator[tuple[str, str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    yield path, method, status, answer


RAISED = re.compile(
    r"(?:ProblemError\(\s*(?P<status>\d+),|unavailable\(|invalid\([^()]*,"
    r"|(?:NotFound|Invalid|Forbidden|Conflict)Error\()\s*\"(?P<reason>[a-z_]+)\"",
)


def test_every_reason_that_the_code_knows_is_described(document: Any) -> None:
    """What is raised anywhere is told of somewhere; schemathesis looks for the right place."""
    known = {
        match["reason"]
        for package in ("api", "mongo", "dispatch")
        for file in (ROOT / package).glob("*.py")
        for match in RAISED.finditer(file.read_text())
    }
    assert len(known) > 20
    described = {
        reason
        for _, _, _, answer in problems_of(document)
        for reason in answer["content"]["application/problem+json"]["schema"]["allOf"][1][
            "properties"
        ]["reason"]["enum"]
    }
    assert known - described == set()


def test_every_link_leads_from_an_answer_to_an_operation_with_such_parameters(
    document: Any,
) -> None:
    operations = {
        operation["operationId"]: operation
        for methods in document["paths"].values()
        for operation in methods.values()
    }
    followed = 0
    for operation in operations.values():
        for answer in operation["responses"].values():
            for link in answer.get("links", {}).values():
                target = operations[link["operationId"]]
                names = {parameter["name"] for parameter in target["parameters"]}
                assert set(link["parameters"]) == names & set(link["parameters"])
                followed += 1
    assert followed > 40


def test_what_is_no_json_says_what_it_is(service: Service, document: Any) -> None:
    described = {
        path: set(methods["get"]["responses"]["200"]["content"])
        for path, methods in document["paths"].items()
        if "get" in methods
    }
    binary = {path: types for path, types in described.items() if types != {"application/json"}}
    assert binary == {
        "/files/code/{token}": {"application/zip"},
        "/files/testdata/{token}": {"application/zip"},
        "/submissions/{submission_id}/code": {"application/zip"},
        "/submissions/{submission_id}/outputs/{task}/{case}/{stream}": {"text/plain"},
        "/submissions.csv": {"text/csv"},
        "/submissions.jsonl": {"application/jsonl"},
        "/homeworks/{homework_id}/standings.csv": {"text/csv"},
        "/homeworks/{homework_id}/standings.jsonl": {"application/jsonl"},
        "/metrics": {"text/plain"},
    }
    sent = document["paths"]["/problems/{problem_id}/testdata"]["put"]["requestBody"]["content"]
    assert set(sent) == {"application/zip", "application/octet-stream"}
