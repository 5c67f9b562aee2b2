"""The faults of a chaos run: what breaks, in which order, and how it is mended.

One fault of the replica set at a time (two would leave no majority), beside any number of faults of
API processes and runners. Which comes next is random from the run's seed.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from pymongo.errors import PyMongoError

from tests.cluster.member import Member
from tests.cluster.processes import Api, Player
from tests.cluster.replica_set import ReplicaSet

PRIMARY_PAUSED_S = 15.0
TWO_PRIMARIES_S = 9.0
API_PAUSED_S = 6.0
NEVER_LEFT_OUT = frozenset(
    {"primary_paused", "primary_killed", "primary_cut_off_with_an_api", "runner_killed"}
)
"""A run goes on for up to its length again until it has had these."""
WHOLE_S_MIN = 4.0
"""How long the replica set is left whole between two faults, so that there is work to lose."""


@dataclass(frozen=True)
class Fault:
    """Something that was broken at `at`."""

    name: str
    at: float


class Faults:
    """Breaks one thing every few seconds: each kind once, in a random order, then any.

    `done`: what was broken, in order. `deaths`: when, and the number of which runner.
    """

    def __init__(
        self,
        replica_set: ReplicaSet,
        apis: list[Api],
        runners: list[Player],
        dice: random.Random,
        *,
        runner_paused_s: float,
    ) -> None:
        self.done: list[Fault] = []
        self.deaths: list[tuple[float, int]] = []
        self._set = replica_set
        self._apis = apis
        self._runners = runners
        self._random = dice
        self._runner_paused_s = runner_paused_s
        self._paused: set[int] = set()
        self._paused_apis: set[str] = set()
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self._whole_since: float | None = None
        self._kinds: dict[str, Callable[[], bool]] = {
            "primary_killed": self._kill_primary,
            "primary_paused": self._pause_primary,
            "primary_cut_off": lambda: self._cut_off_primary(clients_too=True),
            "primary_cut_off_from_members": lambda: self._cut_off_primary(clients_too=False),
            "primary_cut_off_with_an_api": self._cut_off_primary_with_an_api,
            "primary_killed_then_an_api": self._kill_primary_then_api,
            "primary_killed_while_an_api_is_paused": self._kill_primary_while_api_is_paused,
            "secondary_cut_off": self._cut_off_secondary,
            "api_process_killed": self._kill_worker,
            "api_service_killed": self._kill_api,
            "runner_killed": self._kill_runner,
            "runner_paused": self._pause_runner,
        }

    def run(self, seconds: float) -> None:
        """Break things for so long.

        Raises:
            MemberDied: a member of the replica set ended by itself.
        """
        first = sorted(self._kinds)
        self._random.shuffle(first)
        # The longest first, so that a short run has it, too.
        first.sort(key=lambda name: name not in NEVER_LEFT_OUT)
        until = time.monotonic() + seconds
        following = time.monotonic() + 3
        while time.monotonic() < until or (
            NEVER_LEFT_OUT.intersection(first) and time.monotonic() < until + seconds
        ):
            self._set.check()
            self._undo_due()
            if time.monotonic() >= following:
                following = time.monotonic() + self._random.uniform(2.0, 5.0)
                names = first or [self._random.choice(sorted(self._kinds))]
                done = next((name for name in names if self._break(name)), None)
                if done in first:
                    first.remove(done)
            time.sleep(0.05)

    def _break(self, name: str) -> bool:
        at = time.time()
        if not self._kinds[name]():
            return False
        self.done.append(Fault(name, at))
        return True

    def end(self) -> None:
        """Mend everything, and wait until the replica set and the services are whole."""
        for _, undo in self._undo:
            undo()
        self._undo = []
        self._set.mend()
        self._set.await_healthy()
        for api in self._apis:
            _start(api)
        for api in self._apis:
            api.await_ready()

    def _undo_due(self) -> None:
        due = [entry for entry in self._undo if entry[0] <= time.monotonic()]
        self._undo = [entry for entry in self._undo if entry not in due]
        for _, undo in due:
            undo()

    def _later(self, after_s: float, undo: Callable[[], None]) -> None:
        self._undo.append((time.monotonic() + after_s, undo))

    # -- the replica set -----------------------------------------------------------------

    def _take_primary(self) -> Member | None:
        """The primary, if the set is whole, and has been for a while."""
        if not self._is_whole():
            self._whole_since = None
            return None
        if self._whole_since is None:
            self._whole_since = time.monotonic()
        if time.monotonic() - self._whole_since < WHOLE_S_MIN:
            return None
        self._whole_since = None
        return self._set.primary()

    def _is_whole(self) -> bool:
        if any(not member.running or member.paused for member in self._set.members):
            return False
        try:
            self._set.await_healthy(limit_s=1)
        except TimeoutError:
            return False
        return True

    def _kill_primary(self) -> bool:
        primary = self._take_primary()
        if primary is None:
            return False
        primary.kill()
        self._later(3, lambda: self._set.start(primary))
        return True

    def _pause_primary(self) -> bool:
        primary = self._take_primary()
        if primary is None:
            return False
        primary.pause()
        self._later(PRIMARY_PAUSED_S, primary.resume)
        return True

    def _cut_off_primary(self, *, clients_too: bool) -> bool:
        primary = self._take_primary()
        if primary is None:
            return False
        self._set.isolate(primary, clients_too=clients_too)
        self._later(6, self._set.isolate)
        return True

    def _cut_off_primary_with_an_api(self) -> bool:
        """For one API process the old primary goes on as one; the other has the new."""
        primary = self._take_primary()
        if primary is None:
            return False
        self._later(TWO_PRIMARIES_S, self._set.isolate)
        lost = self._random.choice(self._apis)
        try:
            self._set.two_primaries(primary, with_them=[lost.name])
        except PyMongoError:
            return False
        return True

    def _cut_off_secondary(self) -> bool:
        primary = self._take_primary()
        if primary is None:
            return False
        others = [member for member in self._set.members if member is not primary]
        self._set.isolate(self._random.choice(others))
        self._later(5, self._set.isolate)
        return True

    # -- API processes -------------------------------------------------------------------

    def _kill_primary_then_api(self) -> bool:
        """While its requests wait for the next primary, or have just begun anew."""
        api = self._random.choice(self._apis)
        if not self._can_lose(api) or not self._kill_primary():
            return False
        self._later(self._random.uniform(0.1, 3.0), lambda: self._kill_and_start(api))
        return True

    def _kill_primary_while_api_is_paused(self) -> bool:
        """What it was about to write it writes after the failover."""
        api = self._random.choice(self._apis)
        if not self._can_lose(api) or self._take_primary() is None:
            return False
        go_on = api.pause()
        self._paused_apis.add(api.name)

        def resume() -> None:
            go_on()
            self._paused_apis.discard(api.name)

        self._later(API_PAUSED_S, resume)
        primary = self._set.primary()
        if primary is not None:
            primary.kill()
            self._later(3, lambda: self._set.start(primary))
        return True

    def _can_lose(self, api: Api) -> bool:
        return api.running and api.name not in self._paused_apis

    def _kill_and_start(self, api: Api) -> None:
        api.kill()
        self._later(2, lambda: _start(api))

    def _kill_worker(self) -> bool:
        self._random.choice(self._apis).kill_worker()
        return True

    def _kill_api(self) -> bool:
        api = self._random.choice(self._apis)
        if not self._can_lose(api):
            return False
        self._kill_and_start(api)
        return True

    # -- runners -------------------------------------------------------------------------

    def _take_runner(self) -> int | None:
        number = self._random.randrange(len(self._runners))
        is_well = number not in self._paused and self._runners[number].process.poll() is None
        return number if is_well else None

    def _kill_runner(self) -> bool:
        number = self._take_runner()
        if number is None:
            return False
        self._runners[number].kill()
        self.deaths.append((time.time(), number))
        self._later(1, self._runners[number].restart)
        return True

    def _pause_runner(self) -> bool:
        number = self._take_runner()
        if number is None:
            return False
        runner = self._runners[number]
        runner.signal(signal.SIGSTOP)
        self._paused.add(number)

        def resume() -> None:
            runner.signal(signal.SIGCONT)
            self._paused.discard(number)

        self._later(self._runner_paused_s, resume)
        return True


def _start(api: Api) -> None:
    if not api.running:
        api.start()
