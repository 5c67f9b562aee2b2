"""The typed client of the runner API: every answer, every retry rule."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest

from runner.client import (
    AbortReason,
    Beat,
    CaseReport,
    Delivery,
    Downloaded,
    DownloadFailed,
    JobOffer,
    NoJob,
    NotModified,
    Registered,
    RegistrationRefused,
    RunnerClient,
    Unauthorized,
    Unavailable,
    UnreadableOffer,
)
from runner.identity import Former
from runner.wire import Verdict, tasks_to_wire

TOKEN = "rk_very-secret"
CONFIG = {"heartbeat_interval_sec": 15, "poll_interval_sec": 3, "max_concurrent_jobs": 8}
IDENTITY = {"runner_id": "rn_1", "token": TOKEN, "config": CONFIG}
OFFER = {
    "job_id": "jb_1",
    "submission_id": "sn_1",
    "problem_id": 1,
    "language": 0,
    "code_url": "https://files/code?s=signature",
    "checker": "default",
    "tasks": [{"taskScore": 100, "memoryLimit": 1024, "timeLimit": 1000, "caseCount": 1}],
    "attempt": 1,
    "lease_token": "lt_secret",
    "testdata_url": "https://files/data?s=signature",
    "testdata_sha256": "A" * 64,
}
RESULT = [
    [
        CaseReport(
            status=Verdict.AC, exit_code=0, stdout="o", stderr="e", exec_time_ms=5, memory_kib=6
        )
    ]
]

Answer = httpx.Response | Exception


class Script:
    """Answers requests in order; the last answer repeats."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/register") and "scripted" not in request.headers:
            return httpx.Response(201, json=IDENTITY)
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, registered: bool = True) -> RunnerClient:
        client = RunnerClient(
            "http://service", transport=httpx.MockTransport(self.handle), sleep=self.slept.append
        )
        if registered:
            assert isinstance(client.register("t", "n"), Registered)
        return client

    def bodies(self) -> list[dict]:
        return [json.loads(request.content) for request in self.requests]


def registering(answer: Answer) -> RunnerClient:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return RunnerClient("http://service", transport=httpx.MockTransport(handle))


LOST = [httpx.ReadTimeout("lost"), httpx.ConnectError("away"), httpx.RemoteProtocolError("cut")]
BAD_GATEWAY = httpx.Response(502, text="<html>")


# --- register ---------------------------------------------------------------------------------


def test_register():
    bodies = []

    def handle(request):
        bodies.append(json.loads(request.content))
        return httpx.Response(201, json=IDENTITY)

    client = RunnerClient("http://service", transport=httpx.MockTransport(handle))
    registered = client.register("secret", "name", languages=[0, 2])
    assert bodies == [{"registration_token": "secret", "name": "name", "languages": [0, 2]}]
    assert isinstance(registered, Registered)
    assert registered.config.heartbeat_interval_s == 15
    assert registered.config.poll_interval_s == 3
    assert registered.config.max_concurrent_jobs == 8
    assert TOKEN not in repr(registered)


def test_register_as_the_successor_of_a_crashed_runner():
    bodies = []

    def handle(request):
        bodies.append(json.loads(request.content))
        return httpx.Response(201, json=IDENTITY)

    client = RunnerClient("http://service", transport=httpx.MockTransport(handle))
    former = Former(runner_id="rn_0", token="rk_old-secret")
    client.register("secret", "name", replaces=former)
    assert bodies[0]["replaces"] == {"runner_id": "rn_0", "token": "rk_old-secret"}
    assert "rk_old-secret" not in repr(former)


def test_heartbeat_with_other_languages():
    script = Script(httpx.Response(204))
    script.client().heartbeat([], languages=[1])
    script.client().heartbeat([], languages=[])
    assert [body["languages"] for body in script.bodies()] == [[1], []]


def test_a_case_says_how_often_it_ran_only_if_more_than_once():
    (((once,),), ((twice,),)) = (
        tasks_to_wire([[replace(RESULT[0][0], runs=runs)]]) for runs in (1, 2)
    )
    assert "runs" not in once
    assert twice["runs"] == 2


@pytest.mark.parametrize("status", [400, 401, 403])
def test_register_refused(status):
    answer = registering(httpx.Response(status)).register("t", "n")
    assert isinstance(answer, RegistrationRefused)


def test_register_with_an_unreadable_answer():
    broken = httpx.Response(201, json={**IDENTITY, "config": {}})
    answer = registering(broken).register("t", "n")
    assert isinstance(answer, RegistrationRefused)
    assert TOKEN not in answer.detail


@pytest.mark.parametrize("answer", [*LOST, BAD_GATEWAY, httpx.Response(429)])
def test_register_unavailable(answer):
    assert isinstance(registering(answer).register("t", "n"), Unavailable)


