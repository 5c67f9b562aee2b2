"""The rules of probation: which check is due, and what an answer says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatch import probation
from dispatch.contract import InvalidResult, Verdict
from dispatch.probation import CheckState, OpenCheck, Pause
from mongo.known_programs import known_programs
from tests.factories import results

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=10)
PROGRAMS = known_programs()
ALL = (0, 1, 2)
PROVEN = dict.fromkeys(ALL, NOW)
AT_WORK = CheckState(proven=PROVEN, told_apart=True, next_at=LATER)


def in_hand(language: int, program_id: str) -> OpenCheck:
    return OpenCheck(
        job_id=f"jb_{language}",
        submission_id="sn_1",
        program_id=program_id,
        language=language,
        lease_token="t",
        claim_id=None,
        at=NOW,
        deadline=LATER,
    )


def due(state: CheckState, offered: tuple[int, ...] = ALL, now: datetime = NOW) -> str | None:
    found = probation.due(state, offered, PROGRAMS, now)
    return None if found is None else found.program.program_id


def test_nothing_is_proven_at_first() -> None:
    assert probation.unproven(CheckState(), ALL, PROGRAMS) == ALL
    assert probation.may_judge(CheckState(), ALL, PROGRAMS) == ()
    assert probation.on_probation(CheckState(), ALL, PROGRAMS)


def test_without_known_programs_nobody_is_checked() -> None:
    assert probation.may_judge(CheckState(), ALL, ()) == ALL
    assert not probation.on_probation(CheckState(), ALL, ())
    assert probation.due(CheckState(), ALL, (), NOW) is None


def test_a_language_without_a_known_program_is_not_held_back() -> None:
    state = CheckState(told_apart=True, proven={0: NOW})
    assert probation.may_judge(state, (0, 7), PROGRAMS) == (0, 7)


def test_one_that_offers_nothing_is_not_on_probation() -> None:
    assert not probation.on_probation(CheckState(), (), PROGRAMS)
    assert due(CheckState(), ()) is None


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (CheckState(), "ac-0"),
        (CheckState(proven={0: NOW}), "ac-1"),
        (CheckState(open={0: in_hand(0, "ac-0")}), "ac-1"),
        (CheckState(pauses={0: Pause(row=1, until=LATER, why="x")}), "ac-1"),
        (CheckState(pauses={0: Pause(row=1, until=NOW, why="x")}), "ac-0"),
        (CheckState(proven=PROVEN), "wa-2"),
        (CheckState(proven={**PROVEN, 0: LATER}), "wa-0"),
        (CheckState(proven=PROVEN, open={1: in_hand(1, "wa-1")}), None),
        # The proven ones go on while another comes to nothing.
        (CheckState(proven={2: NOW}, open={k: in_hand(k, f"ac-{k}") for k in (0, 1)}), "wa-2"),
        (AT_WORK, None),
        (replace(AT_WORK, next_at=NOW), "wa-0"),
        (replace(AT_WORK, next_at=None), "wa-0"),
        (replace(AT_WORK, next_at=NOW, open={1: in_hand(1, "wa-1")}), None),
    ],
)
def test_what_is_due(state: CheckState, expected: str | None) -> None:
    assert due(state) == expected


def test_kinds_and_languages_come_in_turn_and_none_is_left_out() -> None:
    seen = {due(replace(AT_WORK, next_at=None, turn=turn)) for turn in range(20)}
    expected = {one.program_id for one in PROGRAMS if one.expected is not Verdict.AC}
    assert seen == expected
    turns = [due(replace(AT_WORK, next_at=None, turn=turn)) for turn in range(3)]
    assert turns == ["wa-0", "wa-1", "wa-2"]


def test_pauses_grow_and_are_bounded() -> None:
    pause = None
    lasted = []
    for _ in range(5):
        pause = probation.pause_after(pause, "prep_failed", NOW)
        lasted.append((pause.until - NOW).total_seconds())
    assert lasted == [5, 30, 120, 120, 120]


@pytest.mark.parametrize(
    ("time_ms", "others", "expected"),
    [
        (100, [100, 100, 100], False),
        (399, [100, 100, 100], False),
        (401, [100, 100, 100], True),
        (5000, [100, 100], False),
        (5000, [100, 100, -1], False),
        (100, [10, 10, 10], False),
        (24, [100, 100, 100], True),
        (26, [100, 100, 100], False),
        (0, [30, 30, 30], False),
        (-1, [100, 100, 100], False),
        # One that is off itself does not shift what is usual.
        (120, [100, 110, 9000], False),
    ],
)
def test_a_time_far_off_the_others(time_ms: int, others: list[int], expected: bool) -> None:
    assert probation.is_far_off(time_ms, others) is expected


def test_the_worst_case_is_the_verdict_and_a_judge_error_outweighs_all() -> None:
    program = PROGRAMS[0]
    assert probation.verdict_of(results("AC"), program) is Verdict.AC
    two = replace(
        program,
        handed_out=replace(
            program.handed_out, tasks=(replace(program.handed_out.tasks[0], case_count=2),)
        ),
    )
    assert probation.verdict_of(results("AC WA"), two) is Verdict.WA
    assert probation.verdict_of(results("JE OLE"), two) is Verdict.JE
    with pytest.raises(InvalidResult, match=r"tasks\[0\]: 1 cases"):
        probation.verdict_of(results("AC"), two)
    with pytest.raises(InvalidResult, match="tasks: 0 given"):
        probation.verdict_of([], two)


@pytest.mark.parametrize(
    "broken",
    [
        {"proven": {"0": "yesterday"}},
        {"proven": {"C": NOW}},
        {"open": {"0": {"job_id": "jb_1"}}},
        {"open": []},
        {"ended": [{"job_id": "jb_1"}]},
        {"pauses": {"0": {"row": 1}}},
        {"turn": "first"},
        {"doubt": {"answer": "AC"}},
    ],
)
def test_a_state_that_cannot_be_read_is_told(broken: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        CheckState.from_document(broken)
