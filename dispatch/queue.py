"""The queue's parts and numbers in one value, handed to every verb of `job`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo import IndexModel
from pymongo.collection import Collection
from pymongo.database import Database

from dispatch.check_store import CheckStore
from dispatch.contract import KnownProgram, Language
from dispatch.control import ControlStore
from dispatch.lease import LeaseRules
from dispatch.records import Job
from dispatch.runner import Runner, RunnerStore
from dispatch.store import JobStore
from dispatch.tried import Tried
from dispatch.unreadable import Unreadable

FAILURES_KEPT_S = 7 * 24 * 3600
FAILURES_INDEXES = [
    # Forgets what was last noted of a problem long ago.
    IndexModel([("at", 1)], name="old", expireAfterSeconds=FAILURES_KEPT_S),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """Where jobs, runners and the pause live, and the rules they follow.

    `problem_failures`: what `dispatch.held_problems` knows of each problem. `known_programs`: what
    runners are checked with; none: they are not. `tried`: what this process's claims know of one
    another.
    """

    jobs: JobStore
    runners: RunnerStore
    control: ControlStore
    rules: LeaseRules
    languages: tuple[int, ...]
    problem_failures: Collection[dict[str, Any]]
    checks: CheckStore
    known_programs: tuple[KnownProgram, ...] = ()
    tried: Tried = field(default_factory=Tried)

    def create_indexes(self) -> None:
        """Create what is missing. Safe to repeat."""
        self.jobs.create_indexes()
        self.runners.create_indexes()
        self.checks.create_indexes()
        self.problem_failures.create_indexes(FAILURES_INDEXES)

    def recheck_unreadable(self) -> None:
        """Look at the documents that could not be read: some may have been mended."""
        self.jobs.unreadable.recheck({"jobs": Job.from_document, "runners": Runner.from_document})


def open_queue(
    database: Database[dict[str, Any]],
    *,
    rules: LeaseRules,
    alive_s: float = 60,
    languages: tuple[int, ...] = tuple(Language),
    known_programs: Sequence[KnownProgram] = (),
) -> Queue:
    """Return the queue kept in `database` (its client must be `tz_aware`).

    `alive_s`: for how long after it was seen a runner counts as alive, for people and
    preferences. `known_programs`: what runners are checked with; none: they are not.
    """
    unreadable = Unreadable(database)
    runners = RunnerStore(database, unreadable, alive_s=alive_s)
    return Queue(
        jobs=JobStore(database, rules, unreadable),
        runners=runners,
        checks=CheckStore(database, runners),
        known_programs=tuple(known_programs),
        control=ControlStore(database),
        problem_failures=database.get_collection("problem_failures"),
        rules=rules,
        languages=tuple(int(language) for language in languages),
    )
