"""The OpenAPI document, from the same models that validate.

spectree only describes here: its own validation reads bodies leniently (`[]` becomes `{}`) and
before authentication, so `body` reads them instead, strictly and in the contract's order; and it
reads every answer whole into memory, so that none would be streamed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, TypeVar

from flask import current_app
from pydantic import BaseModel, TypeAdapter
from spectree import Response, SecurityScheme, SpecTree
from spectree.models import SecureType, SecuritySchemeData
from spectree.plugins.flask_plugin import FlaskPlugin

from api import spec_links as links
from api.schemas import Problem, ProblemId, Slug, UserName

Handler = TypeVar("Handler", bound=Callable[..., Any])

COMMON_REASONS = {
    400: "invalid_request",
    408: "request_timeout",
    414: "uri_too_long",
    431: "headers_too_large",
    500: "internal_error",
    503: "database_unavailable",
}
"""What any request may be answered, by the service or by the server in front of it."""

RETRIED = (429, 503)

PATH_TYPES: dict[str, Any] = {
    "name": UserName,
    "problem_id": ProblemId,
    "homework_id": Slug,
    "submission_id": Slug,
}

_CONVERTER = re.compile(r"<(?:[^<>]*:)?(\w+)>")


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """What spectree's own description of a handler lacks."""

    reasons: Mapping[int, Sequence[str]]
    body_required: bool
    sends: tuple[str, ...]
    streams: str | None


_DETAILS: dict[Callable[..., Any], Details] = {}


class _DescribingPlugin(FlaskPlugin):
    """Describes handlers and leaves what they do alone."""

    def validate(self, func: Callable[..., Any], *wishes: Any, **path: Any) -> Any:
        return func(**path)


spec = SpecTree(
    backend=_DescribingPlugin,
    title="Judge dispatch",
    version="1",
    mode="strict",
    annotations=False,
    validation_error_status=400,
    validation_error_model=Problem,
    security_schemes=[
        SecurityScheme(name="key", data=SecuritySchemeData(type=SecureType.HTTP, scheme="bearer")),
    ],
    naming_strategy=lambda model: model.__name__,
    nested_naming_strategy=lambda parent, child: child,
)


def describe(
    tag: str,
    *,
    answers: dict[int, type[BaseModel] | None],
    problems: Mapping[int, Sequence[str]] = MappingProxyType({}),
    body: type[BaseModel] | None = None,
    body_required: bool = True,
    form: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
    sends: Sequence[str] = (),
    streams: str | None = None,
    key: bool = True,
) -> Callable[[Handler], Handler]:
    """Describe a handler: its bodies, its answers, the statuses and reasons of its problems.

    `problems`: those besides what every handler like it may answer, as status to reasons.
    `sends`: the media types of a body that is no JSON. `streams`: that of a 200 or 201 that is
    none.
    """
    reasons = {status: [reason] for status, reason in COMMON_REASONS.items()}
    reasons[503].append("busy")
    if body or form or sends:
        reasons |= {413: ["body_too_large"], 415: ["unsupported_media_type"]}
    if key:
        reasons[401] = ["unauthorized"]
    for status, more in problems.items():
        reasons[status] = [*reasons.get(status, ()), *more]
    models: dict[str, Any] = {f"HTTP_{status}": model for status, model in answers.items()}
    validated: Callable[[Handler], Handler] = spec.validate(
        json=body,
        form=form,
        query=query,
        resp=Response(**models),
        tags=[tag],
        security={"key": []} if key else None,
        skip_validation=True,
    )

    def decorate(handler: Handler) -> Handler:
        described = validated(handler)
        _DETAILS[described] = Details(
            reasons=reasons,
            body_required=body_required,
            sends=tuple(sends),
            streams=streams,
        )
        return described

    return decorate


def document() -> dict[str, Any]:
    """Return the OpenAPI document of the current app.

    spectree declares every body as plain JSON and every problem as the same: media types, the
    reasons of each problem and the links between operations are added here.
    """
    described: dict[str, Any] = deepcopy(spec.spec)
    for rule in current_app.url_map.iter_rules():
        details = _DETAILS.get(current_app.view_functions[rule.endpoint])
        if details is None:
            continue
        path = _CONVERTER.sub(r"{\1}", rule.rule)
        for method in set(rule.methods or ()) - {"HEAD", "OPTIONS"}:
            _refine(described["paths"][path][method.lower()], details, path)
    links.add(described["paths"])
    return described


def _refine(operation: dict[str, Any], details: Details, path: str) -> None:
    answers = operation["responses"]
    reasons = details.reasons
    if "{" in path:
        # What stands there may not fit this path at all, or fit another one.
        reasons = {
            **reasons,
            404: ["not_found", *reasons.get(404, ())],
            405: ["method_not_allowed"],
        }
    for parameter in operation["parameters"]:
        if parameter["in"] == "path" and parameter["name"] in PATH_TYPES:
            parameter["schema"] = TypeAdapter(PATH_TYPES[parameter["name"]]).json_schema()
    answers |= {str(status): _problem(status, reasons[status]) for status in sorted(reasons)}
    if "requestBody" in operation:
        operation["requestBody"]["required"] = details.body_required
    if details.sends:
        operation["requestBody"] = {"required": True, "content": _any_bytes(*details.sends)}
    if details.streams:
        answers["200"]["content"] = _any_bytes(details.streams)


def _any_bytes(*media_types: str) -> dict[str, Any]:
    return {name: {"schema": {"type": "string", "format": "binary"}} for name in media_types}


def _problem(status: int, reasons: Sequence[str]) -> dict[str, Any]:
    told = {"status": {"const": status}, "reason": {"enum": sorted(reasons)}}
    schema = {"allOf": [{"$ref": "#/components/schemas/Problem"}, {"properties": told}]}
    answer: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {"application/problem+json": {"schema": schema}},
    }
    if status in RETRIED:
        seconds = {"description": "seconds", "schema": {"type": "integer"}}
        answer["headers"] = {"Retry-After": seconds}
    return answer
