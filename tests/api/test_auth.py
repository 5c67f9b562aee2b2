"""Who may do what: every endpoint against every kind of credential."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from flask import Flask
from werkzeug.routing import Rule

from dispatch.runner import UNSEEN_MAX
from tests.factories import ADMIN_KEY, REGISTRATION_TOKEN, Runner, Service
from tests.fixtures import AppKeeper

PATH_VALUES = {
    "rn": "rn_none",
    "jb": "jb_none",
    "name": "nobody",
    "problem_id": "4",
    "homework_id": "none",
    "submission_id": "none",
    "task": "0",
    "case": "0",
    "stream": "stdout",
    "token": "none",
    "rejudge_id": "none",
}
OPEN = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("POST", "/runners/register"),
    ("GET", "/files/code/<token>"),
    ("GET", "/files/testdata/<token>"),
}
OF_RUNNERS = {
    "/runners/<rn>/heartbeat",
    "/runners/<rn>/next-job",
    "/runners/<rn>/jobs/<jb>/complete",
    "/runners/<rn>/jobs/<jb>/abort",
}
OF_USERS = {
    ("POST", "/submissions"),
    ("GET", "/submissions"),
    ("GET", "/submissions/<submission_id>"),
    ("GET", "/submissions/<submission_id>/code"),
    (
        "GET",
        "/submissions/<submission_id>/outputs/<int:task>/<int:case>/<any(stdout, stderr):stream>",
    ),
    ("GET", "/users/<name>"),
    ("GET", "/homeworks/<homework_id>"),
}


@dataclass(frozen=True)
class Endpoint:
    """One method of one route, with a path to ask for."""

    method: str
    rule: str
    path: str

    @property
    def of_runners(self) -> bool:
        return self.rule in OF_RUNNERS

    @property
    def of_admins(self) -> bool:
        return not self.of_runners and (self.method, self.rule) not in OPEN | OF_USERS


def endpoints(app: Flask) -> list[Endpoint]:
    """Every method of every route; a new one is found by itself."""
    return [
        Endpoint(method, rule.rule, _path(rule))
        for rule in app.url_map.iter_rules()
        if not rule.rule.startswith("/console")  # for people: it has sessions instead of keys
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"})
    ]


def _path(rule: Rule) -> str:
    built = rule.build(
        {name: PATH_VALUES[name] for name in rule.arguments}
        | {name: int(PATH_VALUES[name]) for name in rule.arguments & {"problem_id", "task", "case"}}
    )
    assert built is not None
    return built[1]


def reason(service: Service, endpoint: Endpoint, authorization: str | None) -> tuple[int, str]:
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = service.call(
        endpoint.method, endpoint.path, key=None, headers=headers, json={"anything": 1}
    )
    problem = answer.get_json(force=True) if answer.status_code >= 400 else {}
    return answer.status_code, problem.get("reason", "")


def test_every_endpoint_is_known_here(app_keeper: AppKeeper) -> None:
    """A new endpoint is an admin's or a runner's unless it is listed above."""
    known = {(endpoint.method, endpoint.rule) for endpoint in endpoints(app_keeper.app())}
    assert known >= OPEN | OF_USERS
    of_runners = {rule for _, rule in known if rule.startswith("/runners/<rn>/")}
    assert of_runners == OF_RUNNERS | {
        "/runners/<rn>/drain",
        "/runners/<rn>/reinstate",
        "/runners/<rn>/rejudge",
    }


BAD_CREDENTIALS: dict[str, Callable[[Service], str | None]] = {
    "none": lambda _: None,
    "empty": lambda _: "",
    "no scheme": lambda _: ADMIN_KEY,
    "basic": lambda _: f"Basic {ADMIN_KEY}",
    "nothing after the scheme": lambda _: "Bearer ",
    "a wrong key": lambda _: "Bearer ak_0123456789abcdef0123456789",
    "a prefix": lambda _: f"Bearer {ADMIN_KEY[:-1]}",
    "a longer key": lambda _: f"Bearer {ADMIN_KEY}x",
    "a very long key": lambda _: "Bearer ak_" + "a" * 5000,
    "not ASCII": lambda _: "Bearer ak_\xe9\xff0123456789abcdef",
    "a NUL": lambda _: "Bearer ak_\x00",
    "two keys": lambda _: f"Bearer {ADMIN_KEY} {ADMIN_KEY}",
    "the registration token": lambda _: f"Bearer {REGISTRATION_TOKEN}",
}


@pytest.mark.parametrize("kind", BAD_CREDENTIALS)
def test_what_is_no_credential_is_401_everywhere(service: Service, kind: str) -> None:
    authorization = BAD_CREDENTIALS[kind](service)
    for endpoint in endpoints(service.app):
        if (endpoint.method, endpoint.rule) in OPEN:
            continue
        assert reason(service, endpoint, authorization) == (401, "unauthorized"), endpoint


def test_a_401_says_how_to_authenticate(service: Service) -> None:
    answer = service.call("GET", "/queue", key=None)
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="judge"'


def test_the_scheme_s_case_plays_no_part(service: Service) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        headers = {"Authorization": f"{scheme} {ADMIN_KEY}"}
        assert service.call("GET", "/queue", key=None, headers=headers).status_code == 200


def test_a_user_s_key_is_403_where_an_admin_s_is_needed(service: Service) -> None:
    key = service.user("ada")
    checked = 0
    for endpoint in endpoints(service.app):
        if endpoint.of_admins:
            assert reason(service, endpoint, f"Bearer {key}") == (403, "forbidden"), endpoint
            checked += 1
    assert checked >= 12


def test_people_s_keys_are_401_at_the_runner_api_and_runners_tokens_elsewhere(
    service: Service,
) -> None:
    key, runner = service.user("ada"), service.runner()
    for endpoint in endpoints(service.app):
        if (endpoint.method, endpoint.rule) in OPEN:
            continue
        wrong = [key, ADMIN_KEY] if endpoint.of_runners else [runner.token]
        path = endpoint.path.replace("rn_none", runner.runner_id)
        for credential in wrong:
            found = reason(
                service, Endpoint(endpoint.method, endpoint.rule, path), f"Bearer {credential}"
            )
            assert found == (401, "unauthorized"), endpoint


def test_a_runner_s_token_is_good_for_its_own_path_only(service: Service) -> None:
    one, other = service.runner("one"), service.runner("other")
    assert service.call("GET", one.path("next-job"), key=one.token).status_code == 204
    assert service.call("GET", other.path("next-job"), key=one.token).status_code == 401
    for runner_id in ("rn_none", one.runner_id.lower(), one.runner_id + "%00", "%ED%A0%80"):
        path = f"/runners/{runner_id}/next-job"
        assert service.call("GET", path, key=one.token).status_code == 401


def test_a_runner_unseen_for_seven_days_is_forgotten(service: Service) -> None:
    runner = service.runner()
    service.clock.at += UNSEEN_MAX / 2
    assert service.call("GET", runner.path("next-job"), key=runner.token).status_code == 204
    service.clock.at += UNSEEN_MAX / 2
    assert service.call("GET", runner.path("next-job"), key=runner.token).status_code == 204
    service.clock.at += UNSEEN_MAX
    assert service.call("GET", runner.path("next-job"), key=runner.token).status_code == 401


@pytest.mark.parametrize(
    "token", ["", "wrong", REGISTRATION_TOKEN + " ", REGISTRATION_TOKEN.upper(), "é", "\ud800"]
)
def test_registration_needs_the_token(service: Service, token: str) -> None:
    body = {"registration_token": token, "name": "r"}
    answer = service.call("POST", "/runners/register", key=None, json=body)
    assert answer.status_code == 401
    assert REGISTRATION_TOKEN not in answer.text
    assert service.database["runners"].count_documents({}) == 0


def test_a_student_sees_the_student_s_own_only(service: Service) -> None:
    ada, bob = service.user("ada"), service.user("bob")
    service.problem(1)
    service.homework("both", [1], ["ada", "bob"])
    service.homework("ada-s", [1], ["ada"])
    service.submit("ada", 1, "sn_a")
    runner = service.runner()
    service.judge(runner, "sn_a", "AC")
    for path in ("", "/code", "/outputs/0/0/stdout", "?wait=30"):
        asked = service.call("GET", f"/submissions/sn_a{path}", key=bob)
        unknown = service.call("GET", f"/submissions/sn_b{path}", key=bob)
        assert asked.status_code == unknown.status_code == 404
        assert asked.text.replace("sn_a", "") == unknown.text.replace("sn_b", "")
        assert service.call("GET", f"/submissions/sn_a{path}", key=ada).status_code == 200
    assert service.call("GET", "/users/ada", key=bob).status_code == 403
    assert service.call("GET", "/submissions?username=ada", key=bob).status_code == 403
    assert service.ok("GET", "/submissions", key=bob)["submissions"] == []
    both = service.ok("GET", "/homeworks/both", key=bob)
    assert list(both["student_status"]) == both["students"] == ["bob"]
    assert service.call("GET", "/homeworks/ada-s", key=bob).status_code == 404
    for_student = service.ok("GET", "/submissions/sn_a", key=ada)["job"]
    for_admin = service.ok("GET", "/submissions/sn_a")["job"]
    assert runner.runner_id not in str(for_student)
    assert runner.runner_id in str(for_admin)
    assert for_admin["leased_by"] == runner.runner_id
    refused = service.submit_over_http(bob, problem_id=1, language=2, username="ada")
    assert (refused.status_code, refused.get_json(force=True)["reason"]) == (403, "forbidden")


def test_secrets_are_stored_hashed(service: Service) -> None:
    key, runner = service.user("ada"), service.runner()
    made = service.ok("POST", "/users/ada/keys")["key"]
    stored = str(
        [list(service.database[name].find()) for name in service.database.list_collection_names()]
    )
    for secret in (key, made, runner.token, ADMIN_KEY):
        assert secret not in stored


@dataclass(frozen=True)
class Leased:
    """A job in a runner's hands."""

    runner: Runner
    code_url: str
    testdata_url: str
    job_id: str


