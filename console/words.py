"""Numbers and codes in words: what the templates call to show them.

Guarantees: pure functions; what somebody else wrote passes through them as text, never as markup.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dispatch import states
from dispatch.contract import Verdict
from dispatch.states import State

LANGUAGES = {0: "C", 1: "C++", 2: "Python"}
VERDICTS = tuple(verdict.name for verdict in Verdict)
VERDICT_WORDS = {
    "PENDING": "pending",
    "AC": "accepted",
    "WA": "wrong answer",
    "CE": "compile error",
    "TLE": "time limit exceeded",
    "MLE": "memory limit exceeded",
    "RE": "runtime error",
    "JE": "judge error",
    "OLE": "output limit exceeded",
}
VERDICT_MARKS = {"PENDING": "\u2026", "AC": "\u2713", "JE": "!"}
"""A shape before the letters: a verdict is never told by colour alone."""
STATE_WORDS = {
    State.PENDING.value: "waiting",
    State.LEASED.value: "being judged",
    State.LANDING.value: "landing",
    State.DONE.value: "done",
}
EVENT_WORDS = {
    "enqueue": "Entered the queue",
    states.CLAIM.event: "Handed to a runner",
    states.RECLAIM.event: "Orphan, handed to another runner",
    states.COMPLETE_BEGINS.event: "Result arrived, landing begins",
    states.COMPLETE_ENDS.event: "Landed",
    states.COMPLETE_RESTORE.event: "Landing failed, the runner keeps the job",
    states.ABORT.event: "Given back by the runner",
    states.EXHAUST_BEGINS.event: "No attempt left, a judge error begins to land",
    states.EXHAUST_ENDS.event: "Ended without a result of its last attempt",
    states.REJUDGE.event: "Rejudge, with a new job",
    states.REJUDGE_PENDING.event: "Rejudge asked for while it waited",
    states.CANCEL.event: "Rejudge taken back",
    states.MOVE_TO_FRONT.event: "Moved to the front",
    states.REPAIR.event: "Found stranded, to be judged afresh",
}
CONTROL_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"} | {
    0x7F: 0x2421
}


def language(code: int) -> str:
    """Return a language's name."""
    return LANGUAGES.get(code, str(code))


def event(name: str) -> str:
    """Return what happened to a job, as a sentence without its end."""
    return EVENT_WORDS.get(name, name.replace("_", " ").capitalize())


def state(name: str) -> str:
    """Return a job's state."""
    return STATE_WORDS.get(name, name)


def span(seconds: float) -> str:
    """Return a length of time with its unit, cut to a whole number of it."""
    whole = max(0, int(seconds))
    for unit, unit_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if whole >= 2 * unit_s:
            return f"{whole // unit_s} {unit}"
    return f"{whole} s"


def ago(moment: datetime, now: datetime) -> str:
    """Return how long ago `moment` was."""
    return f"{span((now - moment).total_seconds())} ago"


def until(moment: datetime, now: datetime) -> str:
    """Return how long it is until `moment`, or that it has passed."""
    left_s = (moment - now).total_seconds()
    return f"in {span(left_s)}" if left_s > 0 else f"{span(-left_s)} ago"


def clock(moment: datetime) -> str:
    """Return a moment in full, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def measure(value: int, unit: str) -> str:
    """Return a measured value with its unit; -1 stands for unknown."""
    return "\u2013" if value < 0 else f"{value:,} {unit}".replace(",", "\u202f")


def number(value: int) -> str:
    """Return a whole number, its thousands apart."""
    return f"{value:,}".replace(",", "\u202f")


def percent(share: float) -> str:
    """Return a part of a whole in percent, small ones with their decimals."""
    return f"{100 * share:.2f} %"


def cell(value: Any) -> str:
    """Return a value of a report as one cell's text."""
    match value:
        case None:
            return "\u2013"
        case datetime():
            return clock(value)
        case Mapping():
            return ", ".join(f"{name} {cell(entry)}" for name, entry in value.items())
        case _:
            return str(value)


def visible(text: str) -> str:
    """Return what a program printed, with a picture for every control character in it."""
    return text.translate(CONTROL_PICTURES)


def who(entry: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
    """Return the name of the runner that an entry of a history speaks of, else its id."""
    runner_id = entry.get("runner_id")
    return None if runner_id is None else names.get(runner_id, runner_id)
