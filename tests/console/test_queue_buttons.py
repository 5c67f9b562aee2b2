"""Moving a submission to the front, and taking its rejudge back, at the console."""

from __future__ import annotations

import pytest

from console import words
from dispatch import states
from tests.console.support import Operator
from tests.factories import Runner, Service


@pytest.fixture
def runner(service: Service) -> Runner:
    service.user("ada")
    service.problem(1)
    return service.runner()


def line(service: Service, *names: str) -> None:
    for name in names:
        service.submit("ada", 1, name)
        service.clock.advance(1)


@pytest.mark.parametrize("page", ["/console/queue", "/console/submissions/sn_2"])
def test_moved_to_the_front_it_is_judged_next(
    service: Service, operator: Operator, runner: Runner, page: str
) -> None:
    line(service, "sn_0", "sn_1", "sn_2")
    assert '/console/submissions/sn_2/front"' in operator.page(page)
    back = {"back": "queue"} if page.endswith("queue") else {}
    answer = operator.post("/console/submissions/sn_2/front", **back)
    assert answer.headers["Location"] == f"{page}?did=front"
    assert "the next to be judged" in operator.page(answer.headers["Location"])
    assert "Moved to the front" in operator.page("/console/submissions/sn_2")
    service.judge(runner, "sn_2", "AC")


def test_what_does_not_wait_cannot_be_moved(
    service: Service, operator: Operator, runner: Runner
) -> None:
    line(service, "sn_0")
    service.claim(runner)
    service.clock.advance(60)
    for page in ("/console/queue", "/console/submissions/sn_0"):
        assert "sn_0/front" not in operator.page(page)
    assert operator.post("/console/submissions/sn_0/front").status_code == 409
    assert operator.post("/console/submissions/none/front").status_code == 404


def test_a_rejudge_is_taken_back_while_it_has_not_landed(
    service: Service, operator: Operator, runner: Runner
) -> None:
    line(service, "sn_0")
    page = "/console/submissions/sn_0"
    assert f"{page}/cancel" not in operator.page(page)
    assert operator.post(f"{page}/cancel").status_code == 409
    service.judge(runner, "sn_0", "AC")
    assert f"{page}/cancel" not in operator.page(page)
    operator.post(f"{page}/rejudge")
    assert f'{page}/cancel"' in operator.page(page)
    service.claim(runner)
    assert f'{page}/cancel"' in operator.page(page)
    answer = operator.post(f"{page}/cancel")
    assert "taken back" in operator.page(answer.headers["Location"])
    assert service.view("sn_0")["verdict"] == "AC"
    assert f"{page}/cancel" not in operator.page(page)
    assert "Rejudge taken back" in operator.page(page)
    assert operator.post(f"{page}/cancel").status_code == 409


@pytest.mark.parametrize("verb", ["front", "cancel"])
def test_without_the_forms_token_nothing_happens(
    service: Service, operator: Operator, runner: Runner, verb: str
) -> None:
    line(service, "sn_0")
    service.judge(runner, "sn_0", "AC")
    operator.post("/console/submissions/sn_0/rejudge")
    before = service.view_job("sn_0")
    assert operator.post(f"/console/submissions/sn_0/{verb}", token="no").status_code >= 400
    assert service.view_job("sn_0") == before


def test_every_edge_has_words() -> None:
    events = {edge.event for edge in vars(states).values() if isinstance(edge, states.Edge)}
    assert events <= words.EVENT_WORDS.keys()


def test_the_throughput_is_shown(service: Service, operator: Operator, runner: Runner) -> None:
    line(service, "sn_0")
    service.judge(runner, "sn_0", "AC")
    assert '<strong>1.0</strong> <span class="quiet">(last 1 min)' in operator.page(
        "/console/queue"
    )
