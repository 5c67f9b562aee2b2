"""One program in its folder: compiled and run once, and only told how that ended.

Guarantees: nothing of a submission runs outside the isolation, its compiler included; what the
ends mean is judged elsewhere (`runner.executor`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from runner.cgroup import Hierarchy
from runner.isolation import Isolation, Slot
from runner.languages import Toolchain
from runner.limits import KIB, MIB, Limits, Outcome, wall_limit_ms
from runner.place import Place, ShouldStop
from runner.wire import TaskLimits
from runner.workspace import WorkRoot

OUTPUT_BYTES_MAX = 16 * MIB
SCRATCH_BYTES_MAX = 64 * MIB
BINARY_BYTES_MAX = 64 * MIB

COMPILE_LIMITS = Limits(
    cpu_ms=30_000,
    wall_ms=30_000,
    memory_kib=1024 * KIB,
    output_bytes_max=64 * MIB,
    file_bytes_max=128 * MIB,
    scratch_bytes_max=256 * MIB,
)


def run_limits(limits: TaskLimits, expected_bytes: int) -> Limits:
    """Return the bounds of a run whose right answer has so many bytes."""
    return Limits(
        cpu_ms=limits.time_limit_ms,
        wall_ms=wall_limit_ms(limits.time_limit_ms),
        memory_kib=limits.memory_limit_kib,
        # A right answer must never be too long.
        output_bytes_max=max(OUTPUT_BYTES_MAX, 2 * expected_bytes),
        file_bytes_max=SCRATCH_BYTES_MAX,
        scratch_bytes_max=SCRATCH_BYTES_MAX,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A source in its folder, and what is compiled from it. Everything raises IsolationError,
    JobStoppedError and OSError."""

    toolchain: Toolchain
    place: Place

    def compile(self, limits: Limits, should_stop: ShouldStop) -> Outcome:
        """Compile, or only check, the source."""
        return self.place.run(
            self.toolchain.compile_argv(self.place.root),
            limits=limits,
            stdin=b"",
            compiling=True,
            should_stop=should_stop,
        )

    def run(self, limits: Limits, stdin: bytes, should_stop: ShouldStop) -> Outcome:
        """Run the program."""
        return self.place.run(
            self.toolchain.run_argv(self.place.root),
            limits=limits,
            stdin=stdin,
            compiling=False,
            should_stop=should_stop,
        )

    def has_binary(self) -> bool:
        """Whether compiling gave what can be run. Raises OSError."""
        binary = self.place.workspace.binaries / "main"
        return not self.toolchain.makes_binary or (
            binary.is_file()
            and not binary.is_symlink()
            and binary.stat().st_size <= BINARY_BYTES_MAX
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Programs:
    """Where programs are given folders. `hierarchy` is where control groups are made, if any."""

    isolation: Isolation
    work_root: WorkRoot
    hierarchy: Hierarchy | None

    @contextmanager
    def open(self, toolchain: Toolchain, source: bytes, slot: Slot) -> Iterator[Program]:
        """Give a program a folder of its own, which is removed at the end. Raises OSError."""
        with self.place(slot) as place:
            path = place.workspace.sources / toolchain.source_name
            path.write_bytes(source)
            path.chmod(0o644)
            yield Program(toolchain=toolchain, place=place)

    @contextmanager
    def place(self, slot: Slot) -> Iterator[Place]:
        """Give a slot a folder of its own, which is removed at the end. Raises OSError."""
        with self.work_root.workspace(slot.uid) as workspace:
            yield Place(
                workspace=workspace,
                slot=slot,
                isolation=self.isolation,
                hierarchy=self.hierarchy,
            )
