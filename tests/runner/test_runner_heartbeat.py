"""The beat, and what follows from its answers."""

from __future__ import annotations

import httpx
import pytest

from runner.client import Beat, RunnerClient, Unauthorized, Unavailable
from runner.heartbeat import Heartbeat, next_beat_s
from tests.runner.fake_service import FakeService

INTERVAL_S = 10.0
OK = Beat(lost_job_ids=frozenset())
AWAY = Unavailable(detail="away")


class Scene:
    """A heartbeat in a world where time passes only as told."""

    def __init__(self, *answers, takes_s: float = 0.0) -> None:
        self.answers = list(answers)
        self.takes_s = takes_s
        self.now_s = 1000.0
        self.sent_at: list[float] = []
        self.listed: list[list[str]] = []
        self.timeouts: list[float] = []
        self.lost: list[frozenset[str]] = []
        self.identity_lost = 0
        self.drained = 0
        self.active = ["jb_1"]
        self.languages = [0, 1]
        self.languages_sent: list[list[int] | None] = []

    def heartbeat(self, job_ids, *, languages, timeout_s):
        """Stand in for the client."""
        self.sent_at.append(self.now_s)
        self.listed.append(list(job_ids))
        self.languages_sent.append(languages)
        self.timeouts.append(timeout_s)
        self.now_s += self.takes_s
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _wait(self, seconds: float) -> bool:
        self.now_s += seconds
        return not self.answers

    def _on_identity_lost(self) -> None:
        self.identity_lost += 1

    def _on_drain(self) -> None:
        self.drained += 1

    def run(self) -> Scene:
        Heartbeat(
            client=self,
            interval_s=INTERVAL_S,
            active_job_ids=lambda: self.active,
            on_lost=self.lost.append,
            on_drain=self._on_drain,
            on_identity_lost=self._on_identity_lost,
            languages=lambda: self.languages,
            languages_told=[0, 1],
            clock=lambda: self.now_s,
            wait=self._wait,
        ).run()
        return self


@pytest.mark.parametrize("takes_s", [0.0, 0.1, 9.9])
def test_the_beat_does_not_drift(takes_s):
    scene = Scene(*[OK] * 5, takes_s=takes_s).run()
    assert scene.sent_at == pytest.approx([1000, 1010, 1020, 1030, 1040])


def test_a_missed_beat_is_not_made_up_for():
    scene = Scene(*[OK] * 3, takes_s=25).run()
    assert scene.sent_at == [1000, 1030, 1060]


def test_next_beat_stays_on_the_grid():
    assert next_beat_s(100, 100, 10) == 110
    assert next_beat_s(100, 109.9, 10) == 110
    assert next_beat_s(100, 110, 10) == 120
    assert next_beat_s(100, 145, 10) == 150


def test_a_request_is_over_before_the_next_beat():
    (timeout_s,) = Scene(OK).run().timeouts
    # Connecting, writing, reading and waiting for a free connection are timed one by one.
    assert 4 * timeout_s <= INTERVAL_S


def test_failures_do_not_end_the_beat():
    scene = Scene(AWAY, ValueError("a bug"), OK, AWAY, OK).run()
    assert len(scene.sent_at) == 5
    assert scene.identity_lost == 0


def test_lost_jobs_are_told():
    scene = Scene(OK, Beat(lost_job_ids=frozenset({"jb_1"}))).run()
    assert scene.lost == [frozenset({"jb_1"})]
    assert scene.listed == [["jb_1"], ["jb_1"]]


def test_languages_are_told_when_they_changed_until_that_arrived():
    scene = Scene(OK, AWAY, Unauthorized(), OK, OK)
    real = scene.heartbeat

    def heartbeat(job_ids, **more):
        answer = real(job_ids, **more)
        scene.languages = [1]
        return answer

    scene.heartbeat = heartbeat
    scene.run()
    assert scene.languages_sent == [None, [1], [1], [1], None]


def test_being_asked_to_drain_is_told_once_and_the_beat_goes_on():
    ask = Beat(lost_job_ids=frozenset(), drain=True)
    scene = Scene(OK, ask, ask, OK).run()
    assert scene.drained == 1
    assert len(scene.sent_at) == 4


@pytest.mark.parametrize(
    ("answers", "times"),
    [
        ([Unauthorized()], 0),
        ([Unauthorized(), OK, Unauthorized()], 0),
        ([Unauthorized(), AWAY, Unauthorized()], 0),
        ([Unauthorized(), Unauthorized()], 1),
        ([OK, Unauthorized(), Unauthorized(), Unauthorized()], 1),
    ],
)
def test_two_unauthorized_in_a_row_end_the_identity(answers, times):
    assert Scene(*answers).run().identity_lost == times


def test_the_thread_beats_and_stops():
    service = FakeService()
    client = RunnerClient("http://service", transport=httpx.MockTransport(service.handle))
    client.register("t", "n")
    heartbeat = Heartbeat(
        client=client,
        interval_s=0.02,
        active_job_ids=lambda: ["jb_1"],
        on_lost=lambda lost: None,
        on_drain=lambda: None,
        on_identity_lost=lambda: None,
    )
    heartbeat.start()
    service.wait_for("heartbeat", 3)
    heartbeat.stop()
    assert not heartbeat._thread.is_alive()
