"""Whatever the service writes, no secret is in it: a live one is used with all of them, and all
that it wrote is searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from pymongo import MongoClient

from tests.factories import result_body
from tests.live import LiveService, prepare, start_service

PIECE_CHARS = 12
"""As much of a secret as must not be found either."""
DISK_FULL = 14031


class Secrets:
    """What must not be found, and what clients were answered."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        self.errors: list[str] = []

    def keep(self, name: str, secret: str) -> str:
        assert len(secret) >= PIECE_CHARS, name
        self._kept[name] = secret
        return secret

    def hear(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code >= 400:
            self.errors.append(answer.text + str(dict(answer.headers)))
        return answer

    def found_in(self, text: str) -> set[str]:
        """Names of those of which the beginning, the end or all is in `text`."""
        return {
            name
            for name, secret in self._kept.items()
            if any(piece in text for piece in pieces(secret))
        }

    def __len__(self) -> int:
        return len(self._kept)


def pieces(secret: str) -> set[str]:
    bare = re.sub(r"^(?:rk|uk|ak)_", "", secret)
    return {bare[:PIECE_CHARS], bare[-PIECE_CHARS:]}


@pytest.fixture
def service(mongo_uri: str, tmp_path: Path) -> Iterator[LiveService]:
    made = start_service(mongo_uri, tmp_path / "service.log", LOG_LEVEL="DEBUG")
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.stop()


@contextmanager
def refusing(client: MongoClient[Any], *commands: str) -> Iterator[None]:
    data = {"failCommands": list(commands), "errorCode": DISK_FULL}
    client.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=data)
    try:
        yield
    finally:
        client.admin.command("configureFailPoint", "failCommand", mode="off")


@pytest.mark.slow
def test_nothing_that_is_written_holds_a_secret(
    service: LiveService, mongo_client: MongoClient[Any]
) -> None:
    secrets = Secrets()
    for name in ("SECRET_KEY", "ADMIN_API_KEY", "RUNNER_REGISTRATION_TOKEN"):
        secrets.keep(name, service.environment[name])
    with service.admin() as admin:
        prepare(admin)
        key = secrets.keep("user key", admin.post("/users/ada/keys").json()["key"])
        runner = use_the_runner_s(service, secrets, admin, key)
        misplace(service, secrets, key, runner)
        use_the_console_s(service, secrets)
        with refusing(mongo_client, "insert", "update", "findAndModify"):
            fail(service, secrets, key, runner)
        metrics = admin.get("/metrics").text
        described = admin.get("/openapi.json").text
        pages = [admin.get(f"/{name}").text for name in ("runners", "queue", "submissions")]
    assert service.stop() == 0
    written = service.log.read_text()
    assert "database_error" in written, "the failures left their tracebacks"
    assert "Traceback" in written
    assert len(secrets) >= 14
    assert len(secrets.errors) > 20
    found = {
        where: secrets.found_in(text)
        for where, text in {
            "log": written,
            "metrics": metrics,
            "description": described,
            "answers": "\n".join(pages),
            "errors": "\n".join(secrets.errors),
        }.items()
    }
    assert not any(found.values()), found


def use_the_runner_s(
    service: LiveService, secrets: Secrets, admin: httpx.Client, key: str
) -> dict[str, Any]:
    """Register, claim, download, complete; each also with what is not quite right."""
    wish = {"registration_token": service.environment["RUNNER_REGISTRATION_TOKEN"], "name": "r"}
    with httpx.Client(base_url=service.url) as client:
        almost = secrets.keep("wrong registration token", "almost-" + wish["registration_token"])
        secrets.hear(client.post("/runners/register", json={**wish, "registration_token": almost}))
        runner: dict[str, Any] = client.post("/runners/register", json=wish).json()
        secrets.keep("runner token", runner["token"])
        client.headers["Authorization"] = f"Bearer {runner['token']}"
        form = {"problem_id": "1", "language": "2", "submission_id": "sn_1"}
        admin.post(
            "/submissions",
            data=form,
            files={"code": ("main.py", b"print()")},
            headers={"Authorization": f"Bearer {key}"},
        ).raise_for_status()
        path = f"/runners/{runner['runner_id']}"
        job = client.get(f"{path}/next-job?wait=10").json()
        secrets.keep("lease token", job["lease_token"])
        for kind in ("code", "testdata"):
            link = urlsplit(job[f"{kind}_url"]).path
            secrets.keep(f"{kind} link", link.rpartition("/")[2])
            assert httpx.get(service.url + link).status_code == 200
            for wrong in (link + "x", link[:-3], link.replace(kind, "code")):
                secrets.hear(httpx.get(f"{service.url}{wrong}?token=1"))
        wrong = secrets.keep("wrong lease token", "wrong-" + job["lease_token"])
        complete = f"{path}/jobs/{job['job_id']}/complete"
        secrets.hear(client.put(complete, json={**result_body("AC"), "lease_token": wrong}))
        secrets.hear(client.put(complete, json={"tasks": [], "lease_token": job["lease_token"]}))
        fitting = {**result_body("AC"), "lease_token": job["lease_token"]}
        assert client.put(complete, json=fitting).status_code == 204
        for kind in ("code", "testdata"):
            gone = httpx.get(service.url + urlsplit(job[f"{kind}_url"]).path)
            assert secrets.hear(gone).status_code == 403
    return {**runner, "complete": complete, "code_url": job["code_url"]}


