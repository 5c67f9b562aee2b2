"""What a server does beside its requests: again and again, whatever fails, until it is stopped."""

from __future__ import annotations

import threading

from housekeeping import Housekeeping

LIMIT_S = 30


class Work:
    """Notes what is called, fails and has more to do as told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers = [True, False]
        self.failing = 0
        self.done = threading.Event()

    def maintain(self) -> None:
        self.calls.append("maintain")
        if self.failing:
            self.failing -= 1
            raise RuntimeError("the database is away")

    def advance(self) -> bool:
        self.calls.append("advance")
        more = self.answers.pop(0)
        if not self.answers:
            self.done.set()
            self.answers.append(False)
        return more

    def moved(self) -> None:
        self.calls.append("moved")


def test_it_goes_on_after_a_failure_and_says_what_moved() -> None:
    work = Work()
    work.failing = 1
    beside = Housekeeping(work.maintain, work.advance, work.moved, every_s=0)
    beside.start()
    beside.start()
    assert work.done.wait(LIMIT_S)
    beside.stop()
    assert work.calls[:6] == ["maintain", "maintain", "advance", "moved", "maintain", "advance"]


def test_stopped_it_ends_without_waiting_for_its_turn() -> None:
    work = Work()
    work.answers = [False]
    beside = Housekeeping(work.maintain, work.advance, work.moved, every_s=LIMIT_S * 100)
    beside.start()
    assert work.done.wait(LIMIT_S)
    beside.stop()
    thread = beside._thread
    assert thread is not None
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert thread.daemon
