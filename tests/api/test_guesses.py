"""How often an address may be wrong: failures count, a class behind one address gets in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import freezegun
import pytest
from flask import Flask, request
from werkzeug.test import TestResponse

import app as composition
from api.errors import ProblemError
from api.guesses import Guesses
from tests.console.support import Operator
from tests.factories import ADMIN_KEY, REGISTRATION_TOKEN, Service, check_problem

FAILURES_MAX = 5
NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def strict(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A service that lets an address be wrong five times a minute."""
    limited = dataclasses.replace(service.services, guesses=Guesses(FAILURES_MAX))
    monkeypatch.setitem(service.app.extensions, "judge_dispatch", limited)
    return service


def register(service: Service, token: str, address: str = "192.0.2.1") -> TestResponse:
    return service.call(
        "POST",
        "/runners/register",
        key=None,
        json={"registration_token": token, "name": "r"},
        environ_overrides={"REMOTE_ADDR": address},
    )


def test_registering_is_refused_after_too_many_wrong_tokens(strict: Service) -> None:
    for _ in range(FAILURES_MAX):
        assert register(strict, "wrong").status_code == 401
    for token in ("wrong", REGISTRATION_TOKEN):
        refused = register(strict, token)
        assert (refused.status_code, check_problem(refused)["reason"]) == (429, "too_many_failures")
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert register(strict, REGISTRATION_TOKEN, address="192.0.2.2").status_code == 201


def test_right_tokens_are_never_counted(strict: Service) -> None:
    for _ in range(3 * FAILURES_MAX):
        assert register(strict, REGISTRATION_TOKEN).status_code == 201
    for _ in range(FAILURES_MAX - 1):
        assert register(strict, "wrong").status_code == 401
    assert register(strict, REGISTRATION_TOKEN).status_code == 201


def test_what_is_no_guess_is_not_counted(strict: Service) -> None:
    for _ in range(2 * FAILURES_MAX):
        answer = strict.call("POST", "/runners/register", key=None, json={"name": "r"})
        assert answer.status_code == 400
    assert register(strict, REGISTRATION_TOKEN, address="127.0.0.1").status_code == 201


def test_signing_in_is_refused_after_too_many_wrong_keys(strict: Service) -> None:
    signed_in = Operator(strict)
    signed_in.sign_in()
    for _ in range(FAILURES_MAX):
        assert Operator(strict).sign_in("ak_wrong-wrong-wrong-wrong").status_code == 401
    refused = Operator(strict).sign_in()
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert "too many wrong secrets" in refused.text
    assert not refused.headers.getlist("Set-Cookie")
    assert signed_in.get("/console").status_code == 200, "who is in stays in"
    assert Operator(strict).get("/console/sign-in").status_code == 200
    assert register(strict, REGISTRATION_TOKEN, address="127.0.0.1").status_code == 201


def test_many_right_sign_ins_of_one_address(strict: Service) -> None:
    for _ in range(3 * FAILURES_MAX):
        assert Operator(strict).sign_in().status_code == 303


def test_wrong_api_keys_lock_nobody_out(strict: Service) -> None:
    for _ in range(3 * FAILURES_MAX):
        assert strict.call("GET", "/queue", key="ak_wrong-wrong-wrong").status_code == 401
    assert strict.call("GET", "/queue", key=ADMIN_KEY).status_code == 200


def used_up(guesses: Guesses, address: str | None) -> bool:
    try:
        guesses.require_left("register", address)
    except ProblemError as error:
        return error.status == 429
    return False


def test_a_minute_later_the_address_may_try_again() -> None:
    with freezegun.freeze_time(NOW) as clock:
        guesses = Guesses(1)
        guesses.failed("register", "192.0.2.1")
        assert used_up(guesses, "192.0.2.1")
        clock.tick(timedelta(seconds=59))
        assert used_up(guesses, "192.0.2.1")
        clock.tick(timedelta(seconds=2))
        assert not used_up(guesses, "192.0.2.1")


@pytest.mark.parametrize(
    ("failed", "asked", "together"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        (None, "not an address", True),
    ],
)
def test_which_addresses_count_as_one(failed: str | None, asked: str, together: bool) -> None:
    guesses = Guesses(1)
    guesses.failed("register", failed)
    assert used_up(guesses, asked) == together


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], tuple[str | None, bool]]:
    """What the service takes for the client's address, and whether for TLS, behind proxies."""

    def seen(proxies: int, forwarded: str) -> tuple[str | None, bool]:
        app = Flask("probe")
        composition.trust_proxies(app, proxies)
        found: list[tuple[str | None, bool]] = []
        app.add_url_rule(
            "/", "probe", lambda: found.append((request.remote_addr, request.is_secure)) or ""
        )
        headers = {"X-Forwarded-For": forwarded, "X-Forwarded-Proto": "https"}
        app.test_client().get("/", headers=headers, environ_overrides={"REMOTE_ADDR": "10.0.0.1"})
        return found[0]

    return seen


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address", "secure"),
    [
        (0, "192.0.2.1", "10.0.0.1", False),
        (1, "192.0.2.1", "192.0.2.1", True),
        (1, "198.51.100.9, 192.0.2.1", "192.0.2.1", True),
        (1, "", "10.0.0.1", True),
    ],
)
def test_only_proxies_that_are_trusted_are_believed(
    seen: Callable[[int, str], tuple[str | None, bool]],
    proxies: int,
    forwarded: str,
    address: str,
    secure: bool,
) -> None:
    assert seen(proxies, forwarded) == (address, secure)
