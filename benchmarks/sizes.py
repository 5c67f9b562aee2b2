"""How much is measured: in a couple of minutes, or in full."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The sizes of every row. Durations in seconds."""

    mode: str
    unit_calls: int
    cycle_runners: tuple[int, ...]
    cycle_round_s: float
    cycle_rounds: int
    queued_jobs: int
    queued_rounds: int
    latency_submits: int
    latency_submits_single: int
    pending: tuple[int, ...]
    finished: tuple[int, ...]
    claims: int
    """Claims measured for each size."""
    claims_in_a_row: int
    leases_out: tuple[int, ...]
    histories: tuple[int, ...]
    classes: tuple[int, ...]
    landings: int
    """Landings measured for each size."""
    rejudged: tuple[int, ...]
    idle_s: float
    idle_runners: int
    storm_submissions: int
    storm_arriving_s: float
    storm_runners: int
    memory_cycles: tuple[int, ...]


QUICK = Sizes(
    mode="quick",
    unit_calls=100,
    cycle_runners=(1, 4, 16),
    cycle_round_s=2,
    cycle_rounds=2,
    queued_jobs=300,
    queued_rounds=1,
    latency_submits=100,
    latency_submits_single=30,
    pending=(100, 10_000),
    finished=(10_000, 50_000),
    claims=60,
    claims_in_a_row=2_000,
    leases_out=(10, 1_000),
    histories=(10, 1_000),
    classes=(30, 1_000),
    landings=15,
    rejudged=(100, 1_000),
    idle_s=8,
    idle_runners=200,
    storm_submissions=300,
    storm_arriving_s=3,
    storm_runners=20,
    memory_cycles=(200, 1_000),
)
FULL = Sizes(
    mode="full",
    unit_calls=500,
    cycle_runners=(1, 4, 16, 64),
    cycle_round_s=10,
    cycle_rounds=4,
    queued_jobs=2_000,
    queued_rounds=3,
    latency_submits=1_000,
    latency_submits_single=200,
    pending=(100, 10_000, 1_000_000),
    finished=(10_000, 1_000_000),
    claims=300,
    claims_in_a_row=20_000,
    leases_out=(10, 1_000, 10_000),
    histories=(10, 1_000, 20_000),
    classes=(30, 5_000),
    landings=60,
    rejudged=(1_000, 100_000),
    idle_s=60,
    idle_runners=200,
    storm_submissions=2_000,
    storm_arriving_s=10,
    storm_runners=20,
    memory_cycles=(1_000, 100_000),
)
