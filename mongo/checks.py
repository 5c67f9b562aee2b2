"""A check of the whole database in the background, started at the console.

Guarantees: there is one at a time, whatever the number of processes. Every step may be repeated and
may stop anywhere: whoever calls `advance` next goes on from what is stored. A short lease on the
document keeps processes out of each other's way; nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import structlog
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError
from ulid import ULID

from mongo import engine, inspection
from mongo.inspection import InspectedQueue, Inspector

log = structlog.get_logger("mongo")

Document = dict[str, Any]

THE_CHECK = "latest"
FINDINGS_MAX = 200
"""How many findings are kept to be shown; all are counted."""
WORK_LEASE = timedelta(seconds=30)


def checks() -> Collection[Document]:
    """Return the raw collection: it holds the latest check."""
    return (
        engine.submissions()
        .database["checks"]
        .with_options(write_concern=engine.submissions().write_concern)
    )


def start(*, repair: bool, by: str, now: datetime) -> bool:
    """Start a check, unless one runs; tell whether it was. `repair`: put right what it finds."""
    fresh = {
        "run": f"ck_{ULID()}",
        "running": True,
        "repair": repair,
        "by": by,
        "started_at": now,
        "ended_at": None,
        "stage": inspection.STAGES[0],
        "after": "",
        "looked_at": dict.fromkeys(inspection.STAGES, 0),
        "found": 0,
        "findings": [],
        "work_until": now,
    }
    try:
        checks().update_one({"_id": THE_CHECK, "running": False}, {"$set": fresh}, upsert=True)
    except DuplicateKeyError:
        return False
    return True


def view() -> Document | None:
    """Return the latest check, or None: there has been none."""
    return checks().find_one({"_id": THE_CHECK})


def advance(*, queue: InspectedQueue, now: Callable[[], datetime]) -> bool:
    """Do the next step of a check that runs; tell whether there is more to do at once.

    A step that fails is logged, and tried again by a later call.
    """
    at = now()
    running = checks().find_one_and_update(
        {"_id": THE_CHECK, "running": True, "work_until": {"$lte": at}},
        {"$set": {"work_until": at + WORK_LEASE}},
    )
    if running is None:
        return False
    try:
        _step(running, Inspector(queue=queue, now=now, repair=running["repair"]), now)
    except Exception:
        log.exception("check_failed", stage=running["stage"], after=running["after"])
        return False
    return True


def _step(running: Document, inspector: Inspector, now: Callable[[], datetime]) -> None:
    stage = running["stage"]
    done = inspector.step(stage, running["after"])
    following = stage if done.after is not None else inspection.following(stage)
    findings = [finding.to_document() for finding in done.findings]
    moved: Document = {"after": done.after or "", "work_until": now()}
    if following is None:
        moved |= {"running": False, "ended_at": now()}
    else:
        moved["stage"] = following
    checks().update_one(
        # Not where another, after the lease, has done this step already.
        {name: running[name] for name in ("_id", "run", "stage", "after")},
        {
            "$set": moved,
            "$inc": {f"looked_at.{stage}": done.looked_at, "found": len(findings)},
            "$push": {"findings": {"$each": findings, "$slice": FINDINGS_MAX}},
        },
    )