def test_nothing_goes_out_before_registration():
    with pytest.raises(RuntimeError):
        Script(httpx.Response(204)).client(registered=False).next_job()


# --- heartbeat --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (httpx.Response(204), Beat(lost_job_ids=frozenset())),
        (
            httpx.Response(200, json={"lost_job_ids": ["jb_2"]}),
            Beat(lost_job_ids=frozenset({"jb_2"})),
        ),
        (httpx.Response(401), Unauthorized()),
        (httpx.Response(500), Unavailable(detail="answered 500")),
        (httpx.ReadTimeout("x"), Unavailable(detail="ReadTimeout")),
    ],
)
def test_heartbeat(answer, outcome):
    script = Script(answer)
    assert script.client().heartbeat(["jb_1", "jb_2"]) == outcome
    assert script.bodies() == [
        {"active_job_ids": ["jb_1", "jb_2"], "report_lost": True, "report_drain": True}
    ]
    assert script.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert script.requests[0].url.path == "/runners/rn_1/heartbeat"


# --- next-job ---------------------------------------------------------------------------------


def test_next_job():
    script = Script(httpx.Response(200, json=OFFER))
    offer = script.client().next_job(wait_s=7)
    assert isinstance(offer, JobOffer)
    assert offer.tasks[0].memory_limit_kib == 1024
    assert offer.testdata_sha256 == "a" * 64
    assert script.requests[0].url.params["wait"] == "7"
    assert "signature" not in repr(offer)
    assert "lt_secret" not in repr(offer)


@pytest.mark.parametrize("lost", [*LOST, BAD_GATEWAY, httpx.Response(200, text='{"job_id": "jb')])
def test_a_wish_without_an_answer_is_repeated_under_the_same_claim_id(lost):
    script = Script(lost, httpx.Response(200, json=OFFER), httpx.Response(204))
    client = script.client()
    assert isinstance(client.next_job(), Unavailable)
    assert isinstance(client.next_job(), JobOffer)
    assert isinstance(client.next_job(), NoJob)
    first, again, fresh = (request.url.params["claim_id"] for request in script.requests)
    assert first == again
    assert fresh != first


def test_every_answered_wish_has_its_own_claim_id():
    script = Script(httpx.Response(204))
    client = script.client()
    for _ in range(3):
        client.next_job()
    assert len({request.url.params["claim_id"] for request in script.requests}) == 3


def test_next_job_unauthorized():
    assert isinstance(Script(httpx.Response(401)).client().next_job(), Unauthorized)


@pytest.mark.parametrize(
    "fault",
    [
        {"testdata_sha256": "../../etc/passwd"},
        {"testdata_sha256": "a" * 64 + "\n"},
        {"tasks": [{"taskScore": 1, "memoryLimit": 0, "timeLimit": 1, "caseCount": 1}]},
        {"tasks": None},
        {"language": "C"},
    ],
)
def test_an_offer_that_cannot_be_read_can_still_be_given_back(fault):
    offer = Script(httpx.Response(200, json={**OFFER, **fault})).client().next_job()
    assert isinstance(offer, UnreadableOffer)
    assert (offer.job_id, offer.lease_token) == ("jb_1", "lt_secret")
    assert next(iter(fault)) in offer.detail
    assert "signature" not in offer.detail + repr(offer)
    assert "lt_secret" not in repr(offer)


# --- complete and abort -----------------------------------------------------------------------

Deliver = Callable[[RunnerClient], Delivery]
COMPLETE: Deliver = lambda client: client.complete("jb_1", RESULT, lease_token="lt")  # noqa: E731
ABORT: Deliver = lambda client: client.abort(  # noqa: E731
    "jb_1", AbortReason.DRAIN, lease_token="lt"
)
BOTH = pytest.mark.parametrize("deliver", [COMPLETE, ABORT], ids=["complete", "abort"])


def test_what_complete_sends():
    script = Script(httpx.Response(204))
    assert COMPLETE(script.client()) is Delivery.ACCEPTED
    assert script.requests[0].method == "PUT"
    assert script.requests[0].url.path == "/runners/rn_1/jobs/jb_1/complete"
    case = {
        "exitCode": 0,
        "status": "AC",
        "stdout": "o",
        "stderr": "e",
        "execTime": 5,
        "memoryUsage": 6,
        "outputTruncated": False,
    }
    assert script.bodies() == [{"tasks": [[case]], "lease_token": "lt"}]


