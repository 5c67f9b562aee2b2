"""The page of the check: what the last one found, with links, and its buttons."""

from __future__ import annotations

from typing import Any

from tests.console.support import Operator
from tests.factories import Service

HOSTILE = "<script>alert(1)</script>"


def go_on(service: Service) -> None:
    maintain: Any = service.services.maintain
    while maintain.advance():
        pass


def amiss(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    service.homework("hw", [1], ["ada"])
    service.submit("ada", 1, "s1")
    service.judge(service.runner(), "s1", "AC")
    service.database["submissions"].update_one({"_id": "s1"}, {"$set": {"status": -1}})


def test_a_check_is_started_watched_and_shows_what_is_amiss(
    service: Service, operator: Operator
) -> None:
    amiss(service)
    assert "Nothing has been checked here yet." in operator.page("/console/check")
    answer = operator.post("/console/check")
    assert answer.status_code == 303
    page = operator.page(answer.headers["Location"])
    assert "The check has begun" in page
    assert "looks at jobs" in page
    go_on(service)
    page = operator.page("/console/check")
    assert "amiss" in page
    assert "pending, and its job is done (verdict): no verdict" in page
    assert 'href="/console/submissions/s1"' in page
    assert "What a repair does" in page
    assert "by <bdi>console, key " in page
    assert service.view_job("s1")["state"] == "done"


def test_a_repair_puts_right_what_it_finds(service: Service, operator: Operator) -> None:
    amiss(service)
    answer = operator.post("/console/check/repair")
    assert "puts right what it finds" in operator.page(answer.headers["Location"])
    go_on(service)
    page = operator.page("/console/check")
    assert "What was done" in page
    assert service.view_job("s1")["state"] == "pending"
    operator.post("/console/check")
    go_on(service)
    assert "nothing is amiss" in operator.page("/console/check")


def test_there_is_one_check_at_a_time(service: Service, operator: Operator) -> None:
    operator.post("/console/check")
    assert operator.post("/console/check/repair").status_code == 409


def test_a_check_needs_the_forms_token(service: Service, operator: Operator) -> None:
    for path in ("/console/check", "/console/check/repair"):
        assert operator.post(path, token="wrong").status_code == 403
    assert service.services.judge.last_check() is None


def test_what_others_wrote_is_shown_as_text(service: Service, operator: Operator) -> None:
    kinds = ("job", "submission", "rejudge", "homework", "standing", "counters", "else")
    findings = [
        {"invariant": "I8", "kind": kind, "subject": f"{HOSTILE}/x", "what": HOSTILE, "remedy": "-"}
        for kind in kinds
    ]
    operator.post("/console/check")
    service.database["checks"].update_one({}, {"$set": {"findings": findings, "found": 900}})
    page = operator.page("/console/check")
    assert HOSTILE not in page
    assert page.count("&lt;script&gt;") >= len(kinds)
    assert f"The first {len(kinds)} of 900 are shown." in page
