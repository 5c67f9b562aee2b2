"""Log lines: one JSON object per event, on standard error.

Guarantees: only what code of this package names gets into a line. Libraries' own logs stay
off, since they would print signed links.
"""

from __future__ import annotations

import sys

import structlog


def configure_logging(runner_name: str) -> None:
    """Set up logging for this process; every line carries the runner's name."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _naming(runner_name),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _naming(runner_name: str) -> structlog.typing.Processor:
    def add_name(
        _: structlog.typing.WrappedLogger, __: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        event["runner"] = runner_name
        return event

    return add_name
