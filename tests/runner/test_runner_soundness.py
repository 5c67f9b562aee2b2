"""Which languages a runner offers: only those that it has just proven, and what follows."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from runner.cores import assigned, slot_count
from runner.faults import MachineFaultError
from runner.identity import IdentityFile
from runner.isolation import Slot
from runner.languages import TOOLCHAINS
from runner.outcomes import Registered, RunnerConfig
from runner.soundness import PROVE_EVERY_S, RETRY_S_MAX, RETRY_S_MIN, Soundness

SLOT = Slot(index=0, uid=None)
SOURCES = {toolchain.source_name: number for number, toolchain in TOOLCHAINS.items()}


@dataclass
class Machine:
    """A machine that is as sound as a test says, and its clock."""

    sick: set[int] = field(default_factory=set)
    examined: list[int] = field(default_factory=list)
    now_s: float = 1000.0

    def examine_all(self, toolchain, slot, should_stop) -> None:
        number = SOURCES[toolchain.source_name]
        self.examined.append(number)
        if number in self.sick:
            raise MachineFaultError(f"{toolchain.source_name} is broken", unsound=True)

    def proven(self) -> list[int]:
        """What is looked at now."""
        self.examined.clear()
        self.soundness.prove_due(SLOT, lambda: False)
        return list(self.examined)

    def __post_init__(self) -> None:
        self.soundness = Soundness(self, clock=lambda: self.now_s)


def test_nothing_is_offered_before_it_is_proven():
    machine = Machine(sick={1})
    assert machine.soundness.offered() == []
    assert machine.proven() == [0, 1, 2]
    assert machine.soundness.offered() == [0, 2]
    assert machine.soundness.why_not(0) is None
    assert machine.soundness.why_not(1) == "main.cpp is broken"
    assert machine.soundness.why_not(7) is None


def test_what_was_proven_is_proven_again_after_hours():
    machine = Machine()
    machine.proven()
    machine.now_s += PROVE_EVERY_S - 1
    assert machine.proven() == []
    machine.now_s += 1
    machine.sick = {0}
    assert machine.proven() == [0, 1, 2]
    assert machine.soundness.offered() == [1, 2]


def test_what_a_job_found_is_withdrawn_and_the_rest_is_looked_at(logged):
    machine = Machine()
    machine.proven()
    machine.soundness.withdraw(0, "the disk is full")
    assert machine.soundness.offered() == [1, 2]
    assert machine.proven() == [1, 2]
    told = logged()
    assert "language_withdrawn" in told
    assert "the disk is full" in told


def test_it_is_tried_again_less_and_less_often_and_comes_back_by_itself(logged):
    machine = Machine(sick={0, 1, 2})
    machine.proven()
    assert "no_language_offered" in logged()
    waits = []
    for _ in range(9):
        wait_s = RETRY_S_MIN
        while True:
            machine.now_s += wait_s
            if machine.proven():
                break
        waits.append(machine.now_s)
    gaps = [round(after - before) for before, after in pairwise(waits)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == RETRY_S_MAX
    machine.sick = set()
    machine.now_s += RETRY_S_MAX
    machine.proven()
    assert machine.soundness.offered() == [0, 1, 2]
    machine.soundness.withdraw(0, "x")
    machine.now_s += RETRY_S_MIN
    assert 0 in machine.proven()  # The pauses begin anew.


@pytest.mark.parametrize(
    ("jobs", "cores", "share", "slots"),
    [(2, 2, False, 2), (4, 2, False, 2), (4, 2, True, 4), (1, 8, False, 1)],
)
def test_there_are_no_more_slots_than_cores_unless_told(jobs, cores, share, slots):
    assert slot_count(jobs, cores, share=share) == slots


def test_slots_take_the_cores_that_nobody_has_first():
    assert assigned(2, [1, 3], [0, 1, 2, 3]) == (1, 3)
    assert assigned(3, [3], [0, 1, 3]) == (3, 0, 1)
    assert assigned(3, [0, 1], [0, 1]) == (0, 1, 0)


IDENTITY = Registered(
    runner_id="rn_1",
    token="rk_secret",
    config=RunnerConfig(heartbeat_interval_sec=1, poll_interval_sec=1, max_concurrent_jobs=1),
)


def test_an_identity_of_another_service_is_not_ours(tmp_path):
    memory = IdentityFile(tmp_path, "http://one")
    memory.remember(IDENTITY)
    memory.close()
    other = IdentityFile(tmp_path, "http://other")
    assert other.former() is None
    other.close()
    again = IdentityFile(tmp_path, "http://one")
    assert again.former().runner_id == "rn_1"
    assert "rk_secret" not in repr(again.former())
    again.forget()
    assert again.former() is None
    again.close()


def test_an_identity_that_cannot_be_read_or_kept_is_none(tmp_path, logged):
    (tmp_path / "identity-0").write_text("{half")
    memory = IdentityFile(tmp_path, "http://one")
    assert memory.former() is None
    memory.close()
    nowhere = IdentityFile(tmp_path / "nowhere", "http://one")
    nowhere.remember(IDENTITY)
    assert nowhere.former() is None
    nowhere.close()
    assert "identity_not_kept" in logged()
