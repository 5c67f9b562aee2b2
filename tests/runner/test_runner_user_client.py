"""The submitting client: an unknown outcome is asked about before anything is sent again."""

from __future__ import annotations

import httpx
import pytest

from runner.client import UserClient
from runner.user_client import Accepted, NoAnswer, Refused, Submission, Unknown

LOST = httpx.ReadTimeout("lost")
BUSY = httpx.Response(503)
CREATED = httpx.Response(201, json={})
MISSING = httpx.Response(404, json={"reason": "unknown_submission", "detail": "no such"})
DUPLICATE = httpx.Response(409, json={"reason": "duplicate_submission", "detail": "already"})


def shown(verdict: str = "PENDING") -> httpx.Response:
    body = {
        "submission_id": "sn_1",
        "username": "ann",
        "problem_id": 1,
        "language": 2,
        "status": -1,
        "verdict": verdict,
        "score": None,
    }
    return httpx.Response(200, json=body)


class Script:
    """Answers submits and questions in order, the last one of each repeating."""

    def __init__(self, submits: list, questions: list | None = None) -> None:
        self.queues = {"POST": submits, "GET": questions or [MISSING]}
        self.seen: list[str] = []
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []
        self.client = UserClient(
            "http://service",
            "uk_secret",
            transport=httpx.MockTransport(self.handle),
            sleep=self.slept.append,
        )

    def handle(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        self.seen.append(request.method)
        waiting = self.queues[request.method]
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def submit(self, **more):
        return self.client.submit(
            problem_id=1, language=2, code=b"print(1)", file_name="main.py", **more
        )


def test_a_submit_chooses_its_id():
    script = Script([CREATED])
    first, second = script.submit(), script.submit()
    assert isinstance(first, Accepted)
    assert first.submission_id != second.submission_id
    assert first.submission_id.encode() in script.requests[0].content
    assert script.requests[0].headers["Authorization"] == "Bearer uk_secret"
    assert script.seen == ["POST", "POST"]


@pytest.mark.parametrize("trouble", [LOST, BUSY, httpx.Response(429)])
def test_an_unknown_outcome_that_arrived_is_not_sent_again(trouble):
    script = Script([trouble], [shown()])
    assert script.submit(submission_id="sn_1") == Accepted(submission_id="sn_1")
    assert script.seen == ["POST", "GET"]


def test_an_unknown_outcome_is_sent_again_only_after_a_404():
    script = Script([LOST, CREATED], [BUSY, LOST, MISSING])
    assert script.submit(submission_id="sn_1") == Accepted(submission_id="sn_1")
    assert script.seen == ["POST", "GET", "GET", "GET", "POST"]
    assert script.slept == [1, 2]
    bodies = [request.content for request in script.requests if request.method == "POST"]
    assert all(b"sn_1" in body for body in bodies)


def test_nothing_is_sent_again_while_questions_get_no_answer():
    script = Script([LOST], [BUSY])
    assert script.submit(submission_id="sn_1") == Unknown(submission_id="sn_1")
    assert script.seen.count("POST") == 1
    assert script.slept == [1, 2, 4, 8]


def test_a_409_after_an_unknown_outcome_is_our_own_submit():
    script = Script([LOST, DUPLICATE], [MISSING, shown()])
    assert script.submit(submission_id="sn_1") == Accepted(submission_id="sn_1")


def test_a_409_at_once_is_a_refusal():
    script = Script([DUPLICATE])
    answer = script.submit(submission_id="sn_1")
    assert answer == Refused(
        submission_id="sn_1", status=409, reason="duplicate_submission", detail="already"
    )
    assert script.seen == ["POST"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
def test_refusals(status):
    script = Script([httpx.Response(status, text="<html>")])
    answer = script.submit()
    assert isinstance(answer, Refused)
    assert (answer.status, answer.reason) == (status, "")


def test_submits_are_bounded():
    script = Script([LOST], [MISSING])
    assert isinstance(script.submit(), Unknown)
    assert script.seen.count("POST") == 4


def test_reading():
    script = Script([CREATED], [shown("AC")])
    answer = script.client.submission("sn_1", wait_s=99)
    assert isinstance(answer, Submission)
    assert not answer.is_pending
    assert answer.details["username"] == "ann"
    assert script.requests[0].url.params["wait"] == "30"


def test_an_id_cannot_leave_its_place_in_the_path():
    script = Script([CREATED], [MISSING])
    script.client.submission("../users/x?y")
    assert script.requests[0].url.raw_path == b"/submissions/..%2Fusers%2Fx%3Fy"


def test_waiting_for_a_verdict():
    script = Script([CREATED], [shown(), LOST, shown(), shown("WA")])
    answer = script.client.wait_for_verdict("sn_1")
    assert isinstance(answer, Submission)
    assert answer.verdict == "WA"


def test_waiting_is_bounded():
    script = Script([CREATED], [shown()])
    answer = script.client.wait_for_verdict("sn_1", rounds_max=3)
    assert isinstance(answer, Submission)
    assert answer.is_pending
    assert len(script.seen) == 3


@pytest.mark.parametrize("body", [b"[]", b"null", b"{", b'{"submission_id": 1}'])
def test_an_unreadable_answer_is_none(body):
    script = Script([CREATED], [httpx.Response(200, content=body)])
    assert isinstance(script.client.submission("sn_1"), NoAnswer)
