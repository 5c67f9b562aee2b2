"""Every recovery is one structured log event and one count in the metrics, under one name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pymongo.errors import AutoReconnect

from app import Preparation
from dispatch import job as verbs
from mongo import storage
from tests.factories import Runner, Service, results


class Scene:
    """A service with one submission and two runners."""

    def __init__(self, service: Service) -> None:
        self.service = service
        service.user("ada")
        service.problem(1)
        service.submit("ada", 1, "s1")
        self.one, self.two = service.runner("one"), service.runner("two")

    def claim(self, runner: Runner | None = None, wish: str = "") -> Any:
        runner = runner or self.one
        path = runner.path(f"next-job?claim_id={wish}" if wish else "next-job")
        return self.service.ok("GET", path, key=runner.token)

    def judge(self) -> None:
        self.service.judge(self.one, "s1", "AC")

    def change_job(self, **changed: Any) -> None:
        self.service.database["jobs"].update_one({"_id": "s1"}, {"$set": changed})


def reclaim(scene: Scene) -> None:
    scene.claim()
    scene.service.clock.advance(40)
    assert scene.claim(scene.two)["attempt"] == 2


def claim_repeated(scene: Scene) -> None:
    assert scene.claim(wish="w")["job_id"] == scene.claim(wish="w")["job_id"]


def complete_repeated(scene: Scene) -> None:
    job_id = scene.claim()["job_id"]
    for _ in range(2):
        assert scene.service.complete(scene.one, job_id, "AC").status_code == 204


def complete_dropped(scene: Scene) -> None:
    job_id = scene.claim()["job_id"]
    assert scene.service.complete(scene.two, job_id, "AC").status_code == 409


def abort_repeated(scene: Scene) -> None:
    path = scene.one.path(f"jobs/{scene.claim()['job_id']}/abort")
    for _ in range(2):
        scene.service.ok("PUT", path, key=scene.one.token, json={"reason": "drain"})


def complete_restore(scene: Scene) -> None:
    def fails(**landing: Any) -> Any:
        raise AutoReconnect("gone")

    job_id = scene.claim()["job_id"]
    with pytest.raises(AutoReconnect):
        verbs.complete_job(
            scene.service.services.queue,
            scene.one.runner_id,
            job_id,
            results("AC"),
            process_result=fails,
            now=scene.service.clock,
        )


def exhaust_ends(scene: Scene) -> None:
    for _ in range(3):
        assert scene.claim() is not None
        scene.service.clock.advance(60)
    scene.service.sweep()
    assert scene.service.view("s1")["verdict"] == "JE"


def mark_repaired(scene: Scene) -> None:
    scene.judge()
    queue = scene.service.services.queue
    # The job's half of a rejudge, whose process then died.
    left = verbs.rejudge_job(
        queue,
        submission_id="s1",
        problem_id=1,
        language=2,
        submission_fence=0,
        now=scene.service.clock,
    )
    assert left is not None
    scene.service.sweep()
    assert scene.service.view("s1")["verdict"] == "PENDING"


def result_repaired(scene: Scene) -> None:
    scene.judge()
    scene.change_job(restore_due=scene.service.view_job("s1")["fence"])
    scene.service.sweep()


def missing_jobs_enqueued(scene: Scene) -> None:
    scene.service.database["jobs"].delete_many({})
    scene.service.sweep()


def homeworks_finished(scene: Scene) -> None:
    scene.service.homework("hw", [1], ["ada"])
    scene.service.database["homeworks"].update_one({}, {"$set": {"recompute_due": True}})
    scene.service.sweep()


def blobs_dropped(scene: Scene) -> None:
    storage.put(b"left by a crash", name="code/nobody")
    # Stored by the server's own clock.
    scene.service.database["blobs.files"].update_many(
        {"filename": "code/nobody"},
        {"$set": {"uploadDate": scene.service.clock() - timedelta(days=1)}},
    )
    scene.service.sweep()


def database_error(scene: Scene) -> None:
    client = scene.service.database.client
    fail: dict[str, Any] = {"configureFailPoint": "failCommand"}
    data = {"failCommands": ["findAndModify"], "errorCode": 14031}
    job_id = scene.claim()["job_id"]
    client.admin.command({**fail, "mode": "alwaysOn", "data": data})
    try:
        answer = scene.service.complete(scene.one, job_id, "AC", may_fail=True)
    finally:
        client.admin.command({**fail, "mode": "off"})
    assert answer.status_code == 503


RECOVERIES: list[Callable[[Scene], None]] = [
    reclaim,
    claim_repeated,
    complete_repeated,
    complete_dropped,
    abort_repeated,
    complete_restore,
    exhaust_ends,
    mark_repaired,
    result_repaired,
    missing_jobs_enqueued,
    homeworks_finished,
    blobs_dropped,
    database_error,
]


def counted(service: Service, event: str) -> float:
    name = f'dispatch_events_total{{event="{event}"}} '
    lines = service.client.get("/metrics").text.splitlines()
    return float(next((line.removeprefix(name) for line in lines if line.startswith(name)), 0))


@pytest.mark.parametrize("recovery", RECOVERIES, ids=lambda recovery: recovery.__name__)
def test_a_recovery_is_one_event_and_one_count(
    service: Service, caplog: pytest.LogCaptureFixture, recovery: Callable[[Scene], None]
) -> None:
    scene = Scene(service)
    event = recovery.__name__
    before = counted(service, event)
    caplog.clear()
    with caplog.at_level("INFO"):
        recovery(scene)
    assert counted(service, event) == before + 1
    logged = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert sum(line.get("event") == event for line in logged) == 1


def test_a_database_that_comes_after_the_start_is_said(service: Service) -> None:
    away = [AutoReconnect("not yet")]

    def prepare() -> None:
        if away:
            raise away.pop()

    before = counted(service, "database_back")
    preparation = Preparation(prepare)
    preparation.at_start()
    assert counted(service, "database_back") == before
    preparation.ensure()
    preparation.ensure()
    assert counted(service, "database_back") == before + 1


def test_a_sweep_that_finds_nothing_says_nothing(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    Scene(service).judge()
    service.sweep()
    caplog.clear()
    with caplog.at_level("INFO"):
        service.sweep()
    assert [record.msg for record in caplog.records] == []
