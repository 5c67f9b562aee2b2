"""Plays a scenario twice: undisturbed, and with the primary cut off under it.

When the service comes to a named command, the primary it asks is cut off from the other members and
gets a phantom (see `cut_off`). What the service reads then, this primary answers. Its next write
waits until another primary has been elected. When all is mended and at peace, both plays must have
come to the same.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from dispatch.invariants import check_database
from mongo import check, engine
from tests.cluster.cut_off import Fault, make_patient
from tests.cluster.replica_set import ReplicaSet
from tests.digest import blob_names, digest
from tests.factories import EPOCH, ManualClock, Runner, Service
from tests.fixtures import build_app

ROUNDS = 6
"""How often what is left is maintained and judged: each round may be the condition of the next."""

_numbers = itertools.count()


@dataclass(kw_only=True)
class Scene:
    """One play of a scenario: the service, its people, and the fault that waits for it."""

    service: Service
    fault: Fault
    runner: Runner
    told: dict[str, Any] = field(default_factory=dict)

    def judged(self, submission_id: str, *tasks: str, username: str = "ada") -> None:
        self.service.submit(username, 1, submission_id)
        self.service.judge(self.runner, submission_id, *tasks)

    def maintain(self, step: str) -> None:
        """Do one step of maintenance as polls do it; what fails is left for the next time."""
        maintenance: Any = self.service.services.maintain
        maintenance._each([getattr(maintenance, step)])

    def advance(self, times: int = 1) -> None:
        """Move bulk rejudges on."""
        maintenance: Any = self.service.services.maintain
        for _ in range(times):
            maintenance.advance_rejudges()

    # -- afterwards ----------------------------------------------------------------------

    def violations(self) -> list[str]:
        """What must not be even while there is still something to do."""
        database = self.service.database
        found = [str(violation) for violation in check_database(database)]
        known = {one["_id"] for one in database["submissions"].find({}, {"_id": 1})}
        stray = [job["_id"] for job in database["jobs"].find() if job["_id"] not in known]
        found += [f"the job of {submission_id} has no submission" for submission_id in stray]
        for rejudge in database["rejudges"].find({"state": {"$in": ["done", "ready"]}}):
            left = {"rejudge": rejudge["_id"], "state": {"$in": ["waiting", "queued"]}}
            if database["rejudge_items"].find_one(left) is not None:
                found.append(f"rejudge {rejudge['filter']} has ended with something left of it")
        due = [one["_id"] for one in database["homeworks"].find({"recompute_due": True})]
        items = [item for item in check.scope() if item.homework_id not in due]
        found += [str(one) for one in check.differences(items, advance=lambda: None)]
        return found

    def settle(self) -> None:
        """Do and judge all that is left. Whatever is judged only now is wrong."""
        for _ in range(ROUNDS):
            self.service.sweep()
            while (payload := self.service.claim(self.runner)) is not None:
                tasks = ("WA",) * len(payload["tasks"])
                self.service.complete(self.runner, payload["job_id"], *tasks)

    def digest(self) -> dict[str, Any]:
        """What counts, rejudges and blobs included."""
        database = self.service.database
        kept: dict[str, Any] = {
            **digest(database),
            "blobs": blob_names(database),
            "rejudges": [
                [one[name] for name in ("mode", "state", "held", "total")]
                for one in database["rejudges"].find().sort("_id", 1)
            ],
        }
        for item in database["rejudge_items"].find().sort("_id", 1):
            fields = ("state", "reason", "after", "decided")
            kept[f"item {item['submission']}"] = [item.get(name) for name in fields]
        return kept


Scenario = Callable[[Scene], None]


@dataclass(kw_only=True)
class Played:
    """What came of a play."""

    answered: list[str]
    at_once: list[str]
    digest: dict[str, Any]
    told: dict[str, Any]


class Stage:
    """Plays scenarios on a replica set; the undisturbed play of each only once."""

    _undisturbed: dict[Scenario, Played] = {}  # noqa: RUF012 - for all tests of this process

    def __init__(self, replica_set: ReplicaSet) -> None:
        make_patient(replica_set)
        self._replica_set = replica_set

    def expect_no_harm(self, scenario: Scenario) -> None:
        """Cut the primary off under a scenario; all must come to what it comes to else."""
        calm, played = self.undisturbed(scenario), self._play(scenario, disturbs=True)
        assert played.answered, "the primary that was cut off answered nothing"
        assert played.at_once == []
        assert (played.told, played.digest) == (calm.told, calm.digest)

    def expect_harm(self, scenario: Scenario) -> None:
        """The same with a rule dropped: the fault is there, and nothing but the rule stops it."""
        calm, played = self.undisturbed(scenario), self._play(scenario, disturbs=True)
        assert played.answered, "the primary that was cut off answered nothing"
        assert played.at_once or (played.told, played.digest) != (calm.told, calm.digest)

    def undisturbed(self, scenario: Scenario) -> Played:
        if scenario not in self._undisturbed:
            self._undisturbed[scenario] = self._play(scenario, disturbs=False)
        return self._undisturbed[scenario]

    def _play(self, scenario: Scenario, *, disturbs: bool) -> Played:
        name = f"cut_off_{os.getpid()}_{next(_numbers)}"
        fault = Fault(self._replica_set, name, disturbs)
        with self._service(name, fault) as service:
            service.user("ada")
            service.user("bob")
            service.problem(1)
            service.homework("hw", [1], ["ada", "bob"])
            scene = Scene(service=service, fault=fault, runner=service.runner())
            scenario(scene)
            fault.complete()
            assert fault.troubles == []
            self._replica_set.await_healthy()
            _until_it_answers(service)
            at_once = scene.violations()
            scene.settle()
            assert fault.before is None, "the service never came to that command"
            return Played(
                answered=fault.answered,
                at_once=at_once,
                digest={**scene.digest(), "violations": scene.violations()},
                told=scene.told,
            )

    @contextmanager
    def _service(self, name: str, fault: Fault) -> Iterator[Service]:
        uri, kept = self._replica_set.uri_for(name), dict(engine.CLIENT_OPTIONS)
        engine.CLIENT_OPTIONS["event_listeners"] = [fault]
        clock = ManualClock(EPOCH)
        try:
            app = build_app(uri, clock, job_retention_days=1)
            maintenance = app.extensions["judge_dispatch"].maintain
            maintenance._next_tidy = datetime.max.replace(tzinfo=UTC)
            with MongoClient(uri, tz_aware=True) as client:
                yield Service(app=app, clock=clock, database=client[name])
        finally:
            engine.CLIENT_OPTIONS.clear()
            engine.CLIENT_OPTIONS.update(kept)
            engine.disconnect()


def _until_it_answers(service: Service, tries: int = 20) -> None:
    """Wait until both clients have let go of connections that the failover has closed."""
    for left in reversed(range(tries)):
        try:
            engine.users().find_one()
            service.database["users"].find_one()
        except PyMongoError:
            if not left:
                raise
        else:
            return
