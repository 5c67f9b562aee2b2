"""Strict reading of what clients send.

Guarantees: a JSON body is one object without duplicate keys, NaN, Infinity or numbers that
overflow, or it is a 400 that says what is wrong; a model's validation error names the field.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from flask import request
from pydantic import BaseModel, ValidationError

from api.errors import ProblemError, invalid

JSON_BYTES_MAX = 2 * 1024 * 1024
VALUES_MAX = 250_000
"""Values in a body that is larger than `JSON_BYTES_MAX`. A result has at most some 60,000; the
smallest ones would take thirty times their size in memory."""
# A text that does not end goes on to the end of the body, so that nothing is looked at twice.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)

Model = TypeVar("Model", bound=BaseModel)
T = TypeVar("T")


def json_object(*, bytes_max: int = JSON_BYTES_MAX) -> dict[str, Any]:
    """Return the request's body as a JSON object.

    Raises:
        ProblemError: 400, 413 or 415.
    """
    if request.mimetype != "application/json" and not request.mimetype.endswith("+json"):
        raise ProblemError(415, "unsupported_media_type", "Content-Type: must be application/json")
    request.max_content_length = bytes_max
    raw = read_body(lambda: request.get_data(cache=False))
    if len(raw) >= bytes_max and read_body(lambda: request.environ["wsgi.input"].read(1)):
        # A chunked body has no length to refuse: werkzeug would cut it here and call it whole.
        raise ProblemError(413, "body_too_large", f"body: is larger than {bytes_max} bytes")
    if len(raw) > JSON_BYTES_MAX and _holds_more_values_than(VALUES_MAX, raw):
        raise invalid(f"body: holds more than {VALUES_MAX} values")
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
        )
    except UnicodeDecodeError:
        raise invalid("body: is not UTF-8") from None
    except RecursionError:
        raise invalid("body: is nested too deeply") from None
    except ValueError as error:
        # Also numbers of more digits than Python converts.
        raise invalid(f"body: is not JSON ({_first_line(error)})") from None
    if not isinstance(value, dict):
        raise invalid("body: must be a JSON object")
    return value


def _holds_more_values_than(count: int, raw: bytes) -> bool:
    """Tell whether there are more texts, commas and openings of lists and objects than `count`.

    Takes no memory and time in proportion to `raw`, whatever that is.
    """
    found = end = 0
    for text in _TEXT.finditer(raw):
        found += 1 + _marks(raw, end, text.start())
        end = text.end()
        if found > count:
            return True
    return found + _marks(raw, end, len(raw)) > count


def _marks(raw: bytes, start: int, end: int) -> int:
    return sum(raw.count(mark, start, end) for mark in (b",", b"[", b"{"))


def read_body(read: Callable[[], T]) -> T:
    """Return what `read` reads of the request's body.

    Raises:
        ProblemError: 400, the body is broken off or its chunks are malformed. 413.
    """
    try:
        return read()
    except OSError:
        raise invalid("body: cannot be read to its end") from None


def parse(
    model: type[Model],
    *,
    reason: str = "invalid_request",
    bytes_max: int = JSON_BYTES_MAX,
) -> Model:
    """Return the request's JSON body as `model`.

    Raises:
        ProblemError: 400 (with `reason` where the model does not fit), 413 or 415.
    """
    return validated(model, json_object(bytes_max=bytes_max), reason=reason)


def parse_query(model: type[Model]) -> Model:
    """Return the request's query as `model`; a parameter given twice is refused.

    Raises:
        ProblemError: 400, naming the parameter.
    """
    values = request.args.to_dict(flat=False)
    for name, given in values.items():
        if len(given) > 1:
            raise invalid(f"{name}: is given more than once")
    return validated(model, {name: given[0] for name, given in values.items()})


def validated(model: type[Model], value: Any, *, reason: str = "invalid_request") -> Model:
    """Return `value` as `model`.

    Raises:
        ProblemError: 400, naming the first field that does not fit.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = _path(first["loc"]) or "body"
        message = first["msg"].removeprefix("Value error, ")
        raise invalid(f"{where}: {message}", reason) from None


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise invalid(f"{key[:100]!a}: is given twice")
            seen.add(key)
    return result


def _constant(text: str) -> NoReturn:
    raise invalid(f"body: {text} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise invalid("body: a number is too large")
    return value


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
