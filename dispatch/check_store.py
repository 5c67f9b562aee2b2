"""What is stored of checks: their state on the runner's document, and a record of each.

Guarantees: the runner's document decides. A check is handed out, answered and judged by one
conditional write there each, so that a check has one owner and one answer, and a runner at most one
check a language, whoever asks at the same time. Records (`runner_checks`) are books: for lists,
times and late words. They are forgotten after a week.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from pymongo import DESCENDING, IndexModel, ReturnDocument
from pymongo.database import Database

from dispatch.concerns import DURABLE, LOCAL, SOFT
from dispatch.contract import KnownProgram, Verdict
from dispatch.probation import Doubt, Due, OpenCheck, Pause
from dispatch.runner import Runner, RunnerStore

Document = dict[str, Any]

ENDED_KEPT = 8
"""How many ended checks a runner's document remembers, so that a repeat is told the same."""
RECORDS_KEPT = timedelta(days=7)
FLEET_TIMES_MAX = 200
"""How many times of a program are looked at to find one of each other runner."""

INDEXES = [
    # Forgets checks that nobody asks about any more.
    IndexModel([("at", 1)], name="old", expireAfterSeconds=int(RECORDS_KEPT.total_seconds())),
    # What the fleet took for a program lately.
    IndexModel([("program_id", 1), ("passed", 1), ("at", DESCENDING)], name="times"),
    # A runner's checks, the newest first.
    IndexModel([("runner_id", 1), ("at", DESCENDING)], name="by_runner"),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckRecord:
    """One check, for people. `answer` is a verdict, or how else it ended; None: it has not."""

    job_id: str
    runner_id: str
    program_id: str
    language: int
    at: datetime
    follow_up: bool = False
    answer: str | None = None
    passed: bool | None = None
    exec_time_ms: int | None = None
    spent_ms: int | None = None


class CheckStore:
    """The checks' part of the `runners` collection, and the `runner_checks` collection."""

    def __init__(self, database: Database[Document], runners: RunnerStore) -> None:
        self._runners = database.get_collection("runners").with_options(write_concern=DURABLE)
        # A record that a failover takes back is a line less in a list.
        self._records = database.get_collection("runner_checks").with_options(
            write_concern=SOFT, read_concern=LOCAL
        )
        self._read = runners.read

    def create_indexes(self) -> None:
        """Create what is missing. Safe to repeat."""
        self._records.create_indexes(INDEXES)

    # -- the runner's document -----------------------------------------------------------

    def give(
        self,
        runner: Runner,
        due: Due,
        check: OpenCheck,
        *,
        languages: Sequence[int],
        next_at: datetime | None,
    ) -> Runner | None:
        """Hand `check` to the runner, if it is still due; None: it is not, or it gets nothing.

        `languages`: all that it may hold a check in. `next_at`: before when no follow-up is due;
        None: as it was.
        """
        place = f"checks.open.{check.language}"
        guard: Document = {place: None}
        set_: Document = {place: asdict(check)}
        update: Document = {"$set": set_}
        if due.follow_up:
            guard["checks.turn"] = runner.checks.turn or {"$in": [0, None]}
            update["$inc"] = {"checks.turn": 1}
        elif due.program.expected is Verdict.AC:
            guard[f"checks.proven.{check.language}"] = None
        else:
            guard["checks.told_apart"] = None
        if next_at is not None:
            set_["checks.next_at"] = next_at
        if check.claim_id is not None:
            # The same wish, sent twice at once, is granted once.
            guard |= {
                f"checks.open.{language}.claim_id": {"$ne": check.claim_id}
                for language in languages
                if language != check.language
            }
        return self._change(
            {
                "_id": runner.runner_id,
                "revoked_at": None,
                "set_aside": None,
                "drain": None,
                **guard,
            },
            update,
        )

    def renew(self, runner_id: str, check: OpenCheck, *, until: datetime, now: datetime) -> bool:
        """Put off the check's deadline while it has not passed; tell whether it is still held."""
        return (
            self._change(
                _held(runner_id, check, now),
                {"$set": {f"checks.open.{check.language}.deadline": until}},
            )
            is not None
        )

    def passed(
        self,
        runner_id: str,
        check: OpenCheck,
        program: KnownProgram,
        *,
        doubted: bool,
        now: datetime,
    ) -> Runner | None:
        """Note that the runner judged the check right; None: it does not hold it any more.

        `doubted`: something else about its answer puts the language on probation all the same.
        """
        language = check.language
        set_: Document = {f"checks.passed.{language}": now}
        unset = [f"checks.pauses.{language}"]
        if program.expected is Verdict.AC:
            set_[f"checks.proven.{language}"] = now
            unset.append(f"checks.ce_rows.{language}")
        if program.expected is Verdict.WA:
            set_["checks.told_apart"] = True
        if doubted:
            set_.pop(f"checks.proven.{language}", None)
            unset.append(f"checks.proven.{language}")
        return self._end(_held(runner_id, check, now), check, "complete", set_, unset)

    def failed(
        self, runner_id: str, check: OpenCheck, doubt: Doubt, *, why: str, now: datetime
    ) -> tuple[Runner | None, bool]:
        """Note that the runner judged the check wrong: it is set aside, and has proven nothing.

        Returns the runner (None: it does not hold the check any more), and whether that it is set
        aside is news.
        """
        set_: Document = {"checks.doubt": _given(asdict(doubt))}
        unset = ["checks.proven", "checks.told_apart"]
        held = _held(runner_id, check, now)
        aside = {**set_, "set_aside": {"at": now, "why": why}}
        runner = self._end({**held, "set_aside": None}, check, "complete", aside, unset)
        if runner is not None:
            return runner, True
        return self._end(held, check, "complete", set_, unset), False

    def ended(
        self,
        runner_id: str,
        check: OpenCheck,
        *,
        how: str,
        pause: Pause | None,
    ) -> Runner | None:
        """Note that the check came to nothing; None: the runner does not hold it any more.

        `pause`: before when its language, which is on probation from now on, is not checked again.
        """
        language = check.language
        set_: Document = {}
        unset: list[str] = []
        if pause is not None:
            set_[f"checks.pauses.{language}"] = asdict(pause)
            unset.append(f"checks.proven.{language}")
        held = {"_id": runner_id, f"checks.open.{language}.job_id": check.job_id}
        return self._end(held, check, how, set_, unset)

    def _end(
        self, held: Document, check: OpenCheck, how: str, set_: Document, unset: Sequence[str]
    ) -> Runner | None:
        ended = {"job_id": check.job_id, "how": how}
        update: Document = {
            "$unset": dict.fromkeys([f"checks.open.{check.language}", *unset], ""),
            "$push": {"checks.ended": {"$each": [ended], "$slice": -ENDED_KEPT}},
        }
        if set_:
            update["$set"] = set_
        return self._change(held, update)

    def doubt_language(self, runner_id: str, language: int, *, tell_apart: bool) -> bool:
        """Put the language on probation; tell whether it was not.

        `tell_apart`: the runner has to tell a wrong program from a right one again, too.
        """
        unset = [f"checks.proven.{language}", *(["checks.told_apart"] if tell_apart else [])]
        known = {"_id": runner_id, f"checks.proven.{language}": {"$type": "date"}}
        return self._change(known, {"$unset": dict.fromkeys(unset, "")}) is not None

    def compile_error(self, runner_id: str, language: int) -> int:
        """Count one more compile error in a row; return how many there are."""
        runner = self._change(
            {"_id": runner_id}, {"$inc": {f"checks.ce_rows.{language}": 1}}, durable=False
        )
        return 0 if runner is None else runner.checks.ce_rows.get(language, 0)

    def compiled(self, runner_id: str, language: int) -> None:
        """Note that something compiled: the compile errors before are no row any more."""
        self._change(
            {"_id": runner_id}, {"$unset": {f"checks.ce_rows.{language}": ""}}, durable=False
        )

    def _change(
        self, filter_: Document, update: Document, *, durable: bool = True
    ) -> Runner | None:
        runners = self._runners if durable else self._runners.with_options(write_concern=SOFT)
        document = runners.find_one_and_update(
            filter_, update, return_document=ReturnDocument.AFTER
        )
        return None if document is None else self._read(document)

    # -- the records ---------------------------------------------------------------------

    def record(self, record: CheckRecord) -> None:
        """Keep what is known of a check that was handed out."""
        fields = asdict(record)
        job_id = fields.pop("job_id")
        self._records.update_one({"_id": job_id}, {"$set": _given(fields)}, upsert=True)

    def complete_record(
        self,
        job_id: str,
        *,
        runner_id: str,
        program_id: str,
        language: int,
        at: datetime,
        answer: str,
        passed: bool | None,
        exec_time_ms: int | None,
        spent_ms: int,
    ) -> None:
        """Add to a record how the check ended. The rest of it is given, too: it may be missing."""
        known = {"runner_id": runner_id, "program_id": program_id, "language": language, "at": at}
        ended = {
            "answer": answer,
            "passed": passed,
            "exec_time_ms": exec_time_ms,
            "spent_ms": spent_ms,
        }
        self._records.update_one({"_id": job_id}, {"$set": _given({**known, **ended})}, upsert=True)

    def recorded(self, job_id: str) -> CheckRecord | None:
        """Return the record of a check; None: there has been none lately."""
        document = self._records.find_one({"_id": job_id})
        return None if document is None else _record(document)

    def of_runner(self, runner_id: str, limit: int) -> list[CheckRecord]:
        """Return a runner's latest checks, the newest first."""
        found = self._records.find({"runner_id": runner_id}).sort("at", DESCENDING).limit(limit)
        return [_record(document) for document in found]

    def times_of_others(self, program_id: str, runner_id: str) -> list[int]:
        """Return the latest time of each other runner that passed with that program, in ms."""
        found = self._records.find(
            {"program_id": program_id, "passed": True}, {"runner_id": 1, "exec_time_ms": 1}
        )
        times: dict[str, int] = {}
        for document in found.sort("at", DESCENDING).limit(FLEET_TIMES_MAX):
            times.setdefault(document["runner_id"], int(document.get("exec_time_ms", -1)))
        times.pop(runner_id, None)
        return list(times.values())

    def spent_since(self, since: datetime) -> dict[str, int]:
        """Return runner id to the milliseconds that checks handed out after `since` took."""
        found = self._records.aggregate(
            [
                {"$match": {"at": {"$gt": since}}},
                {"$group": {"_id": "$runner_id", "spent_ms": {"$sum": "$spent_ms"}}},
            ]
        )
        return {group["_id"]: int(group["spent_ms"]) for group in found}


def _held(runner_id: str, check: OpenCheck, now: datetime) -> Document:
    place = f"checks.open.{check.language}"
    return {"_id": runner_id, f"{place}.job_id": check.job_id, f"{place}.deadline": {"$gt": now}}


def _given(fields: Mapping[str, Any]) -> Document:
    return {name: value for name, value in fields.items() if value is not None}


def _record(document: Mapping[str, Any]) -> CheckRecord:
    fields = {name: value for name, value in document.items() if name != "_id"}
    return CheckRecord(job_id=document["_id"], **fields)
