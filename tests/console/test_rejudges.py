"""The pages of bulk rejudges, against a domain that notes what it is asked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.console.support import Operator
from tests.factories import EPOCH, Service

HOSTILE = "<script>alert(1)</script>"


class Rejudging:
    """Stands for the domain's bulk rejudges."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.view: dict[str, Any] = {
            "rejudge_id": "rj_1",
            "mode": "preview",
            "state": "running",
            "held": False,
            "by": HOSTILE,
            "created_at": EPOCH,
            "filter": {"problem_id": 7, "username": HOSTILE},
            "total": 40,
            "counts": {"waiting": 5, "queued": 5, "done": 25, "skipped": 3, "cancelled": 2},
            "changes": [{"from": "AC", "to": "WA", "count": 4}],
        }
        self.items = [
            {"submission_id": "sn_1", "state": "skipped", "reason": HOSTILE, "score": None}
        ]

    def start_rejudge(self, **wish: Any) -> dict[str, Any]:
        self.asked.append(("start", wish))
        return {"rejudge_id": "rj_1", "total": 40}

    def list_rejudges(self, limit: int) -> list[dict[str, Any]]:
        return [self.view]

    def view_rejudge(self, rejudge_id: str) -> dict[str, Any]:
        return self.view

    def rejudge_items(self, rejudge_id: str, *, after: str | None, limit: int) -> Any:
        return (self.items, "next~1") if after is None else ([], None)

    def rejudge_students(self, rejudge_id: str, *, after: str | None, limit: int) -> Any:
        row = {
            "submission_id": "sn_1",
            "problem_id": 7,
            "verdict_before": "AC",
            "verdict_after": "WA",
            "score_before": 100,
            "score_after": 0,
            "decided": None,
        }
        homework = {
            "homework_id": HOSTILE,
            "total_before": 100,
            "total_after": 0,
            "crosses_60": "down",
            "problems": {},
        }
        student = {
            "username": HOSTILE,
            "gains": False,
            "loses": True,
            "submissions": [row],
            "homeworks": [homework],
        }
        return ([student], "next~1") if after is None else ([], None)

    def rejudge_totals(self, rejudge_id: str) -> dict[str, int]:
        self.asked.append(("totals", rejudge_id))
        return {
            "students": 31,
            "gain": 32,
            "lose": 33,
            "cross_60_up": 34,
            "cross_60_down": 35,
            "submissions_changed": 36,
        }

    def hold_rejudge(self, rejudge_id: str) -> None:
        self.asked.append(("hold", rejudge_id))

    def release_rejudge(self, rejudge_id: str) -> None:
        self.asked.append(("release", rejudge_id))

    def cancel_rejudge(self, rejudge_id: str) -> None:
        self.asked.append(("cancel", rejudge_id))

    def apply_rejudge(self, rejudge_id: str) -> None:
        self.asked.append(("apply", rejudge_id))

    def discard_rejudge(self, rejudge_id: str) -> None:
        self.asked.append(("discard", rejudge_id))


METHODS = [name for name in vars(Rejudging) if not name.startswith("_")]


@pytest.fixture
def rejudging(service: Service, monkeypatch: pytest.MonkeyPatch) -> Rejudging:
    made = Rejudging()
    for name in METHODS:
        monkeypatch.setattr(service.services.judge, name, getattr(made, name), raising=False)
    return made


def test_progress_counts_what_needs_nothing_more(operator: Operator, rejudging: Rejudging) -> None:
    page = operator.page("/console/rejudges")
    assert 'max="40" value="30"' in page
    assert "30 of 40" in page
    page = operator.page("/console/rejudges/rj_1")
    assert 'max="40" value="30"' in page
    assert "compile" not in page
    assert "accepted" in page
    assert "wrong answer" in page
    assert "after=next~1" in page
    assert "None." in operator.page("/console/rejudges/rj_1?after=next~1")


def test_a_rejudge_is_started_by_what_is_filled_in(
    operator: Operator, rejudging: Rejudging
) -> None:
    answer = operator.post(
        "/console/rejudges",
        problem_id=" 7 ",
        homework_id="",
        username="",
        verdict="WA",
        runner_id="",
        since="2039-12-31T23:30",
        until="",
        mode="preview",
    )
    assert answer.headers["Location"] == "/console/rejudges/rj_1?did=rejudges"
    (asked,) = rejudging.asked
    wish = asked[1]
    assert wish["by"].startswith("console, key ")
    assert wish["mode"] == "preview"
    assert wish["filter"] == {
        "problem_id": 7,
        "verdict": "WA",
        "since": datetime(2039, 12, 31, 23, 30, tzinfo=UTC),
    }
    operator.post("/console/rejudges", homework_id="hw-1", mode="replace")
    assert rejudging.asked[1][1]["mode"] == "replace"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"problem_id": "x"},
        {"problem_id": "-1"},
        {"homework_id": "a b"},
        {"verdict": "PENDING"},
        {"since": "yesterday"},
        {"username": "a\x00"},
    ],
)
def test_what_says_nothing_or_nonsense_starts_nothing(
    operator: Operator, rejudging: Rejudging, fields: dict[str, str]
) -> None:
    assert operator.post("/console/rejudges", **fields).status_code == 400
    assert rejudging.asked == []


@pytest.mark.parametrize("action", ["hold", "release", "cancel", "apply", "discard"])
def test_each_button_asks_for_its_own(
    operator: Operator, rejudging: Rejudging, action: str
) -> None:
    answer = operator.post(f"/console/rejudges/rj_1/{action}")
    assert rejudging.asked == [(action, "rj_1")]
    assert 'class="notice"' in operator.page(answer.headers["Location"])
    assert operator.post("/console/rejudges/rj_1/other").status_code in (404, 405)


def buttons(page: str) -> set[str]:
    return {
        action
        for action in ("hold", "release", "cancel", "apply", "discard")
        if f'/console/rejudges/rj_1/{action}"' in page
    }


def test_only_what_can_be_done_has_a_button(operator: Operator, rejudging: Rejudging) -> None:
    def offered(**changed: Any) -> set[str]:
        rejudging.view.update(changed)
        return buttons(operator.page("/console/rejudges/rj_1"))

    assert offered() == {"hold", "cancel"}
    assert offered(held=True) == {"release", "cancel"}
    assert offered(held=False, counts={"done": 40}, state="ready") == {"apply", "discard"}
    assert offered(state="applied") == set()
    assert offered(mode="replace", state="done") == set()
    assert offered(total=0, counts={}, state="done") == set()
    assert "nothing to do" in operator.page("/console/rejudges/rj_1")


def test_what_others_wrote_stays_text(operator: Operator, rejudging: Rejudging) -> None:
    for path in ("", "/rj_1", "/rj_1/students"):
        assert "&lt;script&gt;alert(1)" in operator.page(f"/console/rejudges{path}")


def test_the_students_are_shown_with_their_totals_first(
    operator: Operator, rejudging: Rejudging
) -> None:
    assert "/console/rejudges/rj_1/students" in operator.page("/console/rejudges/rj_1")
    page = operator.page("/console/rejudges/rj_1/students")
    figures = page.split("<dl", 1)[1].split("</dl>")[0]
    told = [part.split("<")[0] for part in figures.split("<dd>")[1:]]
    assert told == ["31", "32", "33", "34", "35", "36"]
    assert "crosses 60 down" in page
    assert "loses" in page
    assert ">gains<" not in page
    assert "after=next~1" in page
    page = operator.page("/console/rejudges/rj_1/students?after=next~1")
    assert "<dl" not in page
    assert rejudging.asked == [("totals", "rj_1")]
