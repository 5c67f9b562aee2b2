"""Output that is not text, or too much of it: from the program over the runner and the service to
what is shown. It costs nobody the verdict, no document grows with it, and what is shown says that
it was cut or replaced.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bson
import httpx
import psutil
import pytest

from api.runner_api import COMPLETE_BYTES_MAX
from tests.factories import Service, case_body
from tests.live import ROOT, LiveService, prepare

MIB = 1024 * 1024
# What the reference runner keeps of a stream.
KEPT_BYTES_MAX = 64 * 1024
# MongoDB takes 16 MiB. Without outputs a submission of 500 cases needs much less.
DOCUMENT_BYTES_MAX = MIB
# A body, its text, its values and what is packed of them: each a copy for a moment.
COPIES_MAX = 8

C, PYTHON = 0, 2


@dataclass(frozen=True, kw_only=True)
class Printer:
    """A program and what has to be shown of it; its case expects `1`."""

    source: str
    verdict: str
    language: int = PYTHON
    cut: bool = False
    replaced: bool = False


def printing(expression: str) -> str:
    return f"import sys; sys.stdout.buffer.write({expression})"


PRINTERS = {
    "every byte": Printer(
        source=printing("bytes(range(256)) * 300"), verdict="WA", cut=True, replaced=True
    ),
    "not UTF-8": Printer(source=printing(r"b'\xff\xfe1\n'"), verdict="WA", replaced=True),
    "a surrogate": Printer(source=printing(r"b'\xed\xa0\x801\n'"), verdict="WA", replaced=True),
    "NUL": Printer(source=printing(r"b'1\0\n'"), verdict="WA"),
    "the half of a character": Printer(source=printing(r"b'1\xc3'"), verdict="WA", replaced=True),
    "a character at the cut": Printer(
        source=printing("('x' + '\\u00e4' * 40_000).encode()"), verdict="WA", cut=True
    ),
    "100 MB": Printer(
        source=(ROOT / "tests/runner/hostile/prints_100_mb.c").read_text(),
        language=C, verdict="OLE", cut=True,
    ),
    "10 million blank lines": Printer(
        source=printing(r"b'1' + b'\n' * 10_000_000"), verdict="AC", cut=True
    ),
    "much on stderr": Printer(
        source="import sys; print(1); sys.stderr.write('x' * 70_000)", verdict="AC", cut=True
    ),
    "a compiler's endless log": Printer(
        source=f"#warning {'a' * 80}\n" * 1000 + '#include "main.c"\n',
        language=C, verdict="CE", cut=True,
    ),
}  # fmt: skip


def peak_bytes(service: LiveService) -> int:
    """The most memory that one of the API's processes ever held."""
    processes = psutil.Process(service.process.pid).children(recursive=True)
    peaks = []
    for process in processes:
        status = Path(f"/proc/{process.pid}/status").read_text()
        peaks += [int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line]
    return max(peaks) * 1024


