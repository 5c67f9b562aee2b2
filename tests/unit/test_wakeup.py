"""Notices: one wakes one, in turn; none is lost; what nobody can use does not go round for ever.

No threads are needed: who is asleep is who last asked to sleep, however short.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from dispatch.wakeup import HANDED_ON_MAX, Interest, Waiter, Wakeup

Enter = Callable[..., Waiter]


@pytest.fixture
def wakeup() -> Wakeup:
    return Wakeup()


@pytest.fixture
def enter(wakeup: Wakeup) -> Iterator[Enter]:
    """Begins to wait: has looked in vain and sleeps."""
    numbers = itertools.count()
    with ExitStack() as stack:

        def entered(*languages: int, asleep: bool = True, reads: str | None = None) -> Waiter:
            interest = Interest(
                runner_id=None if reads else f"rn_{next(numbers)}",
                languages=languages or None,
                submission_id=reads,
            )
            made = stack.enter_context(wakeup.waiter(interest))
            made.look()
            if asleep:
                assert not made.wait(0)
            return made

        yield entered


def woken(*waiters: Waiter) -> list[bool]:
    return [waiter.woken.is_set() for waiter in waiters]


def test_one_notice_wakes_the_one_that_has_slept_longest(wakeup: Wakeup, enter: Enter) -> None:
    first, second, third = enter(), enter(), enter()
    wakeup.job("sn_1", 2)
    assert woken(first, second, third) == [True, False, False]
    wakeup.job("sn_2", 2)
    assert woken(first, second, third) == [True, True, False]
    told = first.look()
    assert told is not None
    assert told.submission_id == "sn_1"
    assert not first.wait(0)
    wakeup.job("sn_3", 2)
    assert woken(first, third) == [False, True]
    wakeup.job("sn_4", 2)
    assert woken(first) == [True]


def test_a_wait_that_passes_keeps_its_place(wakeup: Wakeup, enter: Enter) -> None:
    first, second = enter(), enter()
    assert not first.wait(0)
    wakeup.job("sn_1", 2)
    assert woken(first, second) == [True, False]


def test_a_job_wakes_only_who_judges_its_language(wakeup: Wakeup, enter: Enter) -> None:
    c, python, any_ = enter(0, 1), enter(2), enter()
    wakeup.job("sn_1", 2)
    assert woken(c, python, any_) == [False, True, False]
    wakeup.job("sn_2", 2)
    assert woken(c, any_) == [False, True]
    wakeup.job("sn_3")
    assert woken(c) == [True]


def test_a_notice_between_looking_and_sleeping_is_not_missed(wakeup: Wakeup, enter: Enter) -> None:
    looking = enter(asleep=False)
    wakeup.job("sn_1", 2)
    assert looking.wait(0)
    assert looking.look() is None
    assert not looking.wait(0)


def test_a_notice_that_somebody_took_makes_nobody_else_look_again(
    wakeup: Wakeup, enter: Enter
) -> None:
    sleeping, looking = enter(), enter(asleep=False)
    wakeup.job("sn_1", 2)
    assert woken(sleeping) == [True]
    assert not looking.wait(0)


def test_a_notice_goes_to_who_sleeps_rather_than_to_who_looks(wakeup: Wakeup, enter: Enter) -> None:
    looking, sleeping = enter(), enter()
    looking.look()
    wakeup.job("sn_1", 2)
    assert woken(looking, sleeping) == [False, True]


def test_who_leaves_passes_on_what_it_was_told(wakeup: Wakeup, enter: Enter) -> None:
    with wakeup.waiter(Interest(runner_id="rn_gone")) as gone:
        gone.look()
        assert not gone.wait(0)
        other = enter()
        wakeup.job("sn_1", 2)
        assert woken(gone, other) == [True, False]
    assert woken(other) == [True]
    told = other.look()
    assert told is not None
    assert told.submission_id == "sn_1"


def test_a_notice_is_handed_on_to_each_once(wakeup: Wakeup, enter: Enter) -> None:
    waiters = [enter() for _ in range(3)]
    wakeup.job("sn_1", 2)
    for number in range(3):
        assert [waiter.woken.is_set() for waiter in waiters].index(True) == number
        told = waiters[number].look()
        assert told is not None
        waiters[number].wait(0)
        wakeup.hand_on(told)
    assert woken(*waiters) == [False, False, False]


def test_a_notice_is_handed_on_a_bounded_number_of_times(wakeup: Wakeup, enter: Enter) -> None:
    waiters = [enter() for _ in range(HANDED_ON_MAX + 5)]
    wakeup.job("sn_1", 2)
    looked = 0
    while (told := next((w.look() for w in waiters if w.woken.is_set()), None)) is not None:
        looked += 1
        wakeup.hand_on(told)
    assert looked == HANDED_ON_MAX + 1


def test_a_notice_not_to_be_handed_on_is_not(wakeup: Wakeup, enter: Enter) -> None:
    first, second = enter(), enter()
    wakeup.job("sn_1", 2, hand_on=False)
    told = first.look()
    assert told is not None
    wakeup.hand_on(told)
    assert woken(second) == [False]


def test_a_verdict_wakes_its_readers_and_no_runner(wakeup: Wakeup, enter: Enter) -> None:
    runner, reader, other = enter(), enter(reads="sn_1"), enter(reads="sn_2")
    wakeup.ended("sn_1")
    assert woken(runner, reader, other) == [False, True, False]
    wakeup.ended()
    assert woken(runner, other) == [False, True]


def test_a_job_wakes_no_reader(wakeup: Wakeup, enter: Enter) -> None:
    reader, looking = enter(reads="sn_1"), enter(reads="sn_1", asleep=False)
    wakeup.job("sn_1", 2)
    assert woken(reader) == [False]
    assert not looking.wait(0)


def test_a_verdict_between_looking_and_sleeping_is_not_missed(wakeup: Wakeup, enter: Enter) -> None:
    reader = enter(reads="sn_1", asleep=False)
    wakeup.ended("sn_1")
    assert reader.wait(0)


def test_a_change_of_one_runner_wakes_its_polls_alone(wakeup: Wakeup, enter: Enter) -> None:
    one, other = enter(), enter()
    wakeup.runner(one.interest.runner_id or "")
    assert woken(one, other) == [True, False]


def test_everybody_is_woken_and_still_told(wakeup: Wakeup, enter: Enter) -> None:
    one, other = enter(), enter(reads="sn_1")
    wakeup.everybody()
    assert woken(one, other) == [True, True]
    wakeup.job("sn_2", 2)
    told = one.look()
    assert told is not None
    assert told.submission_id == "sn_2"


def test_after_the_end_nobody_sleeps(wakeup: Wakeup, enter: Enter) -> None:
    sleeping, looking = enter(), enter(asleep=False)
    wakeup.close()
    assert woken(sleeping) == [True]
    assert looking.wait(0)
    looking.look()
    assert looking.wait(0), "not even who looks once more"


def test_who_gives_notices_is_told_that_somebody_waits(wakeup: Wakeup, enter: Enter) -> None:
    began: list[int] = []
    wakeup.when_somebody_waits(lambda: began.append(wakeup.waiting_for_jobs()))
    enter()
    enter(reads="sn_1")
    assert began == [1, 1]
    assert wakeup.anybody()
