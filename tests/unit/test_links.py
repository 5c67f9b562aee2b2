"""Runners' links: bound to one job and object, for an hour, among hosts whose clocks disagree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.errors import ProblemError
from api.links import LINK_TTL, Link, Links

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
LINK = Link(kind="code", runner_id="rn_1", job_id="jb_1", object="sn_1")
SECRET = "0123456789abcdef"


def links(at: datetime = NOW, secret: str = SECRET) -> Links:
    return Links(secret, lambda: at)


def refused(reader: Links, token: str) -> str:
    with pytest.raises(ProblemError) as caught:
        reader.read(token, "code")
    assert caught.value.status == 403
    assert len(token) < 20 or token not in caught.value.detail
    return caught.value.reason


def test_a_link_comes_back_as_it_was_signed() -> None:
    assert links().read(links().sign(LINK), "code") == LINK


def test_a_link_is_good_for_an_hour() -> None:
    token = links().sign(LINK)
    assert links(NOW + LINK_TTL).read(token, "code") == LINK
    assert refused(links(NOW + LINK_TTL + timedelta(seconds=1)), token) == "link_expired"


@pytest.mark.parametrize("ahead", [timedelta(milliseconds=1), timedelta(minutes=5)])
def test_a_link_signed_by_a_host_whose_clock_is_ahead_is_good(ahead: timedelta) -> None:
    token = links(NOW).sign(LINK)
    assert links(NOW - ahead).read(token, "code") == LINK


def test_a_link_for_code_is_none_for_test_data() -> None:
    token = links().sign(Link(kind="testdata", runner_id="rn_1", job_id="jb_1", object="ab"))
    assert refused(links(), token) == "link_invalid"


def test_another_secret_s_link_is_refused() -> None:
    assert refused(links(), links(secret="fedcba9876543210").sign(LINK)) == "link_invalid"


def test_a_link_changed_anywhere_is_refused() -> None:
    token = links().sign(LINK)
    for position in range(len(token) - 1):
        other = "A" if token[position] != "A" else "B"
        changed = token[:position] + other + token[position + 1 :]
        assert refused(links(), changed) == "link_invalid"
    for cut in range(len(token)):
        assert refused(links(), token[:cut]) == "link_invalid"


@given(st.text(max_size=200))
def test_whatever_else_comes_is_refused(token: str) -> None:
    assert refused(links(), token) == "link_invalid"


def test_two_secrets_in_one_link_do_not_mix() -> None:
    first, second = links().sign(LINK), links(secret="fedcba9876543210").sign(LINK)
    payload, _, _ = first.rpartition(".")
    _, _, signature = second.rpartition(".")
    assert refused(links(), f"{payload}.{signature}") == "link_invalid"