@pytest.fixture
def leased(service: Service) -> Leased:
    service.user("ada")
    service.problem(1)
    service.submit("ada", 1, "sn_1")
    runner = service.runner()
    payload = service.claim(runner)
    return Leased(runner, payload["code_url"], payload["testdata_url"], payload["job_id"])


def links_work(service: Service, leased: Leased) -> bool:
    found = {
        service.call("GET", url, key=None).status_code
        for url in (leased.code_url, leased.testdata_url)
    }
    assert found in ({200}, {403})
    return found == {200}


def test_links_live_as_long_as_the_lease(service: Service, leased: Leased) -> None:
    assert links_work(service, leased)
    service.complete(leased.runner, leased.job_id, "AC")
    assert not links_work(service, leased)


def test_links_die_with_a_reclaim(service: Service, leased: Leased) -> None:
    service.clock.advance(40)
    assert service.claim(service.runner("other"))["job_id"] == leased.job_id
    assert not links_work(service, leased)


def test_links_die_with_a_rejudge(service: Service, leased: Leased) -> None:
    service.ok("POST", "/submissions/sn_1/rejudge")
    assert not links_work(service, leased)


def test_links_die_with_the_runner_s_revocation(service: Service, leased: Leased) -> None:
    service.call("DELETE", f"/runners/{leased.runner.runner_id}")
    assert not links_work(service, leased)


def test_links_expire_after_an_hour_however_long_the_lease(
    service: Service, leased: Leased
) -> None:
    service.clock.advance(3601)
    beat = {"active_job_ids": [leased.job_id]}
    service.ok("POST", leased.runner.path("heartbeat"), key=leased.runner.token, json=beat)
    for url in (leased.code_url, leased.testdata_url):
        answer = service.call("GET", url, key=None)
        assert (answer.status_code, answer.get_json(force=True)["reason"]) == (403, "link_expired")


def test_a_link_is_for_its_own_object(service: Service, leased: Leased) -> None:
    swapped = leased.code_url.replace("/files/code/", "/files/testdata/")
    assert service.call("GET", swapped, key=None).status_code == 403
    assert service.call("GET", leased.code_url + "x", key=None).status_code == 403
    assert service.call("GET", "/files/code/" + "x" * 2001, key=None).status_code == 400