@pytest.fixture
def runner(live_service: LiveService, tmp_path: Path) -> Iterator[None]:
    """The reference runner, at work for the live service."""
    if shutil.which("bwrap") is None:
        pytest.skip("BUBBLEWRAP IS MISSING: the runner's isolation is NOT tested here")
    environment = os.environ | {
        "BACKEND_URL": live_service.url,
        "RUNNER_REGISTRATION_TOKEN": live_service.environment["RUNNER_REGISTRATION_TOKEN"],
        "RUNNER_CACHE_DIR": str(tmp_path / "cache"),
    }
    with (tmp_path / "runner.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "runner"], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.usefixtures("runner")
def test_whatever_a_program_prints_it_gets_its_verdict(live_service: LiveService) -> None:
    with live_service.admin() as admin:
        prepare(admin)
        before = peak_bytes(live_service)
        ids = {name: submit(admin, printer) for name, printer in PRINTERS.items()}
        for name, printer in PRINTERS.items():
            view = verdict_of(admin, ids[name])
            assert view["verdict"] == printer.verdict, name
            case = view["tasks"][0]["cases"][0]
            assert case["output_truncated"] is printer.cut, name
            shown = ""
            for stream in ("stdout", "stderr"):
                data = admin.get(f"/submissions/{ids[name]}/outputs/0/0/{stream}").content
                assert len(data) <= 2 * KEPT_BYTES_MAX
                shown += data.decode("utf-8", "strict")
            assert shown
            assert ("\ufffd" in shown) is printer.replaced, name
        # Of the hundred megabytes nothing arrived but their beginning.
        grown = peak_bytes(live_service) - before
        print(f"peak before {before // MIB} MiB, grown by {grown // MIB} MiB")
        assert grown < 100 * MIB


def submit(admin: httpx.Client, printer: Printer) -> str:
    form = {"problem_id": "1", "language": str(printer.language), "username": "ada"}
    answer = admin.post("/submissions", data=form, files={"code": printer.source.encode()})
    answer.raise_for_status()
    submission_id: str = answer.json()["submission_id"]
    return submission_id


def verdict_of(admin: httpx.Client, submission_id: str) -> Any:
    for _ in range(4):
        view = admin.get(f"/submissions/{submission_id}", params={"wait": 30}).json()
        if view["status"] != -1:
            break
    return view


def test_the_largest_body_lands_in_bounded_memory_and_one_byte_more_is_413(
    live_service: LiveService,
) -> None:
    token = live_service.environment["RUNNER_REGISTRATION_TOKEN"]
    with live_service.admin() as admin:
        prepare(admin)
        submission_id = submit(admin, Printer(source="print(1)", verdict="AC"))
        body = {"registration_token": token, "name": "r"}
        runner = admin.post("/runners/register", json=body).json()
        headers = {"Authorization": f"Bearer {runner['token']}"}
        base = f"{live_service.url}/runners/{runner['runner_id']}"
        with httpx.Client(headers=headers, timeout=60) as client:
            job_id = client.get(f"{base}/next-job").json()["job_id"]
            client.headers["Content-Type"] = "application/json"
            before = peak_bytes(live_service)
            largest = _body(COMPLETE_BYTES_MAX)
            answer = client.put(f"{base}/jobs/{job_id}/complete", content=largest + b" ")
            assert answer.status_code == 413
            assert answer.json()["reason"] == "body_too_large"
            answer = client.put(f"{base}/jobs/{job_id}/complete", content=largest)
            assert answer.status_code == 204
        grown = peak_bytes(live_service) - before
        print(f"peak before {before // MIB} MiB, grown by {grown // MIB} MiB")
        assert grown < COPIES_MAX * COMPLETE_BYTES_MAX
        view = verdict_of(admin, submission_id)
        assert view["tasks"][0]["cases"][0]["output_truncated"] is True


def _body(size: int) -> bytes:
    empty = json.dumps({"tasks": [[case_body(stdout="")]]}).encode()
    return empty.replace(b'"stdout": ""', b'"stdout": "%s"' % (b"x" * (size - len(empty))))


@pytest.mark.parametrize(
    ("cases", "output"),
    [((20,), "x" * MIB), ((1,), "e" * 30 * MIB), ((100,) * 5, "\x01" * 10_000)],
    ids=["20 cases of 1 MiB", "a log of 30 MB", "500 cases"],
)
def test_no_document_grows_with_the_output(
    service: Service, cases: tuple[int, ...], output: str
) -> None:
    service.problem(1, *((100 // len(cases), count) for count in cases))
    service.user("ada")
    service.submit("ada", 1, "sn_1")
    runner = service.runner()
    payload = service.claim(runner)
    case = case_body(stdout=output, stderr=output[:5])
    body = {"tasks": [[case] * count for count in cases]}
    path = runner.path(f"jobs/{payload['job_id']}/complete")
    assert service.call("PUT", path, key=runner.token, json=body).status_code == 204
    for name in ("submissions", "jobs"):
        (document,) = service.database[name].find()
        assert len(bson.encode(document)) < DOCUMENT_BYTES_MAX
    last = f"/submissions/sn_1/outputs/{len(cases) - 1}/{cases[-1] - 1}"
    kept = service.call("GET", f"{last}/stdout").data
    assert kept == output.encode()[:MIB]
    assert service.call("GET", f"{last}/stderr").data == output[:5].encode()


def test_a_cut_at_the_service_halves_no_character(service: Service) -> None:
    service.problem(1)
    service.user("ada")
    service.submit("ada", 1, "sn_1")
    runner = service.runner()
    payload = service.claim(runner)
    body = {"tasks": [[case_body(stdout="x" + "\U0001f600" * MIB)]]}
    path = runner.path(f"jobs/{payload['job_id']}/complete")
    assert service.call("PUT", path, key=runner.token, json=body).status_code == 204
    kept = service.call("GET", "/submissions/sn_1/outputs/0/0/stdout").data
    assert MIB - 4 < len(kept) <= MIB
    assert kept.decode("utf-8", "strict").endswith("\U0001f600")
