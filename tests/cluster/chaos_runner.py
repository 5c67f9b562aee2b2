"""A runner for chaos: speaks the runner API, judges by the program's text, resends as it should.

`python -m tests.cluster.chaos_runner <options as JSON>`: `ports`, `diary`, `name`, `token` (for
registering), `lose`, `twice`, `judge_s`, `long_share`, `long_s`. SIGTERM drains.
"""

from __future__ import annotations

import io
import json
import signal
import sys
import threading
import time
import uuid
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.wire import NO_ANSWER, Answer, Api, Diary, result_of

RESEND_AFTER_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
POLL_WAIT_S = 2


class ChaosRunner:
    """One runner with one job at a time."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._diary = Diary(Path(options["diary"]))
        self._api = self._client("work", lose=options["lose"], twice=options["twice"])
        self._beats = self._client("beat", lose=options["lose"], twice=options["twice"])
        self._files = self._client("files")
        self._path = ""
        self._interval_s = 1.0
        self._held: str | None = None
        self._draining = threading.Event()

    def _client(self, use: str, **chances: float) -> Api:
        seed = f"{self._options['name']} {use}"
        return Api(self._options["ports"], self._diary, seed, **chances)

    def drain(self, *_: Any) -> None:
        self._draining.set()

    def run(self) -> None:
        self._register()
        threading.Thread(target=self._heartbeat, daemon=True).start()
        while not self._draining.is_set():
            job = self._next_job()
            if job is not None:
                self._held = job["job_id"]
                self._judge(job)
                self._held = None

    def _register(self) -> None:
        body = {"registration_token": self._options["token"], "name": self._options["name"]}
        client = self._client("register")
        while True:
            answer = client.ask("POST", "/runners/register", json.dumps(body).encode())
            if answer.status == 201:
                break
            time.sleep(0.3)
        registered = answer.json()
        self._path = f"/runners/{registered['runner_id']}"
        self._interval_s = registered["config"]["heartbeat_interval_sec"]
        self._api.key = self._beats.key = registered["token"]
        self._diary.note("registered", runner=registered["runner_id"], name=self._options["name"])

    def _heartbeat(self) -> None:
        while True:
            held = self._held
            body = {"active_job_ids": [held] if held else []}
            self._beats.ask("POST", f"{self._path}/heartbeat", json.dumps(body).encode())
            time.sleep(self._interval_s * 0.8)

    def _next_job(self) -> dict[str, Any] | None:
        path = f"{self._path}/next-job?wait={POLL_WAIT_S}&claim_id={uuid.uuid4().hex}"
        for pause_s in RESEND_AFTER_S[:3]:
            answer = self._api.ask("GET", path)
            if answer.status == 200:
                job: dict[str, Any] = answer.json()
                self._note("leased", job)
                return job
            if answer.status == 204:
                return None
            time.sleep(pause_s)
        return None

    def _judge(self, job: dict[str, Any]) -> None:
        if self._draining.is_set():
            self._resend("abort", job, {"reason": "drain"})
            return
        code = self._code(job)
        if code is None:
            # The lease is over, or no API process answers: it runs out by itself.
            self._note("no_code", job)
            return
        options = self._options
        is_long = self._api.random.random() < options["long_share"]
        time.sleep(
            options["long_s"] if is_long else self._api.random.uniform(0, options["judge_s"])
        )
        self._resend("complete", job, {"tasks": result_of(code)})

    def _code(self, job: dict[str, Any]) -> bytes | None:
        path = urlsplit(job["code_url"]).path
        answer = NO_ANSWER
        for pause_s in RESEND_AFTER_S:
            answer = self._files.ask("GET", path)
            if answer.status == 200:
                with zipfile.ZipFile(io.BytesIO(answer.body)) as packed:
                    return packed.read("main.py")
            if answer.status in (403, 404):
                return None
            time.sleep(pause_s)
        return None

    def _resend(self, verb: str, job: dict[str, Any], body: dict[str, Any]) -> None:
        """Send until there is a final word; then, or after the last try, the lease is left."""
        data = json.dumps({**body, "lease_token": job["lease_token"]}).encode()
        for pause_s in (*RESEND_AFTER_S, None):
            answer = self._api.ask("PUT", f"{self._path}/jobs/{job['job_id']}/{verb}", data)
            if answer.status in (202, 204, 400, 404, 409):
                self._note(verb, job, answer)
                return
            if pause_s is not None:
                time.sleep(pause_s)
        self._note("gave_up", job)

    def _note(self, kind: str, job: dict[str, Any], answer: Answer | None = None) -> None:
        self._diary.note(
            kind,
            runner=self._path.removeprefix("/runners/"),
            submission=job["submission_id"],
            job=job["job_id"],
            token=job["lease_token"],
            **({} if answer is None else {"status": answer.status}),
        )


if __name__ == "__main__":
    runner = ChaosRunner(json.loads(sys.argv[1]))
    signal.signal(signal.SIGTERM, runner.drain)
    runner.run()
