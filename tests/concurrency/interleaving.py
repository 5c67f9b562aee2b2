"""Runs operations in threads that take turns at their database calls, by a given schedule.

Nothing is left to chance: an operation stands still before each of its calls until it is its turn,
and one call at a time is on its way.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

WAIT_S_MAX = 20
Operation = Callable[[], object]
Schedule = Sequence[tuple[int, int | None]]
"""(operation, how many calls it may make now; None: as many as it has left)."""


class _Turn:
    """One operation in its thread."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._go = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self.finished = False
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._operation()
        except BaseException as error:
            self.error = error
        self.finished = True
        self._stands.release()

    def before_call(self) -> None:
        self._stands.release()
        self._go.acquire(timeout=WAIT_S_MAX)

    def start(self) -> None:
        self.thread.start()
        self._until_it_stands()

    def call(self) -> None:
        """Let it make the call that it stands before."""
        self._go.release()
        self._until_it_stands()

    def _until_it_stands(self) -> None:
        if not self._stands.acquire(timeout=WAIT_S_MAX):
            raise TimeoutError("an operation neither calls the database nor ends")


class Turnstile(CommandListener):
    """Makes the threads of `run` wait for their turns; lets all others pass."""

    def __init__(self) -> None:
        self._turns: dict[int | None, _Turn] = {}

    def started(self, event: CommandStartedEvent) -> None:
        turn = self._turns.get(threading.get_ident())
        if turn is not None:
            turn.before_call()

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass

    def run(self, operations: Sequence[Operation], schedule: Schedule) -> list[bool]:
        """Run the operations to their ends by the schedule.

        Return for each step whether its operation still stood before a call when it was over:
        false means that a longer step would be the same.
        """
        turns = [
            _Turn(self._registered(number, operation))
            for number, operation in enumerate(operations)
        ]
        self._pending = turns
        for turn in turns:
            turn.start()
        stood = []
        for number, calls in schedule:
            turn = turns[number]
            while not turn.finished and calls != 0:
                turn.call()
                calls = None if calls is None else calls - 1
            stood.append(not turn.finished)
        for turn in turns:
            while not turn.finished:
                turn.call()
            turn.thread.join()
        self._turns.clear()
        for turn in turns:
            if turn.error is not None:
                raise turn.error
        return stood

    def _registered(self, number: int, operation: Operation) -> Operation:
        def run() -> None:
            self._turns[threading.get_ident()] = self._pending[number]
            operation()

        return run


def every_interleaving(
    turnstile: Turnstile,
    stopping: Sequence[int],
    ending: Sequence[int],
    prepare: Callable[[], Sequence[Operation]],
) -> Iterator[Schedule]:
    """Run every schedule in which the operations `stopping`, in this order, stop once, anywhere.

    Then those `ending` run to their ends in that order. `prepare` puts the world back and returns
    the operations. Yields each schedule after it has been run.
    """
    stops = [1] * len(stopping)
    while True:
        schedule: list[tuple[int, int | None]] = list(zip(stopping, stops, strict=True))
        schedule += [(number, None) for number in ending]
        stood = turnstile.run(prepare(), schedule)
        yield schedule
        # Like an odometer; a wheel turns over when its operation had no call left to stop before.
        place = len(stopping) - 1
        while place >= 0 and not stood[place]:
            stops[place] = 1
            place -= 1
        if place < 0:
            return
        stops[place] += 1


@contextmanager
def mutated(module: ModuleType, *changes: tuple[str, str]) -> Iterator[None]:
    """Run with a module whose source was changed: each old text occurs once in it."""
    source = inspect.getsource(module)
    for old, new in changes:
        if source.count(old) != 1:
            raise ValueError(f"{source.count(old)} times in {module.__name__}: {old!r}")
        source = source.replace(old, new)
    kept: dict[str, Any] = dict(vars(module))
    try:
        exec(compile(source, module.__file__ or "", "exec"), vars(module))
        yield
    finally:
        vars(module).clear()
        vars(module).update(kept)
