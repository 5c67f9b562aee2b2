"""Jobs from lease to report, several at once, lost, drained and failed, with real programs."""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from runner.client import RunnerClient
from runner.faults import MachineFaultError
from runner.health import PAUSE_S_MAX, PAUSE_S_MIN, Health
from runner.isolation import Slot
from runner.jobrun import CannotPrepareError, JobControl, JobRunner, Stop
from runner.loop import Finish, Loop
from runner.process import JobStoppedError
from runner.testdata import TestDataCache
from tests.runner.fake_service import FakeService
from tests.runner.support import sha256

RIGHT = b"print(int(input()) + 1)"
CASE = (b"1\n", b"2\n")
SLEEP = b"import time\ntime.sleep(60)"


@dataclass
class Clock:
    """The time of pauses after failures; it stands until it is set."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Scene:
    """One runner at work for a fake service, in threads of this process."""

    service: FakeService
    loop: Loop
    clock: Clock
    slept: list[float]
    unsound: list[tuple[int, str]]
    finish: list[Finish] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=lambda: self.finish.append(self.loop.run()))
        thread.start()
        try:
            yield
        finally:
            self.loop.drain()
            thread.join(60)
        assert not thread.is_alive()

    def reported(self, count: int = 1) -> dict[str, list[list[str]]]:
        """Wait for results; return the verdicts of each job."""
        return {
            body["job_id"]: [[case["status"] for case in cases] for cases in body["tasks"]]
            for body in self.service.wait_for("complete", count)
        }


@pytest.fixture
def scene(bench, slot, tmp_path, monkeypatch) -> Scene:
    service = FakeService()
    slept: list[float] = []
    client = RunnerClient(
        "http://service", transport=httpx.MockTransport(service.handle), sleep=slept.append
    )
    client.register("t", "n")
    cache = TestDataCache(tmp_path / "cache")
    clock = Clock()
    health = Health(clock)
    unsound: list[tuple[int, str]] = []
    jobs = JobRunner(
        client=client,
        executor=bench.executor,
        cache=cache,
        health=health,
        on_unsound=lambda language, reason: unsound.append((language, reason)),
    )
    slots = [slot, Slot(index=1, uid=None if slot.uid is None else slot.uid + 1)]
    monkeypatch.setattr("runner.loop.SLOT_WAIT_S", 0.02)
    loop = Loop(client=client, jobs=jobs, slots=slots, health=health, poll_interval_s=0.02)
    return Scene(service=service, loop=loop, clock=clock, slept=slept, unsound=unsound)


def test_jobs_are_judged_and_reported(scene):
    scene.service.add_job("jb_1", RIGHT, CASE, (b"5\n", b"7\n"))
    scene.service.add_job("jb_2", b"int main(void){return 0;}", (b"", b""), language=0)
    scene.service.add_job("jb_3", b"oops", (b"", b""), language=1)
    with scene.running():
        verdicts = scene.reported(3)
    assert verdicts == {"jb_1": [["AC", "WA"]], "jb_2": [["AC"]], "jb_3": [["CE"]]}
    tokens = {body["job_id"]: body["lease_token"] for body in scene.service.got("complete")}
    assert tokens == {job: f"lt_of_{job}" for job in ("jb_1", "jb_2", "jb_3")}
    assert scene.loop.active_job_ids() == []
    assert scene.finish == [Finish.DRAINED]


def test_test_data_is_fetched_once_per_hash(scene):
    for number in range(3):
        scene.service.add_job(f"jb_{number}", RIGHT, CASE)
    with scene.running():
        scene.reported(3)
    fetched = [path for path in scene.service.got("download") if path.endswith("/data")]
    assert len(fetched) == 1


def test_no_more_jobs_are_claimed_than_there_are_slots(scene):
    for number in range(4):
        scene.service.add_job(f"jb_{number}", SLEEP, time_ms=60_000)
    with scene.running():
        scene.service.wait_for("next-job", 2)
        _until(lambda: len(scene.loop.active_job_ids()) == 2)
        polls = len(scene.service.got("next-job"))
        _until_started(scene, 2)
        assert len(scene.service.got("next-job")) == polls == 2
        assert len(scene.service.offers) == 2
        scene.loop.lose(frozenset(scene.loop.active_job_ids()))
        scene.loop.drain()
        scene.loop.lose(frozenset(scene.loop.active_job_ids()))


def test_a_lost_job_is_stopped_and_not_reported(scene):
    scene.service.add_job("jb_lost", SLEEP, time_ms=60_000)
    with scene.running():
        _until_started(scene, 1)
        scene.loop.lose(frozenset({"jb_lost", "jb_never_held"}))
        _until(lambda: scene.loop.active_job_ids() == [])
        scene.service.add_job("jb_next", RIGHT, CASE)
        assert scene.reported() == {"jb_next": [["AC"]]}
    assert scene.service.got("abort") == []


def test_a_drain_gives_back_what_has_not_started_and_finishes_the_rest(scene, monkeypatch):
    fetching, drained = threading.Event(), threading.Event()
    real = JobRunner._fetch_source

    def held(self, offer, toolchain):
        if offer.job_id == "jb_unstarted":
            fetching.set()
            drained.wait(30)
        return real(self, offer, toolchain)

    monkeypatch.setattr(JobRunner, "_fetch_source", held)
    scene.service.add_job("jb_started", b"import time\ntime.sleep(0.5)\nprint(2)", CASE)
    scene.service.add_job("jb_unstarted", RIGHT, CASE)
    scene.service.add_job("jb_left_alone", RIGHT, CASE)
    with scene.running():
        fetching.wait(30)
        _until_started(scene, 1)
        scene.loop.drain()
        assert set(scene.loop.active_job_ids()) == {"jb_started", "jb_unstarted"}
        drained.set()
    assert scene.reported() == {"jb_started": [["AC"]]}
    (abort,) = scene.service.got("abort")
    assert (abort["job_id"], abort["reason"]) == ("jb_unstarted", "drain")
    assert abort["lease_token"] == "lt_of_jb_unstarted"
    assert [offer["job_id"] for offer in scene.service.offers] == ["jb_left_alone"]
    assert scene.finish == [Finish.DRAINED]


def test_a_drain_spares_a_started_job_and_nothing_else_does():
    control = JobControl()
    control.start_judging()
    control.stop(Stop.DRAIN)
    assert not control.should_stop()
    control.stop(Stop.LOST)
    control.stop(Stop.IDENTITY_LOST)
    assert control.stopped_for is Stop.LOST


@pytest.mark.parametrize("reason", Stop)
def test_a_stopped_job_does_not_start(reason):
    control = JobControl()
    control.stop(reason)
    with pytest.raises(JobStoppedError):
        control.start_judging()
    assert control.stopped_for is reason


def test_a_job_that_arrives_while_draining_goes_back(scene):
    scene.service.add_job("jb_late", RIGHT, CASE)
    real = scene.service.handle

    def handle(request):
        if request.url.path.endswith("/next-job"):
            scene.loop.drain()
        return real(request)

    scene.loop._client._http._transport = httpx.MockTransport(handle)
    with scene.running():
        (abort,) = scene.service.wait_for("abort")
    assert (abort["job_id"], abort["reason"]) == ("jb_late", "drain")
    assert scene.service.got("complete") == []


def test_a_lost_identity_stops_everything_and_reports_nothing(scene):
    scene.service.add_job("jb_1", SLEEP, time_ms=60_000)
    with scene.running():
        _until_started(scene, 1)
        scene.loop.lose_identity()
    assert scene.finish == [Finish.IDENTITY_LOST]
    assert scene.service.got("complete") + scene.service.got("abort") == []


@pytest.mark.parametrize(
    ("fault", "reason", "at_fault"),
    [
        ({"language": 7}, "rejected", None),
        ({"checker": "a custom one"}, "rejected", None),
        ({"tasks": "none"}, "rejected", None),
        ({"code_url": "/files/nowhere"}, "prep_failed", None),
        ({"testdata_url": "/files/nowhere"}, "prep_failed", None),
        ({"testdata_sha256": sha256(b"other data")}, "prep_failed", "problem"),
        (
            {"tasks": [{"taskScore": 1, "memoryLimit": 1, "timeLimit": 1, "caseCount": 2}]},
            "prep_failed",
            "problem",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else str(value),
)
def test_a_job_that_cannot_be_judged_goes_back(scene, fault, reason, at_fault):
    # Its program does not even compile: nobody should get to know.
    scene.service.add_job("jb_1", b"(", CASE, **fault)
    with scene.running():
        (abort,) = scene.service.wait_for("abort")
    assert (abort["job_id"], abort["reason"]) == ("jb_1", reason)
    assert abort.get("at_fault") == at_fault
    assert bool(abort.get("detail")) == (reason == "prep_failed")
    assert abort["lease_token"] == "lt_of_jb_1"
    assert scene.service.got("complete") == []


def test_a_code_zip_that_is_not_one_file_named_right_goes_back(scene):
    scene.service.add_job("jb_1", RIGHT, CASE)
    scene.service.blobs["/files/jb_1/code"] = scene.service.blobs["/files/jb_1/data"]
    with scene.running():
        (abort,) = scene.service.wait_for("abort")
    assert (abort["reason"], abort["at_fault"]) == ("prep_failed", "submission")


def test_a_failure_of_the_runner_itself_gives_the_job_back(scene, monkeypatch, logged):
    def broken(*args):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("runner.jobrun.judge_cases", broken)
    scene.service.add_job("jb_1", RIGHT, CASE)
    with scene.running():
        (abort,) = scene.service.wait_for("abort")
    assert (abort["reason"], abort["at_fault"]) == ("prep_failed", "machine")
    printed = logged()
    assert "ZeroDivisionError" in printed


def _claims(scene: Scene) -> int:
    """How many jobs were handed out."""
    return sum(len(scene.service.got(verb)) for verb in ("complete", "abort"))


def _one_more_claim(scene: Scene, pause_s: float) -> None:
    """No job is claimed until the pause is over, and then one."""
    before, left = _claims(scene), len(scene.service.offers)
    scene.clock.now_s += pause_s - 1
    threading.Event().wait(0.2)
    assert len(scene.service.offers) == left
    scene.clock.now_s += 1
    _until(lambda: _claims(scene) == before + 1)
    _until(lambda: scene.loop.active_job_ids() == [])
    threading.Event().wait(0.1)
    assert len(scene.service.offers) == left - 1


def test_a_runner_that_fails_does_not_burn_the_queue(scene, monkeypatch, logged):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    failing = True
    real = TestDataCache.open

    def open_testdata(*args):
        if failing:
            raise full
        return real(*args)

    monkeypatch.setattr(TestDataCache, "open", open_testdata)
    for number in range(10):
        scene.service.add_job(f"jb_{number}", RIGHT, CASE)
    with scene.running():
        _until(lambda: not scene.loop._health.well)
        _until(lambda: scene.loop.active_job_ids() == [])
        # Both slots may have taken one before either failed; they count as one failure.
        threading.Event().wait(0.1)
        assert len(scene.service.offers) >= 8
        _one_more_claim(scene, 3)
        _one_more_claim(scene, 6)
        _one_more_claim(scene, 12)
        failing = False
        scene.clock.now_s += 24
        # Well again: the rest needs no further time.
        _until(lambda: _claims(scene) == 10)
    assert len(scene.service.got("complete")) >= 5
    assert {abort["reason"] for abort in scene.service.got("abort")} == {"prep_failed"}
    told = logged()
    assert "runner_unwell" in told
    assert "No space left on device" in told


@pytest.mark.parametrize("fault", [{"code_url": "/files/nowhere"}, {"testdata_url": "/nowhere"}])
def test_what_cannot_be_had_makes_a_runner_pause(scene, fault):
    scene.service.add_job("jb_1", RIGHT, CASE, **fault)
    with scene.running():
        scene.service.wait_for("abort")
        assert not scene.loop._health.well


@pytest.mark.parametrize("unsound", [True, False])
def test_a_machines_fault_gives_the_job_back_and_makes_the_runner_pause(
    scene, monkeypatch, logged, unsound
):
    def faulty(*args):
        raise MachineFaultError("the disk is full", unsound=unsound)

    monkeypatch.setattr("runner.jobrun.judge_cases", faulty)
    scene.service.add_job("jb_1", RIGHT, CASE)
    with scene.running():
        (abort,) = scene.service.wait_for("abort")
        assert not scene.loop._health.well
    assert abort["reason"] == "prep_failed"
    assert scene.service.got("complete") == []
    assert scene.unsound == [(2, "the disk is full")] * unsound
    assert "the disk is full" in logged()


@pytest.mark.parametrize("fault", [{"language": 7}, {"checker": "a custom one"}])
def test_what_is_rejected_is_no_failure_of_the_runner(scene, fault):
    scene.service.add_job("jb_1", RIGHT, CASE, **fault)
    with scene.running():
        scene.service.wait_for("abort")
        assert scene.loop._health.well


def test_a_drain_waits_for_no_pause(scene):
    scene.loop._health.failed("a full disk", begun_at_s=0)
    with scene.running():
        pass
    assert scene.finish == [Finish.DRAINED]


def test_pauses_double_up_to_their_bound_and_end_with_a_job_judged():
    clock = Clock()
    health = Health(clock)
    pauses = []
    for _ in range(7):
        health.failed("x", begun_at_s=clock.now_s)
        pauses.append(health.pause_left_s())
        clock.now_s += pauses[-1]
        assert health.pause_left_s() == 0
    assert pauses == [PAUSE_S_MIN, 6, 12, 24, 48, PAUSE_S_MAX, PAUSE_S_MAX]
    health.judged()
    assert health.well
    health.failed("x", begun_at_s=clock.now_s)
    assert health.pause_left_s() == PAUSE_S_MIN


def test_jobs_that_fail_together_are_one_failure():
    clock = Clock()
    health = Health(clock)
    begun_at_s = clock.now_s
    for _ in range(8):
        clock.now_s += 1
        health.failed("x", begun_at_s=begun_at_s)
    assert health.pause_left_s() == PAUSE_S_MIN


def test_a_result_that_the_service_calls_invalid_goes_back(scene):
    scene.service.answers["complete"] = _answers(400)
    scene.service.add_job("jb_1", RIGHT, CASE)
    with scene.running():
        (abort,) = scene.service.wait_for("abort")
    assert abort["reason"] == "rejected"
    assert len(scene.service.got("complete")) == 1


@pytest.mark.parametrize("status", [404, 409])
def test_a_result_that_is_not_taken_is_dropped(scene, status):
    scene.service.answers["complete"] = _answers(status)
    scene.service.add_job("jb_1", RIGHT, CASE)
    scene.service.add_job("jb_2", RIGHT, CASE)
    with scene.running():
        scene.service.wait_for("complete", 2)
    assert scene.service.got("abort") == []


def test_a_result_is_resent_until_it_lands(scene):
    scene.service.answers["complete"] = _answers(503, 503)
    scene.service.add_job("jb_1", RIGHT, CASE)
    with scene.running():
        first, second, third = scene.service.wait_for("complete", 3)
    assert first == second == third
    assert scene.slept == [1, 2]


def test_polling_goes_on_through_trouble(scene):
    scene.service.answers["next-job"] = _answers(503, 401, 500)
    scene.service.add_job("jb_1", RIGHT, CASE)
    with scene.running():
        assert scene.reported() == {"jb_1": [["AC"]]}


def test_the_same_job_again_replaces_its_earlier_lease(scene):
    """This runner's own orphan comes back to it while the old work still runs."""
    scene.service.add_job("jb_1", SLEEP, time_ms=60_000)
    with scene.running():
        _until_started(scene, 1)
        scene.service.add_job("jb_1", RIGHT, CASE, lease_token="lt_second")
        (result,) = scene.service.wait_for("complete")
    assert result["lease_token"] == "lt_second"
    assert [[case["status"] for case in cases] for cases in result["tasks"]] == [["AC"]]


