"""Runs every `curl` line of docs/runner-protocol.md against a live service, in order."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.live import LiveService

DOC = Path(__file__).parents[2] / "docs" / "runner-protocol.md"
BLOCK = re.compile(r"```sh\n(?P<line>curl .*?)\s+# (?P<status>\d{3})\n```", re.DOTALL)


@pytest.fixture
def waiting_submission(live_service: LiveService):
    """A service with one problem of one case, and a program that waits for a runner."""
    root = DOC.parents[1]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "flask",
            "--app",
            "app",
            "import-problem",
            str(root / "examples/problems/hello"),
            "--id",
            "1",
        ],
        cwd=root,
        env=os.environ | live_service.environment,
        check=True,
        capture_output=True,
    )
    with live_service.admin() as admin:
        admin.put("/users/ada", json={}).raise_for_status()
        answer = admin.post(
            "/submissions",
            data={"problem_id": "1", "language": "2", "username": "ada"},
            files={"code": ("main.py", b"print('Hello World!')")},
        )
    assert answer.status_code == 201, answer.text
    return live_service, answer.json()["submission_id"]


def test_every_curl_line_answers_what_the_document_says(waiting_submission, tmp_path) -> None:
    service, submission_id = waiting_submission
    assert shutil.which("curl"), "curl is needed"
    known = {
        "API": service.url,
        "RUNNER_REGISTRATION_TOKEN": service.environment["RUNNER_REGISTRATION_TOKEN"],
        "PATH": os.environ["PATH"],
    }
    text = DOC.read_text()
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("```sh"), "a block is not of the form that is run"
    for block in blocks:
        command = f"curl() {{ command curl -sS -w '\\n%{{http_code}}' \"$@\"; }}; {block['line']}"
        ran = subprocess.run(
            ["bash", "-c", command], env=known, cwd=tmp_path, capture_output=True, text=True
        )
        body, _, status = ran.stdout.rpartition("\n")
        assert status == block["status"], (block["line"], ran.stdout, ran.stderr)
        if body.startswith("{"):
            fields = json.loads(body)
            known |= {k.upper(): v for k, v in fields.items() if isinstance(v, str)}
    shown = httpx.get(
        f"{service.url}/submissions/{submission_id}", headers=service.admin_headers
    ).json()
    assert shown["verdict"] == "AC"
    assert (tmp_path / "code.zip").read_bytes().startswith(b"PK")
