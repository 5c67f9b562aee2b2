"""Runner identities: registered, recognised, revoked, forgotten.

Guarantees: only the SHA-256 of a token is kept; tokens are compared in constant time; a revoked
runner is refused from the next call on; an identity unseen for seven days does not count, whether
or not the database's TTL monitor has come by.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pymongo import IndexModel, ReturnDocument
from pymongo.database import Database
from ulid import ULID

from dispatch.concerns import DURABLE, LOCAL, SOFT
from dispatch.health import FAILURES, TROUBLES_KEPT, Kind, Settled, Trouble
from dispatch.probation import CheckState
from dispatch.records import check_fields
from dispatch.unreadable import Unreadable, UnreadableDocument

TOKEN_PREFIX = "rk_"  # noqa: S105 - what tokens start with, not a token
UNSEEN_MAX = timedelta(days=7)
TOUCHES_A_LIFE = 2
"""How often a poll notes that its runner was seen, within the time that it counts as alive: a
runner that also sends heartbeats is noted by those, and its polls stay reads."""

_NEEDED: dict[str, type] = {"_id": str, "name": str, "last_seen": datetime}
_KNOWN: dict[str, type] = {
    **_NEEDED,
    **dict.fromkeys(("registered_at", "judged_at"), datetime),
    **dict.fromkeys(("languages", "troubles"), list),
    **dict.fromkeys(("set_aside", "drain", "checks"), Mapping),
}

INDEXES = [
    # Forgets identities that are not seen any more.
    IndexModel(
        [("last_seen", 1)], name="unseen", expireAfterSeconds=int(UNSEEN_MAX.total_seconds())
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class SetAside:
    """Since when, and why, a runner gets no jobs until an admin reinstates it."""

    at: datetime
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Drain:
    """Since when a runner has been asked to drain, and by whom."""

    at: datetime
    by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Runner:
    """A registered runner. `languages` None: every language."""

    runner_id: str
    name: str
    languages: tuple[int, ...] | None
    registered_at: datetime
    last_seen: datetime
    set_aside: SetAside | None = None
    drain: Drain | None = None
    troubles: tuple[Trouble, ...] = ()
    """Jobs that came to nothing in its hands, the oldest first."""
    judged_at: datetime | None = None
    """When it last judged a job, noted from its first trouble on."""
    checks: CheckState = field(default_factory=CheckState)
    """What checks have said of it."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Runner:
        """Read a runner.

        Raises:
            UnreadableDocument: a field is missing, or not what any version writes.
        """
        check_fields(document, _NEEDED, _KNOWN)
        languages = document.get("languages")
        set_aside, drain = document.get("set_aside"), document.get("drain")
        try:
            return cls(
                runner_id=document["_id"],
                name=document["name"],
                languages=None if languages is None else tuple(map(int, languages)),
                registered_at=document.get("registered_at") or document["last_seen"],
                last_seen=document["last_seen"],
                set_aside=None if set_aside is None else SetAside(**set_aside),
                drain=None if drain is None else Drain(**drain),
                troubles=tuple(_troubles(document.get("troubles") or [])),
                judged_at=document.get("judged_at"),
                checks=CheckState.from_document(document.get("checks")),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise UnreadableDocument(f"{type(error).__name__}: {error}") from None

    def judges(self, language: int) -> bool:
        """Tell whether it takes jobs in that language."""
        return self.languages is None or language in self.languages

    @property
    def gets_nothing(self) -> bool:
        """Whether it is given no jobs until it is reinstated."""
        return self.set_aside is not None or self.drain is not None


class RunnerStore:
    """The `runners` collection."""

    def __init__(
        self,
        database: Database[dict[str, Any]],
        unreadable: Unreadable | None = None,
        *,
        alive_s: float = 60,
    ) -> None:
        runners = database.get_collection("runners")
        self._runners = runners.with_options(write_concern=DURABLE)
        # Losing a `last_seen` in a failover costs nothing, waiting for a majority on every beat
        # would. Reads are of the newest state: a runner that was registered or revoked a moment
        # ago is recognised or refused at once, and what was noted of it decides about nothing but
        # whom a job is offered to first.
        self._soft = runners.with_options(write_concern=SOFT, read_concern=LOCAL)
        self._alive = timedelta(seconds=alive_s)
        self._unreadable = unreadable or Unreadable(database)

    def create_indexes(self) -> None:
        """Create what is missing. Safe to repeat."""
        self._runners.create_indexes(INDEXES)

    def register(
        self, *, name: str, languages: tuple[int, ...] | None, now: datetime
    ) -> tuple[Runner, str]:
        """Register a runner; return it and its token, which is not kept and cannot be had again."""
        runner_id = f"rn_{ULID()}"
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        self._runners.insert_one(
            {
                "_id": runner_id,
                "name": name,
                "languages": None if languages is None else list(languages),
                "token_sha256": _digest(token),
                "registered_at": now,
                "last_seen": now,
            }
        )
        return (
            Runner(
                runner_id=runner_id,
                name=name,
                languages=languages,
                registered_at=now,
                last_seen=now,
            ),
            token,
        )

    def verify(self, runner_id: str, token: str, *, now: datetime) -> Runner | None:
        """Return the runner that `token` belongs to, or None: wrong, revoked or forgotten."""
        document = self._soft.find_one({"_id": runner_id})
        kept = document.get("token_sha256") if document else ""
        if (
            not isinstance(kept, str)
            or not hmac.compare_digest(kept, _digest(token))
            or document is None
        ):
            return None
        last_seen = document.get("last_seen")
        if document.get("revoked_at") is not None or not _is_kept(last_seen, now):
            return None
        if last_seen is None or last_seen <= now - self._alive / TOUCHES_A_LIFE:
            self._soft.update_one({"_id": runner_id}, {"$max": {"last_seen": now}})
        return self.read({**document, "last_seen": last_seen or now})

    def greet(self, runner_id: str, token: str, *, now: datetime) -> Runner | None:
        """Do as `verify`, and note that the runner was seen, in one request."""
        document = self._soft.find_one_and_update(
            {
                "_id": runner_id,
                # Of tokens only digests are compared: how long that takes tells nothing of one.
                "token_sha256": _digest(token),
                "revoked_at": None,
                "last_seen": {"$not": {"$lte": now - UNSEEN_MAX}},
            },
            {"$max": {"last_seen": now}},
            return_document=ReturnDocument.AFTER,
        )
        return None if document is None else self.read(document)

    def revoke(self, runner_id: str, *, now: datetime) -> bool:
        """Refuse the runner's token from now on; its leases end by themselves. Tell if known."""
        return (
            self._runners.update_one(
                {"_id": runner_id, "revoked_at": None}, {"$set": {"revoked_at": now}}
            ).matched_count
            == 1
        )

    def is_revoked(self, runner_id: str) -> bool:
        """Tell whether the runner is revoked or unknown."""
        return self._soft.find_one({"_id": runner_id, "revoked_at": None}, {"_id": 1}) is None

    def get(self, runner_id: str) -> Runner | None:
        """Return the runner as it stands; None: revoked or unknown."""
        document = self._soft.find_one({"_id": runner_id, "revoked_at": None})
        return None if document is None else self.read(document)

    def offer(self, runner: Runner, languages: Sequence[int]) -> None:
        """Give the runner jobs in these languages from now on, and in no others.

        Those that it did not offer before are on probation, and so is one that comes back later.
        """
        offered = sorted(set(languages))
        update: dict[str, Any] = {"$set": {"languages": offered}}
        changed = [
            language
            for language in runner.checks.proven
            if language not in offered or not runner.judges(language)
        ]
        if changed:
            update["$unset"] = {f"checks.proven.{language}": "" for language in changed}
        self._change(runner.runner_id, update)

    def ask_to_drain(self, runner_id: str, *, by: str, now: datetime) -> bool:
        """Give the runner no more jobs, and tell it so when it asks. Tell if it is known."""
        asked = {"drain": {"at": now, "by": by}}
        return self._change(runner_id, {"$set": asked})

    def reinstate(self, runner_id: str, *, now: datetime) -> bool:
        """Give it jobs again, whyever it had none; its failures are forgotten. Tell if known.

        It is on probation: what it had proven is forgotten, too.
        """
        forgotten = ("drain", "set_aside", "troubles")
        proofs = ("proven", "told_apart", "open", "pauses", "ce_rows")
        names = (*forgotten, *(f"checks.{name}" for name in proofs))
        known = self._change(runner_id, {"$unset": dict.fromkeys(names, "")})
        # What it judges from now on is no longer doubtful for that reason.
        self._runners.update_one(
            {"_id": runner_id, "checks.doubt": {"$type": "object"}, "checks.doubt.until": None},
            {"$set": {"checks.doubt.until": now}},
        )
        return known

    def _change(self, runner_id: str, update: dict[str, Any]) -> bool:
        changed = self._runners.update_one({"_id": runner_id, "revoked_at": None}, update)
        return changed.matched_count == 1

    def set_aside(self, runner_id: str, *, why: str, now: datetime) -> bool:
        """Give it no more jobs until it is reinstated. Tell whether this was news."""
        changed = self._runners.update_one(
            {"_id": runner_id, "set_aside": None}, {"$set": {"set_aside": {"at": now, "why": why}}}
        )
        return changed.modified_count == 1

    def note_trouble(self, runner_id: str, *, kind: Kind, job_id: str, now: datetime) -> None:
        """Note a job that came to nothing in the runner's hands."""
        trouble = {"at": now, "job_id": job_id, "kind": kind.value}
        self._soft.update_one(
            {"_id": runner_id},
            {"$push": {"troubles": {"$each": [trouble], "$slice": -TROUBLES_KEPT}}},
        )

    def judged(self, runner_id: str, *, now: datetime) -> None:
        """Note that the runner judged a job."""
        self._soft.update_one({"_id": runner_id}, {"$max": {"judged_at": now}})

    def settle(self, runner_id: str, job_id: str, settled: Settled) -> Runner | None:
        """Note whose fault the runner's failures at that job were; None: none was open."""
        runner = None
        open_ = {
            "job_id": job_id,
            "kind": {"$in": sorted(FAILURES)},
            "settled": None,
        }
        for _ in range(TROUBLES_KEPT):
            document = self._soft.find_one_and_update(
                {"_id": runner_id, "troubles": {"$elemMatch": open_}},
                {"$set": {"troubles.$.settled": settled.value}},
                return_document=ReturnDocument.AFTER,
            )
            if document is None:
                break
            runner = self.read(document)
        return runner

    def list(self, *, now: datetime) -> list[Runner]:
        """Return the runners in force, the longest registered first."""
        found = self._soft.find({"revoked_at": None, "last_seen": {"$gt": now - UNSEEN_MAX}}).sort(
            "_id", 1
        )
        return list(self._read_all(found))

    def read(self, document: Mapping[str, Any]) -> Runner | None:
        """Read a runner's document; None: it cannot be read."""
        try:
            return Runner.from_document(document)
        except UnreadableDocument as error:
            self._unreadable.met(self._runners.name, document.get("_id"), str(error))
            return None

    def _read_all(self, documents: Iterable[Mapping[str, Any]]) -> Iterator[Runner]:
        return (runner for runner in map(self.read, documents) if runner is not None)

    def is_alive(self, runner: Runner, *, now: datetime) -> bool:
        """Tell whether it was seen lately. For people and preferences; leases never ask."""
        return runner.last_seen > now - self._alive

    def others_alive(self, but: Sequence[str], language: int, *, now: datetime) -> Iterator[Runner]:
        """Yield the runners not in `but` that may get jobs in `language` and were seen lately."""
        found = self._soft.find(
            {
                "_id": {"$nin": list(but)},
                "revoked_at": None,
                "set_aside": None,
                "drain": None,
                "last_seen": {"$gt": now - self._alive},
                "$or": [{"languages": None}, {"languages": language}],
            }
        )
        return self._read_all(found)


def _is_kept(last_seen: Any, now: datetime) -> bool:
    """Tell whether an identity counts; one whose document does not say was kept until now."""
    return last_seen is None or (isinstance(last_seen, datetime) and last_seen > now - UNSEEN_MAX)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8")).hexdigest()


def _troubles(documents: list[Any]) -> Iterator[Trouble]:
    """Read what is noted of a runner. What cannot be read speaks neither for nor against it."""
    for document in documents:
        with suppress(LookupError, TypeError, ValueError, AttributeError):
            yield Trouble.from_document(document)
