"""How the API's operations follow one another, as OpenAPI links.

Guarantees: every link leads to an operation that the document describes; clients that explore the
API, and the tests that do, find what one answer opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """From an answer to an operation; `parameters` are names to OpenAPI runtime expressions."""

    source: tuple[str, str]
    status: int
    target: tuple[str, str]
    parameters: Mapping[str, str]


RUNNER = {"rn": "$response.body#/runner_id"}
JOB = {"rn": "$request.path.rn", "jb": "$response.body#/job_id"}
SUBMISSION = {"submission_id": "$response.body#/submission_id"}
REJUDGE = {"rejudge_id": "$response.body#/rejudge_id"}
USER = {"name": "$request.path.name"}
PROBLEM = {"problem_id": "$request.path.problem_id"}
HOMEWORK = {"homework_id": "$request.path.homework_id"}
REJUDGE_STARTS = (
    ("post", "/rejudges"),
    ("post", "/problems/{problem_id}/rejudge"),
    ("post", "/homeworks/{homework_id}/rejudge"),
)


def _links() -> tuple[Link, ...]:
    def followed(
        source: tuple[str, str],
        status: int,
        parameters: Mapping[str, str],
        *targets: tuple[str, str],
    ) -> list[Link]:
        return [
            Link(source=source, status=status, target=target, parameters=parameters)
            for target in targets
        ]

    one = "/submissions/{submission_id}"
    bulk = "/rejudges/{rejudge_id}"
    made = followed(
        ("post", "/runners/register"),
        201,
        RUNNER,
        ("post", "/runners/{rn}/heartbeat"),
        ("get", "/runners/{rn}/next-job"),
        ("delete", "/runners/{rn}"),
    )
    made += followed(
        ("get", "/runners/{rn}/next-job"),
        200,
        JOB,
        ("put", "/runners/{rn}/jobs/{jb}/complete"),
        ("put", "/runners/{rn}/jobs/{jb}/abort"),
    )
    made += followed(
        ("post", "/submissions"),
        201,
        SUBMISSION,
        ("get", one),
        ("get", f"{one}/code"),
        ("post", f"{one}/rejudge"),
        ("post", f"{one}/cancel"),
        ("post", f"{one}/front"),
    )
    for status in (200, 201):
        made += followed(
            ("put", "/users/{name}"),
            status,
            USER,
            ("get", "/users/{name}"),
            ("post", "/users/{name}/keys"),
        )
        made += followed(
            ("put", "/problems/{problem_id}"),
            status,
            PROBLEM,
            ("get", "/problems/{problem_id}"),
            ("put", "/problems/{problem_id}/testdata"),
            ("post", "/problems/{problem_id}/rejudge"),
        )
        made += followed(
            ("put", "/homeworks/{homework_id}"),
            status,
            HOMEWORK,
            ("get", "/homeworks/{homework_id}"),
            ("get", "/homeworks/{homework_id}/standings.csv"),
            ("get", "/homeworks/{homework_id}/standings.jsonl"),
            ("post", "/homeworks/{homework_id}/rejudge"),
        )
    for start in REJUDGE_STARTS:
        made += followed(
            start,
            202,
            REJUDGE,
            ("get", bulk),
            ("get", f"{bulk}/items"),
            ("get", f"{bulk}/students"),
            *(("post", f"{bulk}/{verb}") for verb in ("pause", "resume", "cancel")),
            *(("post", f"{bulk}/{verb}") for verb in ("apply", "discard")),
        )
    return tuple(made)


LINKS = _links()


def add(paths: dict[str, Any]) -> None:
    """Add the links to a document's `paths`."""
    for link in LINKS:
        method, path = link.source
        target_method, target_path = link.target
        target = paths[target_path][target_method]["operationId"]
        links = paths[path][method]["responses"][str(link.status)].setdefault("links", {})
        links[target] = {"operationId": target, "parameters": dict(link.parameters)}