def misplace(service: LiveService, secrets: Secrets, key: str, runner: dict[str, Any]) -> None:
    """Send credentials where they do not belong."""
    with httpx.Client(base_url=service.url) as client:
        for credential in (key, runner["token"], service.environment["ADMIN_API_KEY"]):
            for scheme in ("Bearer", "Basic", ""):
                for path in ("/queue", "/runners/rn_1/next-job", "/submissions"):
                    headers = {"Authorization": f"{scheme} x{credential}x".strip()}
                    secrets.hear(client.get(path, headers=headers))
            client.headers["Authorization"] = f"Bearer {service.environment['ADMIN_API_KEY']}"
            for path in ("users", "submissions", "problems", "homeworks", "rejudges", "nothing"):
                secrets.hear(client.get(f"/{path}/{credential}"))
            secrets.hear(client.delete(f"/runners/{credential}"))
            secrets.hear(client.get(f"/queue?{credential}={credential}"))
            secrets.hear(client.get(f"/submissions?verdict={credential}"))
            secrets.hear(client.get(f"/submissions?{credential}=1"))
            secrets.hear(client.put("/users/ada", content=f'{{"{credential}": 1, "{credential}"}}'))
            secrets.hear(client.put("/users/ada", json={credential: credential}))
            secrets.hear(client.put("/problems/1", json={"name": credential, "tasks": []}))
            secrets.hear(client.request(credential[:20], "/queue"))
            secrets.hear(client.put("/users/ada", json={"display_name": [credential]}))
            del client.headers["Authorization"]


def use_the_console_s(service: LiveService, secrets: Secrets) -> None:
    """Sign in, wrongly and rightly; send forms with and without their token."""
    found = re.compile(r'name="form_token" value="([^"]+)"')
    with httpx.Client(base_url=service.url) as browser:
        form = found.search(browser.get("/console/sign-in").text)
        assert form is not None
        token = secrets.keep("sign-in form token", form[1])
        secrets.keep("visit cookie", browser.cookies["console_visit"])
        wrong = secrets.keep("wrong admin key", "ak_wrong-but-long-enough-to-be-one")
        again = browser.post("/console/sign-in", data={"form_token": token, "key": wrong})
        # It is the form once more, with its token.
        assert (again.status_code, wrong in again.text) == (401, False)
        sent = {"form_token": "x" + token, "key": service.environment["ADMIN_API_KEY"]}
        secrets.hear(browser.post("/console/sign-in", data=sent))
        sent["form_token"] = token
        assert browser.post("/console/sign-in", data=sent).status_code == 303
        secrets.keep("session cookie", browser.cookies["console_session"])
        form = found.search(browser.get("/console/queue").text)
        assert form is not None
        token = secrets.keep("form token", form[1])
        secrets.hear(browser.post("/console/queue/pause", data={"form_token": token + "x"}))
        assert browser.post("/console/queue/resume", data={"form_token": token}).status_code == 303
        secrets.hear(browser.get("/console/submissions/" + service.environment["ADMIN_API_KEY"]))
        secrets.hear(browser.get("/console/nowhere"))


def fail(service: LiveService, secrets: Secrets, key: str, runner: dict[str, Any]) -> None:
    """Use credentials while the database refuses every write, so that tracebacks are logged."""
    environment = service.environment
    with httpx.Client(base_url=service.url) as client:
        wish = {"registration_token": environment["RUNNER_REGISTRATION_TOKEN"], "name": "r"}
        assert secrets.hear(client.post("/runners/register", json=wish)).status_code == 503
        client.headers["Authorization"] = f"Bearer {environment['ADMIN_API_KEY']}"
        assert secrets.hear(client.post("/users/ada/keys")).status_code == 503
        assert secrets.hear(client.put(f"/users/{key}", json={})).status_code == 503
        client.headers["Authorization"] = f"Bearer {key}"
        form = {"problem_id": "1", "language": "2", "submission_id": "sn_2"}
        answer = client.post("/submissions", data=form, files={"code": ("main.py", b"print()")})
        assert secrets.hear(answer).status_code == 503
