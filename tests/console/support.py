"""Somebody at the console, as the tests play them."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

from werkzeug.test import TestResponse

from console.blueprint import CONTENT_SECURITY_POLICY
from tests.factories import ADMIN_KEY, Service

TOKEN = re.compile(r'name="form_token" value="([^"]+)"')
LINKING = {"href", "src", "action", "formaction"}


class Operator:
    """A browser with its cookies. Every answer is checked for what all must have."""

    def __init__(self, service: Service, *, base_url: str = "http://localhost") -> None:
        self.client = service.app.test_client()
        self.base_url = base_url

    def get(self, path: str) -> TestResponse:
        return checked(self.client.get(path, base_url=self.base_url))

    def page(self, path: str) -> str:
        """The text of a page that must be there."""
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.status, answer.headers.get("Location"))
        return answer.text

    def token(self, path: str = "/console") -> str:
        """The token of the forms on a page."""
        found = TOKEN.search(self.get(path).text)
        assert found is not None, path
        return unescape(found[1])

    def post(self, path: str, *, token: str | None = None, **fields: str) -> TestResponse:
        """Send a form, with the session's token unless another is given."""
        form = {"form_token": self.token() if token is None else token, **fields}
        return checked(self.client.post(path, data=form, base_url=self.base_url))

    def sign_in(self, key: str = ADMIN_KEY, **fields: str) -> TestResponse:
        token = self.token("/console/sign-in")
        return self.post("/console/sign-in", token=token, key=key, **fields)


def checked(answer: TestResponse) -> TestResponse:
    """Check the headers, and that a page holds no script of its own and no foreign address."""
    assert answer.status_code < 500, answer.text
    assert answer.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    if answer.mimetype == "text/html":
        assert answer.headers["Cache-Control"] == "no-store"
        Scan().feed(answer.text)
    return answer


class Scan(HTMLParser):
    """Fails on what no page of the console may hold, whoever wrote it into a name."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attrs)
        assert tag not in ("img", "iframe", "object", "embed", "style", "base"), (tag, attrs)
        if tag == "script":
            assert given.get("src", "").startswith("/console/static/"), attrs
            assert self.scripts == 0
            self.scripts += 1
        for name, value in attrs:
            assert not name.startswith("on"), (tag, attrs)
            assert name != "style", (tag, attrs)
            if name in LINKING:
                assert str(value).startswith(("/console", "#", "data:,")), (tag, attrs)
