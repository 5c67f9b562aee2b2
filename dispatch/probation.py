"""When a runner is checked, and what its answers say of it. Pure functions of values.

Guarantees: no clock and no database; the same state gives the same answer. A language whose known
program a runner has not judged right is not among those that it may judge; nor is any, before the
runner has told a wrong program from a right one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from dispatch.contract import InvalidResult, JudgeResult, KnownProgram, Verdict

FOLLOW_UP_EVERY = timedelta(minutes=10)
"""How often at most a runner off probation is checked between its jobs."""
PAUSES_S = (5, 30, 120)
"""How long after its first, second, ... check in a row that came to nothing a language waits."""
CE_ROW_MAX = 2
"""Compile errors in a row, in one language, after which its compiler is in doubt."""
FLEET_MIN = 3
"""Of so many other runners a time must be known before one can be far off them."""
FAR_OFF_FACTOR = 4
FAR_OFF_MS = 200
"""A time is far off only if it is also by this much longer: a stumble of a few ms is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenCheck:
    """A check in a runner's hands: an ordinary job to the runner, in no queue."""

    job_id: str
    submission_id: str
    program_id: str
    language: int
    lease_token: str
    claim_id: str | None
    at: datetime
    deadline: datetime

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> OpenCheck:
        """Read it back from a runner.

        Raises:
            TypeError: a field is missing or of another type.
        """
        check = cls(**document)
        if not isinstance(check.at, datetime) or not isinstance(check.deadline, datetime):
            raise TypeError("checks.open: at and deadline must be times")
        return check


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedCheck:
    """How a check ended, kept so that a repeat is told the same. `how`: see `dispatch.checks`."""

    job_id: str
    how: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """Why a language is not checked again before `until`: `row` checks in a row came to nothing."""

    row: int
    until: datetime
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """A failed check, and from when on what the runner judged is doubtful.

    `until` is when it was reinstated; None: it has not been.
    """

    program_id: str
    language: int
    answer: str
    since: datetime
    at: datetime
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckState:
    """What checks have said of a runner. Keys of the mappings are languages."""

    proven: Mapping[int, datetime] = field(default_factory=dict)
    """When its program that must be AC was judged right; absent: on probation."""
    told_apart: bool = False
    """It has called a wrong program wrong. One that calls everything right has not."""
    passed: Mapping[int, datetime] = field(default_factory=dict)
    """When any check was last passed."""
    open: Mapping[int, OpenCheck] = field(default_factory=dict)
    ended: tuple[EndedCheck, ...] = ()
    pauses: Mapping[int, Pause] = field(default_factory=dict)
    next_at: datetime | None = None
    turn: int = 0
    ce_rows: Mapping[int, int] = field(default_factory=dict)
    doubt: Doubt | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any] | None) -> CheckState:
        """Read it back from a runner.

        Raises:
            TypeError, ValueError, AttributeError: it is not as any version writes it.
        """
        if not document:
            return cls()
        doubt = document.get("doubt")
        return cls(
            proven=_times(_of_languages(document, "proven")),
            told_apart=document.get("told_apart") is True,
            passed=_times(_of_languages(document, "passed")),
            open={
                int(language): OpenCheck.from_document(check)
                for language, check in _of_languages(document, "open").items()
            },
            ended=tuple(EndedCheck(**ended) for ended in document.get("ended") or ()),
            pauses={
                int(language): Pause(**pause)
                for language, pause in _of_languages(document, "pauses").items()
            },
            next_at=document.get("next_at"),
            turn=int(document.get("turn") or 0),
            ce_rows={int(key): int(row) for key, row in _of_languages(document, "ce_rows").items()},
            doubt=None if doubt is None else Doubt(**doubt),
        )

    def check(self, job_id: str) -> OpenCheck | None:
        """Return the open check of that id."""
        return next((check for check in self.open.values() if check.job_id == job_id), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """A check that is to be handed out now. `follow_up`: one between jobs, not of a probation."""

    program: KnownProgram
    follow_up: bool


def unproven(
    state: CheckState, offered: Sequence[int], programs: Sequence[KnownProgram]
) -> tuple[int, ...]:
    """Return those of `offered` that have a known program which the runner has yet to judge."""
    checked = {program.language for program in programs}
    return tuple(
        language for language in offered if language in checked and language not in state.proven
    )


def on_probation(
    state: CheckState, offered: Sequence[int], programs: Sequence[KnownProgram]
) -> bool:
    """Tell whether the runner has to pass a check before it gets all that it offers to judge."""
    if not offered or not programs:
        return False
    return not state.told_apart or bool(unproven(state, offered, programs))


def may_judge(
    state: CheckState, offered: Sequence[int], programs: Sequence[KnownProgram]
) -> tuple[int, ...]:
    """Return those of `offered` whose jobs the runner may be handed."""
    if not programs:
        return tuple(offered)
    if not state.told_apart:
        return ()
    doubtful = unproven(state, offered, programs)
    return tuple(language for language in offered if language not in doubtful)


def due(
    state: CheckState, offered: Sequence[int], programs: Sequence[KnownProgram], now: datetime
) -> Due | None:
    """Return the check that the runner is to be handed now, if any.

    First the program that must be AC of each language on probation, then, once, a wrong one; after
    that one in `FOLLOW_UP_EVERY`, kinds and languages in turn. One at a time and language.
    """
    for language in unproven(state, offered, programs):
        if _is_free(state, language, now):
            return _of(programs, language, Verdict.AC)
    proven = [language for language in offered if language in state.proven]
    if not state.told_apart:
        wrong = {one.program_id for one in programs if one.expected is Verdict.WA}
        if any(check.program_id in wrong for check in state.open.values()):
            return None
        # The one proven last: after a doubt that is the language which was in doubt.
        latest = sorted(((state.proven[language], language) for language in proven), reverse=True)
        for _, language in latest:
            if _is_free(state, language, now):
                return _of(programs, language, Verdict.WA)
        return None
    if not proven or state.open or (state.next_at is not None and state.next_at > now):
        return None
    turn, language = state.turn // len(proven), proven[state.turn % len(proven)]
    kinds = [one for one in programs if one.language == language and one.expected is not Verdict.AC]
    return Due(program=kinds[turn % len(kinds)], follow_up=True) if kinds else None


def _is_free(state: CheckState, language: int, now: datetime) -> bool:
    pause = state.pauses.get(language)
    return language not in state.open and (pause is None or pause.until <= now)


def _of(programs: Sequence[KnownProgram], language: int, expected: Verdict) -> Due | None:
    for program in programs:
        if program.language == language and program.expected is expected:
            return Due(program=program, follow_up=False)
    return None


def pause_after(earlier: Pause | None, why: str, now: datetime) -> Pause:
    """Return the pause after one more check that came to nothing. Longer each time, bounded."""
    row = 1 if earlier is None else earlier.row + 1
    pause_s = PAUSES_S[min(row, len(PAUSES_S)) - 1]
    return Pause(row=row, until=now + timedelta(seconds=pause_s), why=why)


def verdict_of(tasks: JudgeResult, program: KnownProgram) -> Verdict:
    """Return the verdict that a runner's report of a check comes to.

    Raises:
        InvalidResult: the report does not fit what was handed out.
    """
    specs = program.handed_out.tasks
    if len(tasks) != len(specs):
        raise InvalidResult(f"tasks: {len(tasks)} given, the problem has {len(specs)}")
    for number, (cases, spec) in enumerate(zip(tasks, specs, strict=True)):
        if len(cases) != spec.case_count:
            raise InvalidResult(
                f"tasks[{number}]: {len(cases)} cases given, the task has {spec.case_count}"
            )
    said = {case.status for cases in tasks for case in cases}
    return Verdict.JE if Verdict.JE in said else max(said)


def time_of(tasks: JudgeResult) -> int:
    """Return the longest time of a case, in ms; -1: none is known."""
    return max((case.exec_time_ms for cases in tasks for case in cases), default=-1)


def is_far_off(time_ms: int, others_ms: Sequence[int]) -> bool:
    """Tell whether a time is far from those that other runners took for the same program.

    `others_ms`: one time of each. Where a runner does not tell its time, nothing follows.
    """
    known = [other for other in others_ms if other >= 0]
    if time_ms < 0 or len(known) < FLEET_MIN:
        return False
    usual = median(known)
    slow = time_ms > FAR_OFF_FACTOR * usual and time_ms - usual > FAR_OFF_MS
    # A program that took next to no time was hardly run.
    return slow or (usual > FAR_OFF_MS / FAR_OFF_FACTOR and time_ms * FAR_OFF_FACTOR < usual)


def is_compile_error(tasks: JudgeResult) -> bool:
    """Tell whether that is what the result says."""
    return any(case.status is Verdict.CE for cases in tasks for case in cases)


def says_nothing(tasks: JudgeResult) -> bool:
    """Tell whether a compile error comes without a word of the compiler."""
    return not any((case.stdout + case.stderr).strip() for cases in tasks for case in cases)


def _of_languages(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, Mapping):
        raise TypeError(f"checks.{name} is a {type(found).__name__}")
    return found


def _times(document: Mapping[str, Any]) -> dict[int, datetime]:
    times = {int(language): at for language, at in document.items()}
    if not all(isinstance(at, datetime) for at in times.values()):
        raise TypeError("checks: must be times")
    return times
