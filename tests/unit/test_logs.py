"""Nothing that looks like a secret leaves in a log line, wherever in the event it sits."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

import logs

TOKEN = "rk_" + "Aa0-_Zz9" * 5
KEYS = (TOKEN, "ak_" + "b" * 43, "uk_" + "c" * 43)
LINK = "WyJjb2RlIiwicm5fMDEiXQ.aS1x2Q.s1gnatur3-s1gnatur3_x"


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What has been logged, as parsed lines; logging is put back afterwards."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    pymongo_level = logging.getLogger("pymongo").level
    logs.configure("DEBUG")

    def read() -> list[dict[str, Any]]:
        text = stream.getvalue()
        assert not any(key in text for key in KEYS), text
        assert LINK not in text
        return [json.loads(line) for line in text.splitlines()]

    yield read
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("pymongo").setLevel(pymongo_level)
    structlog.reset_defaults()


@pytest.mark.parametrize("key", KEYS)
def test_secrets_are_hidden_wherever_they_sit(lines: Any, key: str) -> None:
    structlog.get_logger("t1").info(
        f"token {key}",
        text=f"\n{key}\t",
        listed=[{"deep": (key, {key})}],
        headers={"Authorization": f"Bearer {key}", key: 1},
        error=ValueError(f"no such runner {key}"),
        number=7,
        nothing=None,
        yes=True,
    )
    [line] = lines()
    assert line["event"] == f"token {logs.HIDDEN}"
    assert line["text"] == f"\n{logs.HIDDEN}\t"
    assert line["headers"]["Authorization"] == f"Bearer {logs.HIDDEN}"
    assert (line["number"], line["nothing"], line["yes"]) == (7, None, True)
    assert logs.HIDDEN in json.dumps(line["listed"])
    assert logs.HIDDEN in line["error"]


@pytest.mark.parametrize("kind", ["code", "testdata"])
def test_signed_links_are_hidden(lines: Any, kind: str) -> None:
    logging.getLogger("other").warning("GET %s", f"http://judge/files/{kind}/{LINK}?x=1")
    [line] = lines()
    assert line["event"] == f"GET http://judge/files/{kind}/{logs.HIDDEN}?x=1"
    assert line["logger"] == "other"


def test_tracebacks_are_one_field_without_secrets(lines: Any) -> None:
    try:
        raise RuntimeError(f"bad key {TOKEN}")
    except RuntimeError:
        structlog.get_logger("t2").exception("failed")
        logging.getLogger("other").exception("failed too")
    first, second = lines()
    for line in (first, second):
        assert "RuntimeError" in line["exception"]
        assert line["level"] == "error"


@pytest.mark.parametrize("text", ["mark_rejudged_again", "rk_short", "bulk_rejudge_of_all"])
def test_what_is_no_secret_stays(lines: Any, text: str) -> None:
    structlog.get_logger("t3").info(text)
    assert lines()[0]["event"] == text


def test_the_driver_never_logs_commands_with_their_contents(lines: Any) -> None:
    logging.getLogger("pymongo.command").debug("insert %s", TOKEN)
    assert lines() == []
