"""The OpenAPI document, from the same models that validate.

spectree only describes here: its own validation reads bodies leniently (`[]` becomes `{}`) and
before authentication, so `body` reads them instead, strictly and in the contract's order; and it
reads every answer whole into memory, so that none would be streamed.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeVar

from pydantic import BaseModel
from spectree import Response, SecurityScheme, SpecTree
from spectree.models import SecureType, SecuritySchemeData
from spectree.plugins.flask_plugin import FlaskPlugin

from api.schemas import Problem

Handler = TypeVar("Handler", bound=Callable[..., Any])

PROBLEM_STATUSES = (400, 413, 415, 500, 503)


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
    problems: tuple[int, ...] = (),
    body: type[BaseModel] | None = None,
    form: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
    key: bool = True,
) -> Callable[[Handler], Handler]:
    """Describe a handler: its bodies, its answers, the statuses of its problems."""
    models: dict[str, Any] = {f"HTTP_{status}": model for status, model in answers.items()}
    for status in {*problems, *PROBLEM_STATUSES, *((401,) if key else ())}:
        models.setdefault(f"HTTP_{status}", Problem)
    decorate: Callable[[Handler], Handler] = spec.validate(
        json=body,
        form=form,
        query=query,
        resp=Response(**models),
        tags=[tag],
        security={"key": []} if key else None,
        skip_validation=True,
    )
    return decorate


def document() -> dict[str, Any]:
    """Return the OpenAPI document of the current app.

    spectree declares every body as plain JSON; errors have a media type of their own.
    """
    described: dict[str, Any] = deepcopy(spec.spec)
    for operations in described["paths"].values():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400 and "content" in answer:
                    schema = answer["content"].pop("application/json")
                    answer["content"]["application/problem+json"] = schema
    return described
