"""Logging: JSON lines on standard error, one event per line.

Guarantees: what looks like a token, a key or a signed link never leaves in a log line, whichever
library wrote it.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

_SECRET = re.compile(
    r"\b(?:rk|ak|uk)_[A-Za-z0-9_-]{8,}|(?<=/files/code/)[^\s\"?]+|(?<=/files/testdata/)[^\s\"?]+"
)
HIDDEN = "[hidden]"


def _hide_secrets(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    return {_hidden(name): _hidden(value) for name, value in event.items()}


def _hidden(value: Any) -> Any:
    """Return `value` as it will be rendered, without secrets, however deep they sit."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return without_secrets(value)
        case Mapping():
            return {_hidden(name): _hidden(entry) for name, entry in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_hidden(entry) for entry in value]
        case _:
            return without_secrets(repr(value))


def without_secrets(text: str) -> str:
    """Return `text` with whatever looks like a key, a token or a signed link hidden."""
    return _SECRET.sub(HIDDEN, text)


def configure(level: str) -> None:
    """Send structlog's and the standard library's records to standard error, as JSON lines.

    `level`: the least level that is written, as in "INFO".
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _hide_secrets,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # The driver logs every command at DEBUG, with its contents.
    logging.getLogger("pymongo").setLevel(max(logging.getLevelName(level), logging.WARNING))
