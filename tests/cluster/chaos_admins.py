"""Admins beside the clients: rejudges of all kinds, taken back, held, decided on; homework edits.

A program's verdict is a function of its text, so none of this may change what anybody sees but
the homework's last edit, which is made again and again until it is acknowledged.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from mongo.rejudging import ACTIVE
from tests.cluster.wire import Answer, Api, Diary

WHOLE_PROBLEM_MAX = 150
"""With more submissions than this a rejudge of a whole problem is soon taken back."""
END_S_MAX = 150.0
PENALTIES = (
    "score = 0",
    "score = score / 2",
    "score = score * (0.8 ** overtime)",
    "score = score * 0.5 if overtime > 1 else score * 0.9",
)
STUDENTS = (["ada", "bob"], ["ada", "bob"], ["ada"], ["bob"], [])


class Admins:
    """Threads that go on until `stopping`; `end` then brings everything to an end.

    `rejudge_s`, `bulk_s`, `edit_s`: the pauses between two rejudges of one submission, of many, and
    two edits; None: no such. `cancel`: the share of rejudges of one submission to take back.
    """

    def __init__(
        self,
        client: Callable[[str], Api],
        diary: Diary,
        stopping: threading.Event,
        taken_in: list[str],
        *,
        rejudge_s: float,
        cancel: float,
        bulk_s: float | None,
        edit_s: float | None,
    ) -> None:
        self._client = client
        self._diary = diary
        self._stopping = stopping
        self._taken_in = taken_in
        self._rejudge_s, self._cancel = rejudge_s, cancel
        self._bulk_s, self._edit_s = bulk_s, edit_s

    def works(self) -> list[Callable[[], None]]:
        works = [self._rejudge_one]
        if self._bulk_s is not None:
            works.append(partial(self._rejudge_many, self._bulk_s))
            works.append(partial(self._decide_on_previews, self._bulk_s))
        if self._edit_s is not None:
            works.append(partial(self._edit, self._edit_s))
        return works

    # -- one submission ------------------------------------------------------------------

    def _rejudge_one(self) -> None:
        api = self._client("rejudges")
        while not self._stopping.wait(self._rejudge_s):
            if not self._taken_in:
                continue
            submission_id = api.random.choice(self._taken_in)
            self._ask(api, "rejudge", f"/submissions/{submission_id}/rejudge", submission_id)
            if api.random.random() < self._cancel / 2:
                self._ask(api, "front", f"/submissions/{submission_id}/front", submission_id)
            if api.random.random() < self._cancel:
                self._stopping.wait(api.random.uniform(0, 0.6))
                self._ask(api, "cancel", f"/submissions/{submission_id}/cancel", submission_id)
            self._look(api, api.random.choice(self._taken_in))

    def _look(self, api: Api, submission_id: str) -> None:
        answer = api.ask("GET", f"/submissions/{submission_id}")
        if answer.status == 200 and (shown := answer.json()["status"]) >= 0:
            self._diary.note("shown", submission=submission_id, verdict=shown)

    # -- many ----------------------------------------------------------------------------

    def _rejudge_many(self, bulk_s: float) -> None:
        api = self._client("bulk rejudges")
        while not self._stopping.wait(api.random.uniform(0.5, 1.5) * bulk_s):
            path, body, is_large = self._scope(api)
            answer = self._ask(api, "bulk", path, path, body)
            if answer.status != 202:
                continue
            rejudge_id = answer.json()["rejudge_id"]
            if api.random.random() < 0.3:
                self._ask(api, "hold", f"/rejudges/{rejudge_id}/pause", rejudge_id)
                self._stopping.wait(api.random.uniform(0.2, 2.0))
                self._ask(api, "release", f"/rejudges/{rejudge_id}/resume", rejudge_id)
            if is_large or api.random.random() < 0.25:
                self._stopping.wait(api.random.uniform(0, 2.0))
                self._ask(api, "cancel_bulk", f"/rejudges/{rejudge_id}/cancel", rejudge_id)

    def _scope(self, api: Api) -> tuple[str, dict[str, Any], bool]:
        """Which submissions to rejudge, and whether they are too many to let it end."""
        mode = api.random.choice(("replace", "preview"))
        problem_id = api.random.choice((1, 2))
        if api.random.random() < 0.25:
            is_large = len(self._taken_in) > WHOLE_PROBLEM_MAX
            return f"/problems/{problem_id}/rejudge", {"mode": mode}, is_large
        now = datetime.now(UTC)
        body: dict[str, Any] = {
            "mode": mode,
            "since": (now - timedelta(seconds=api.random.uniform(1, 6))).isoformat(),
        }
        narrower: dict[str, Any] = api.random.choice(
            ({}, {"problem_id": problem_id}, {"username": "ada"}, {"verdict": "AC"})
        )
        return "/rejudges", {**body, **narrower}, False

    def _decide_on_previews(self, bulk_s: float) -> None:
        api = self._client("decisions")
        while not self._stopping.wait(bulk_s / 2):
            for rejudge in self._listed(api):
                if rejudge["state"] == "ready" and api.random.random() < 0.6:
                    self._decide(api, rejudge["rejudge_id"])

    def _listed(self, api: Api) -> list[dict[str, Any]]:
        answer = api.ask("GET", "/rejudges")
        return answer.json() if answer.status == 200 else []

    def _decide(self, api: Api, rejudge_id: str) -> None:
        """Apply or discard a preview, sometimes the same twice."""
        verb = "apply" if api.random.random() < 0.7 else "discard"
        answer = self._ask(api, verb, f"/rejudges/{rejudge_id}/{verb}", rejudge_id)
        if answer.status == 202 and api.random.random() < 0.2:
            self._ask(api, verb, f"/rejudges/{rejudge_id}/{verb}", rejudge_id)

    # -- the homework --------------------------------------------------------------------

    def _edit(self, edit_s: float) -> None:
        api = self._client("edits")
        while not self._stopping.wait(api.random.uniform(0.5, 1.5) * edit_s):
            late_s = api.random.choice((-(10**9), 5, 20, 86_400, 3 * 86_400))
            students = api.random.choice(STUDENTS)
            homework = self._homework(api, late_s=late_s, students=students)
            self._diary.note("edit", homework="hw", status=self._put(api, homework))

    def _homework(self, api: Api, *, late_s: float, students: list[str]) -> dict[str, Any]:
        """A homework whose end was `late_s` ago."""
        return {
            "name": "hw",
            "start": "2020-01-01T00:00:00Z",
            "end": (datetime.now(UTC) - timedelta(seconds=late_s)).isoformat(),
            "penalty": api.random.choice(PENALTIES),
            "problem_ids": [1, 2],
            "students": students,
        }

    def _put(self, api: Api, homework: dict[str, Any]) -> int:
        return api.ask("PUT", "/homeworks/hw", json.dumps(homework).encode()).status

    # -- the end -------------------------------------------------------------------------

    def end(self) -> None:
        """Decide on every preview, release what is held, and make the last edit.

        While the service is whole again: what does not end then never will.
        """
        api = self._client("the end")
        until = time.monotonic() + END_S_MAX
        while self._is_open(api) and time.monotonic() < until:
            time.sleep(0.5)
        if self._edit_s is None:
            return
        # Late for whatever was handed in during the last half of a minute, and for no more.
        last = self._homework(api, late_s=30, students=["ada", "bob"])
        while (status := self._put(api, last)) != 200 and time.monotonic() < until:
            time.sleep(0.5)
        self._diary.note("last_edit", homework="hw", status=status, **last)

    def _is_open(self, api: Api) -> bool:
        answer = api.ask("GET", "/rejudges")
        if answer.status != 200:
            return True
        is_open = False
        for rejudge in answer.json():
            rejudge_id = rejudge["rejudge_id"]
            if rejudge["held"]:
                self._ask(api, "release", f"/rejudges/{rejudge_id}/resume", rejudge_id)
            if rejudge["state"] == "ready":
                self._decide(api, rejudge_id)
            is_open |= rejudge["state"] in ("ready", *ACTIVE)
        return is_open

    # -- asking --------------------------------------------------------------------------

    def _ask(
        self, api: Api, kind: str, path: str, subject: str, body: dict[str, Any] | None = None
    ) -> Answer:
        data = b"" if body is None else json.dumps(body).encode()
        answer = api.ask("POST", path, data)
        field = "submission" if path.startswith("/submissions/") else "rejudge"
        self._diary.note(kind, **{field: subject}, status=answer.status)
        return answer