def test_told_to_end_at_once_it_kills_and_gives_back(scene, logged):
    scene.service.add_job("jb_1", SLEEP, time_ms=60_000)
    with scene.running():
        _until_started(scene, 1)
        scene.loop.drain()
        scene.loop.end_at_once()
    (abort,) = scene.service.got("abort")
    assert (abort["job_id"], abort["reason"]) == ("jb_1", "drain")
    assert scene.finish == [Finish.AT_ONCE]
    assert "jobs_left_behind" not in logged()


def test_told_to_end_at_once_it_gives_back_what_hangs_in_a_download(scene, monkeypatch):
    fetching, over = threading.Event(), threading.Event()

    def hang(self, offer, toolchain):
        fetching.set()
        over.wait(30)
        raise CannotPrepareError("too late")

    monkeypatch.setattr(JobRunner, "_fetch_source", hang)
    monkeypatch.setattr("runner.loop.GIVE_BACK_S_MAX", 0.05)
    scene.service.add_job("jb_1", RIGHT, CASE)
    with scene.running():
        fetching.wait(30)
        scene.loop.end_at_once()
        (abort,) = scene.service.wait_for("abort")
    over.set()
    assert abort["reason"] == "drain"
    assert scene.finish == [Finish.AT_ONCE]


@dataclass
class Proofs:
    """Which languages are proven, as a test says."""

    languages: list[int] = field(default_factory=list)
    looks: int = 0

    def prove_due(self, slot, should_stop) -> None:
        self.looks += 1

    def offered(self) -> list[int]:
        return self.languages


def test_a_runner_without_a_language_is_idle_until_it_has_one(scene):
    proofs = Proofs()
    scene.loop._soundness = proofs
    scene.service.add_job("jb_1", RIGHT, CASE)
    with scene.running():
        _until(lambda: proofs.looks > 3)
        assert scene.service.got("next-job") == []
        proofs.languages = [2]
        assert scene.reported() == {"jb_1": [["AC"]]}


def test_a_job_in_a_withdrawn_language_goes_back(scene):
    """The service may have handed it out before it knew."""
    scene.loop._jobs._why_not = lambda language: "gcc is gone" if language == 2 else None
    scene.service.add_job("jb_1", RIGHT, CASE)
    with scene.running():
        (abort,) = scene.service.wait_for("abort")
    assert abort["reason"] == "prep_failed"
    assert scene.service.got("complete") == []


def _answers(*statuses: int) -> deque[int]:
    return deque(statuses)


def _until(condition, timeout_s: float = 30) -> None:
    """Wait for something that happens in another thread and tells nobody."""
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen")


def _until_started(scene: Scene, count: int) -> None:
    """Wait until so many jobs passed the point from which they finish in a drain."""
    _until(lambda: sum(active.control._judging for active in tuple(scene.loop._active)) == count)
