"""Fifty clients that hand in, resend and hand in twice, and admins, until SIGTERM.

`python -m tests.cluster.chaos_clients <options as JSON>`: `ports`, `diary`, `seed`, `admin_key`,
`clients`, `pause_s` (from a verdict to the client's next submit, on average), `lose`; `rejudge_s`,
and if wanted `cancel`, `bulk_s`, `edit_s`, as in `Admins`.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.cluster.chaos_admins import Admins
from tests.cluster.wire import Answer, Api, Diary, multipart

USERS = ("ada", "bob")
TRIES_MAX = 60


class Clients:
    """All clients; every thread works until `stopping`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._diary = Diary(Path(options["diary"]))
        self._stopping = threading.Event()
        self._taken_in: list[str] = []

    def stop(self, *_: Any) -> None:
        self._stopping.set()

    def run(self) -> None:
        works = [
            threading.Thread(target=self._hand_in, args=(number,))
            for number in range(self._options["clients"])
        ]
        options = self._options
        admins = Admins(
            self._api,
            self._diary,
            self._stopping,
            self._taken_in,
            rejudge_s=options["rejudge_s"],
            cancel=options.get("cancel", 0.0),
            bulk_s=options.get("bulk_s"),
            edit_s=options.get("edit_s"),
        )
        works += [threading.Thread(target=work) for work in admins.works()]
        for work in works:
            work.start()
        for work in works:
            work.join()
        admins.end()

    def _api(self, name: str) -> Api:
        options = self._options
        return Api(
            options["ports"],
            self._diary,
            f"{options['seed']} {name}",
            key=options["admin_key"],
            lose=options["lose"],
        )

    def _hand_in(self, number: int) -> None:
        api = self._api(f"client {number}")
        count = 0
        self._stopping.wait(api.random.uniform(0, self._options["pause_s"]))
        while not self._stopping.is_set():
            count += 1
            submission_id = f"c{number}-{count}"
            code = f"# {self._options['seed']} {submission_id}\n".encode()
            if self._until_taken_in(api, submission_id, code):
                self._taken_in.append(submission_id)
                if api.random.random() < 0.15:
                    self._hand_in_again(api, submission_id)
                self._await_verdict(api, submission_id)
            self._stopping.wait(api.random.uniform(0, 2 * self._options["pause_s"]))

    def _until_taken_in(self, api: Api, submission_id: str, code: bytes) -> bool:
        """Hand in, and where there was no answer ask and resend, as a client has to."""
        for _ in range(TRIES_MAX):
            answer = self._submit(api, submission_id, code)
            self._diary.note(
                "submit", submission=submission_id, code=code.decode(), status=answer.status
            )
            if answer.status == 201:
                return True
            if answer.status not in (0, 409, 503):
                return False  # the checker finds it
            time.sleep(max(0.1, answer.retry_after_s))
            seen = self._ask(api, submission_id)
            if seen == 200:
                self._diary.note("seen", submission=submission_id, code=code.decode())
                return True
        self._diary.note("gave_up_submit", submission=submission_id)
        return False

    def _await_verdict(self, api: Api, submission_id: str) -> None:
        """Hand in nothing more before this is judged: so what waits is bounded by the clients."""
        while not self._stopping.wait(api.random.uniform(0.5, 1.5)):
            answer = api.ask("GET", f"/submissions/{submission_id}")
            shown = answer.json()["status"] if answer.status == 200 else -1
            if shown >= 0:
                self._diary.note("shown", submission=submission_id, verdict=shown)
                return

    def _submit(self, api: Api, submission_id: str, code: bytes) -> Answer:
        fields = {
            "submission_id": submission_id,
            "problem_id": str(1 + len(submission_id) % 2),
            "language": "2",
            "username": USERS[len(submission_id) // 2 % 2],
        }
        body, media_type = multipart(fields, code)
        return api.ask("POST", "/submissions", body, media_type)

    def _ask(self, api: Api, submission_id: str) -> int:
        for _ in range(TRIES_MAX):
            answer = api.ask("GET", f"/submissions/{submission_id}")
            if answer.status in (200, 404):
                return answer.status
            time.sleep(max(0.1, answer.retry_after_s))
        return 0

    def _hand_in_again(self, api: Api, submission_id: str) -> None:
        """Another program under an id that has been taken: never more than a 409."""
        code = f"# another program under {submission_id}\n".encode()
        answer = self._submit(api, submission_id, code)
        self._diary.note("submit_again", submission=submission_id, status=answer.status)


if __name__ == "__main__":
    clients = Clients(json.loads(sys.argv[1]))
    signal.signal(signal.SIGTERM, clients.stop)
    clients.run()
