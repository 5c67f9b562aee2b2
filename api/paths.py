"""Numbers in paths.

Guarantees: plain digits, as in the rest of the API. werkzeug's own converter takes those of every
script, so that a proxy's rules about a path would not see all its spellings.
"""

from __future__ import annotations

from flask import Flask
from werkzeug.routing import IntegerConverter


class PlainInteger(IntegerConverter):
    """As many digits as any id has; ranges are the handlers' to check."""

    regex = r"[0-9]{1,19}"


def install(app: Flask) -> None:
    """Have `<int:...>` in the routes of `app` mean a plain number. Before any route is there."""
    app.url_map.converters["int"] = PlainInteger
