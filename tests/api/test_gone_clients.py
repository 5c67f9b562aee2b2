"""A poll whose client has hung up, or whose runner was revoked meanwhile, claims nothing."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.live import LiveService, prepare


def _register(service: LiveService) -> tuple[str, str]:
    answer = httpx.post(
        f"{service.url}/runners/register",
        json={
            "registration_token": service.environment["RUNNER_REGISTRATION_TOKEN"],
            "name": secrets.token_hex(4),
        },
    ).json()
    return answer["runner_id"], answer["token"]


def _submit(admin: httpx.Client, submission_id: str) -> None:
    admin.post(
        "/submissions",
        data={
            "problem_id": "1",
            "language": "2",
            "username": "ada",
            "submission_id": submission_id,
        },
        files={"code": ("main.py", b"print(1)")},
    ).raise_for_status()


def _job(admin: httpx.Client, submission_id: str) -> dict[str, Any]:
    return admin.get(f"/submissions/{submission_id}").json()["job"]


def test_i3_a_poll_whose_client_is_gone_claims_nothing(live_service: LiveService) -> None:
    with live_service.admin() as admin:
        prepare(admin)
        runner_id, token = _register(live_service)
        address = urlsplit(live_service.url)
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(
                f"GET /runners/{runner_id}/next-job?wait=20 HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: Bearer {token}\r\n\r\n".encode()
            )
            # Its first look is over once it is seen waiting; then it hangs up.
            connection.settimeout(1)
            with contextlib.suppress(TimeoutError):
                assert connection.recv(1) == b"", "answered at once"
        _submit(admin, "s1")
        other_id, other_token = _register(live_service)
        answer = httpx.get(
            f"{live_service.url}/runners/{other_id}/next-job?wait=10",
            headers={"Authorization": f"Bearer {other_token}"},
            timeout=30,
        )
        assert answer.status_code == 200
        assert _job(admin, "s1")["attempts"] == 1
        assert _job(admin, "s1")["leased_by"] == other_id


def test_i3_a_runner_revoked_while_it_waits_is_given_nothing(live_service: LiveService) -> None:
    with live_service.admin() as admin:
        prepare(admin)
        runner_id, token = _register(live_service)
        answers: list[int] = []

        def wait() -> None:
            answer = httpx.get(
                f"{live_service.url}/runners/{runner_id}/next-job?wait=20",
                headers={"Authorization": f"Bearer {token}"},
                timeout=40,
            )
            answers.append(answer.status_code)

        waiting = threading.Thread(target=wait)
        waiting.start()
        # It waits once it has been seen.
        while not any(r["runner_id"] == runner_id for r in admin.get("/runners").json()):
            pass
        waiting.join(1)
        assert admin.delete(f"/runners/{runner_id}").status_code == 204
        _submit(admin, "s1")
        waiting.join(30)
        assert answers == [401]
        assert _job(admin, "s1")["state"] == "pending"
