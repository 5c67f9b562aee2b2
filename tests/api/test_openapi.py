"""The API's description: valid, complete, and true about what is answered."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from tests.factories import Service


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