def test_what_abort_sends():
    script = Script(httpx.Response(202))
    client = script.client()
    assert ABORT(client) is Delivery.ACCEPTED
    assert client.abort("jb_2", AbortReason.PREP_FAILED, lease_token=None) is Delivery.ACCEPTED
    assert script.bodies() == [
        {"reason": "drain", "lease_token": "lt"},
        {"reason": "prep_failed"},
    ]
    assert script.requests[0].url.path == "/runners/rn_1/jobs/jb_1/abort"


@BOTH
@pytest.mark.parametrize(
    ("status", "outcome"), [(409, Delivery.LEASE_LOST), (404, Delivery.UNKNOWN_JOB)]
)
def test_final_refusals_are_not_resent(deliver, status, outcome):
    script = Script(httpx.Response(status))
    assert deliver(script.client()) is outcome
    assert len(script.requests) == 1
    assert script.slept == []


def test_400_is_final_for_complete():
    script = Script(httpx.Response(400))
    assert COMPLETE(script.client()) is Delivery.INVALID
    assert len(script.requests) == 1


def test_400_is_resent_for_abort():
    script = Script(httpx.Response(400), httpx.Response(202))
    assert ABORT(script.client()) is Delivery.ACCEPTED
    assert script.slept == [1]


@BOTH
@pytest.mark.parametrize(
    "trouble", [*LOST, *(httpx.Response(code) for code in (302, 401, 408, 413, 429, 500, 503))]
)
def test_anything_else_is_resent(deliver, trouble):
    script = Script(trouble, trouble, httpx.Response(204))
    assert deliver(script.client()) is Delivery.ACCEPTED
    assert script.slept == [1, 2]
    assert len({request.content for request in script.requests}) == 1


@BOTH
def test_it_gives_up_after_the_last_delay(deliver):
    script = Script(httpx.Response(503))
    assert deliver(script.client()) is Delivery.GAVE_UP
    assert script.slept == [1, 2, 4, 8, 16]
    assert len(script.requests) == 6


@pytest.mark.parametrize(
    ("header", "slept"),
    [("3", 3), ("0", 1), ("16", 16), ("17", 1), ("-1", 1), ("soon", 1), ("nan", 1), ("inf", 1)],
)
def test_retry_after_may_lengthen_a_wait_within_the_schedule(header, slept):
    busy = httpx.Response(503, headers={"Retry-After": header})
    script = Script(busy, httpx.Response(204))
    assert COMPLETE(script.client()) is Delivery.ACCEPTED
    assert script.slept == [slept]


def test_retry_after_does_not_shorten_the_schedule():
    busy = httpx.Response(503, headers={"Retry-After": "1"})
    script = Script(busy, busy, busy, httpx.Response(204))
    assert COMPLETE(script.client()) is Delivery.ACCEPTED
    assert script.slept == [1, 2, 4]


# --- downloads --------------------------------------------------------------------------------

URL = "https://files/x?s=signature"


def test_download():
    script = Script(httpx.Response(200, content=b"data", headers={"ETag": '"abc"'}))
    sink = io.BytesIO()
    assert script.client().download(URL, sink, bytes_max=4) == Downloaded(etag="abc")
    assert sink.getvalue() == b"data"
    assert "Authorization" not in script.requests[0].headers


def test_download_not_modified():
    script = Script(httpx.Response(304))
    result = script.client().download(URL, io.BytesIO(), bytes_max=4, etag="abc")
    assert isinstance(result, NotModified)
    assert script.requests[0].headers["If-None-Match"] == '"abc"'


def test_an_unasked_304_is_a_failure():
    result = Script(httpx.Response(304)).client().download(URL, io.BytesIO(), bytes_max=4)
    assert isinstance(result, DownloadFailed)


def test_download_over_the_bound():
    script = Script(httpx.Response(200, content=b"12345"))
    result = script.client().download(URL, io.BytesIO(), bytes_max=4)
    assert isinstance(result, DownloadFailed)
    assert len(script.requests) == 1


@pytest.mark.parametrize("trouble", [*LOST, httpx.Response(500), httpx.Response(429)])
def test_download_tries_again_and_starts_over(trouble):
    script = Script(trouble, httpx.Response(200, content=b"data"))
    sink = io.BytesIO(b"rubbish of an earlier try")
    assert isinstance(script.client().download(URL, sink, bytes_max=99), Downloaded)
    assert sink.getvalue() == b"data"
    assert script.slept == [1]


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_download_refused(status):
    script = Script(httpx.Response(status))
    result = script.client().download(URL, io.BytesIO(), bytes_max=4)
    assert isinstance(result, DownloadFailed)
    assert len(script.requests) == 1
    assert "signature" not in repr(result)


def test_download_gives_up():
    script = Script(httpx.Response(500))
    result = script.client().download(URL, io.BytesIO(), bytes_max=4)
    assert isinstance(result, DownloadFailed)
    assert script.slept == [1, 2]
