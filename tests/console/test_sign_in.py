"""Who gets in at the console, for how long, and whose forms take effect."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta

import pytest
from werkzeug.http import parse_cookie

from mongo import console_session, user
from tests.console.support import Operator
from tests.factories import ADMIN_KEY, Service

PAGES = ("", "/queue", "/runners", "/submissions", "/judge-errors", "/homeworks")
HOUR_S = 3600


@pytest.mark.parametrize("page", PAGES)
def test_nobody_sees_a_page_without_signing_in(service: Service, page: str) -> None:
    answer = Operator(service).get(f"/console{page}")
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/console/sign-in")


def test_an_admin_key_opens_the_page_that_was_asked_for(service: Service) -> None:
    operator = Operator(service)
    asked = operator.get("/console/submissions?verdict=JE")
    form = operator.page(asked.headers["Location"])
    assert 'name="next" value="/console/submissions?verdict=JE"' in form
    answer = operator.sign_in(next="/console/submissions?verdict=JE")
    assert answer.headers["Location"] == "/console/submissions?verdict=JE"
    assert "No submission fits." in operator.page("/console/submissions?verdict=JE")


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://example.org/",
        "//example.org",
        "/\\example.org",
        "javascript:alert(1)",
        "/console/x\r\nSet-Cookie: a=b",
        "/consoles",
        "/runners",
    ],
)
def test_signing_in_leads_nowhere_else(service: Service, elsewhere: str) -> None:
    answer = Operator(service).sign_in(next=elsewhere)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/console")


@pytest.mark.parametrize("key", ["", "ak_wrong-wrong-wrong-wrong", "\u00e9" * 20, "x" * 100_000])
def test_a_wrong_key_is_told_so_and_opens_nothing(service: Service, key: str) -> None:
    operator = Operator(service)
    answer = operator.sign_in(key)
    assert answer.status_code in (401, 413)
    assert operator.get("/console").status_code == 303
    assert not service.database["console_sessions"].find_one()


def test_a_users_key_does_not_open_the_console(service: Service) -> None:
    operator = Operator(service)
    answer = operator.sign_in(service.user("ada"))
    assert answer.status_code == 401
    assert "That is no admin key" in answer.text


def test_the_cookie_is_out_of_reach_and_holds_no_key(service: Service) -> None:
    answer = Operator(service).sign_in()
    cookie = next(one for one in answer.headers.getlist("Set-Cookie") if "_session=" in one)
    flags = {part.strip().partition("=")[0] for part in cookie.split(";")[1:]}
    assert flags == {"HttpOnly", "SameSite", "Path"}
    assert "SameSite=Strict" in cookie
    assert "Path=/console" in cookie
    digest = hashlib.sha256(ADMIN_KEY.encode()).hexdigest()
    kept = service.database["console_sessions"].find_one()
    for secret in (ADMIN_KEY, digest):
        assert secret not in cookie
    token = parse_cookie(cookie)["console_session"].rpartition(".")[0]
    assert kept is not None
    assert kept["_id"] == hashlib.sha256(token.encode()).hexdigest()
    assert ADMIN_KEY not in str(kept)


def test_over_https_the_cookies_stay_there(service: Service) -> None:
    operator = Operator(service, base_url="https://localhost")
    visit = operator.get("/console/sign-in").headers["Set-Cookie"]
    session = operator.sign_in().headers.getlist("Set-Cookie")
    assert "Secure" in visit
    assert any("console_session=" in cookie and "Secure" in cookie for cookie in session)


def test_removing_the_key_ends_its_sessions(service: Service, operator: Operator) -> None:
    digest = hashlib.sha256(ADMIN_KEY.encode()).hexdigest()
    service.database["api_keys"].delete_one({"_id": digest})
    assert operator.get("/console").status_code == 303
    assert operator.client.post("/console/queue/pause").status_code == 303
    assert service.services.queue.control.paused() is None


def test_a_session_ends_after_twelve_hours(service: Service, operator: Operator) -> None:
    service.clock.advance(12 * HOUR_S - 1)
    assert operator.get("/console").status_code == 200
    service.clock.advance(1)
    assert operator.get("/console").status_code == 303


def test_signing_out_ends_the_session_itself(service: Service, operator: Operator) -> None:
    kept = operator.client.get_cookie("console_session", path="/console")
    assert kept is not None
    assert operator.post("/console/sign-out").headers["Location"] == "/console/sign-in"
    thief = Operator(service)
    thief.client.set_cookie("console_session", kept.value, path="/console")
    assert thief.get("/console").status_code == 303


def test_every_sign_in_makes_a_session_of_its_own(service: Service, operator: Operator) -> None:
    planted = operator.client.get_cookie("console_session", path="/console")
    assert planted is not None
    victim = Operator(service)
    victim.client.set_cookie("console_session", planted.value, path="/console")
    victim.sign_in()
    own = victim.client.get_cookie("console_session", path="/console")
    assert own is not None
    assert own.value != planted.value


@pytest.mark.parametrize("cookie", ["", "x", "a.b", "\u00e9.x", "x" * 3000, "..", "a.b.c"])
def test_a_made_up_cookie_is_nobody(service: Service, cookie: str) -> None:
    operator = Operator(service)
    operator.client.set_cookie("console_session", cookie, path="/console")
    assert operator.get("/console").status_code == 303


def test_an_unsigned_session_id_is_nobody(service: Service) -> None:
    with service.app.app_context():
        token = console_session.start(ADMIN_KEY, now=service.clock())
    assert token is not None
    operator = Operator(service)
    operator.client.set_cookie("console_session", token, path="/console")
    assert operator.get("/console").status_code == 303


FORMS = (
    "/queue/pause",
    "/queue/resume",
    "/queue/problems/1/release",
    "/sign-out",
    "/runners/rn_1/revoke",
    "/runners/rn_1/drain",
    "/runners/rn_1/reinstate",
    "/runners/rn_1/rejudge",
    "/submissions/sn_1/rejudge",
    "/submissions/sn_1/front",
    "/submissions/sn_1/cancel",
    "/check",
    "/check/repair",
    "/rejudges",
    "/rejudges/rj_1/hold",
)
IDS = {
    "runner_id": "rn_1",
    "submission_id": "sn_1",
    "rejudge_id": "rj_1",
    "problem_id": "1",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("token", ["", "x", "\u00e9"])
def test_a_form_without_its_token_does_nothing(
    service: Service, operator: Operator, form: str, token: str
) -> None:
    answer = operator.post(f"/console{form}", token=token, why="because")
    assert answer.status_code == 403
    assert "out of date" in answer.text
    assert service.services.queue.control.paused() is None
    assert operator.get("/console").status_code == 200


def test_the_forms_above_are_all_there_are(service: Service) -> None:
    posts = {
        re.sub(
            r"<(?:any\((\w+)[^)]*\):|int:)?(\w+)>", lambda part: part[1] or IDS[part[2]], rule.rule
        )
        for rule in service.app.url_map.iter_rules()
        if rule.endpoint.startswith("console.")
        and "POST" in (rule.methods or ())
        and rule.endpoint not in ("console.take_key", "console.nowhere")
    }
    assert posts == {f"/console{form}" for form in FORMS}


def test_a_form_token_belongs_to_one_session(service: Service, operator: Operator) -> None:
    other = Operator(service)
    other.sign_in()
    answer = operator.post("/console/queue/pause", token=other.token(), why="because")
    assert answer.status_code == 403
    assert operator.post("/console/queue/pause", why="because").status_code == 303


def test_the_sign_in_form_has_a_token_too(service: Service) -> None:
    one, other = Operator(service), Operator(service)
    for token in ("", other.token("/console/sign-in")):
        answer = one.post("/console/sign-in", token=token, key=ADMIN_KEY)
        assert answer.status_code == 403
    assert not service.database["console_sessions"].find_one()


def test_a_second_admin_key_is_told_apart(service: Service) -> None:
    with service.app.app_context():
        key = user.create_admin_key(now=service.clock())
    marks = []
    for given in (key, ADMIN_KEY):
        operator = Operator(service)
        operator.sign_in(given)
        operator.post("/console/queue/pause", why="because")
        pause = service.services.queue.control.paused()
        assert pause is not None
        marks.append(pause.by)
        assert given not in operator.page("/console")
    assert len(set(marks)) == 2


def test_expired_sessions_are_forgotten(service: Service) -> None:
    indexes = service.database["console_sessions"].index_information()
    assert indexes["expired"]["expireAfterSeconds"] == 0
    assert timedelta(hours=12) == console_session.SESSION_TTL
