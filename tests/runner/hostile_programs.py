"""The hostile programs under `hostile/`, what each may use, and how each must end.

A program that probes prints `contained` where everything it tried was refused, and what it got
through to otherwise: for it AC means contained.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.wire import Verdict
from tests.runner.support import CPP, PYTHON, C

FOLDER = Path(__file__).parent / "hostile"
LANGUAGES = {".c": C, ".cpp": CPP, ".py": PYTHON}
CONTAINED = b"contained\n"

AC, WA, CE, TLE, MLE, RE, OLE = (
    Verdict.AC, Verdict.WA, Verdict.CE, Verdict.TLE, Verdict.MLE, Verdict.RE, Verdict.OLE
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One program and the verdicts that are right for it."""

    file: str
    verdicts: tuple[Verdict, ...]
    memory_mib: int = 64
    time_ms: int = 200

    @property
    def language(self) -> int:
        return LANGUAGES[Path(self.file).suffix]

    @property
    def source(self) -> str:
        return (FOLDER / self.file).read_text()


def attack(file: str, *verdicts: Verdict, memory_mib: int = 64, time_ms: int = 200) -> Attack:
    return Attack(file=file, verdicts=verdicts, memory_mib=memory_mib, time_ms=time_ms)


AT_RUN_TIME = (
    # Reading what is not its own.
    attack("reads_host_files.py", AC, time_ms=2000),
    attack("reads_host_files.c", AC),
    attack("reads_secrets.py", AC, time_ms=2000),
    attack("reads_the_expected_output.py", AC, time_ms=2000),
    attack("reads_another_job.py", AC, time_ms=2000),
    # The network, the API on loopback, the host by other families.
    attack("opens_sockets.py", AC, time_ms=5000),
    attack("opens_sockets.c", AC),
    # Processes and time.
    attack("forks_for_ever.c", TLE, MLE),
    attack("forks_for_ever.py", TLE, MLE),
    attack("starts_threads_for_ever.cpp", TLE, MLE),
    attack("runs_from_its_parent.c", AC, WA, TLE),
    attack("counts_its_processes.py", AC, memory_mib=512, time_ms=2000),
    attack("burns_time_in_children.c", TLE),
    attack("has_children_that_nobody_waits_for.c", TLE),
    attack("burns_time_in_threads.cpp", TLE),
    attack("sleeps_for_ever.py", TLE),
    attack("sleeps_for_ever.c", TLE),
    attack("stops_itself.c", TLE),
    attack("ignores_signals.py", TLE),
    attack("ignores_signals.c", TLE),
    attack("leaves_a_daemon.py", AC),
    attack("leaves_a_daemon.c", AC, TLE),
    attack("closes_its_pipes.py", TLE),
    attack("kills_everything.py", AC, RE),
    attack("kills_everything.c", AC, RE, TLE),
    attack("kills_its_group.c", RE),
    # Memory, of the whole tree.
    attack("allocates_for_ever.c", MLE, time_ms=2000),
    attack("allocates_for_ever.cpp", MLE, time_ms=2000),
    attack("allocates_for_ever.py", MLE, time_ms=2000),
    attack("allocates_in_a_child.py", MLE, time_ms=2000),
    attack("allocates_in_many_children.c", MLE, time_ms=2000),
    attack("allocates_shared_memory.c", RE, time_ms=2000),
    attack("one_huge_global.c", MLE, time_ms=2000),
    attack("recurses_for_ever.c", MLE, RE, time_ms=2000),
    attack("populates_memory.c", MLE, time_ms=2000),
    attack("fills_pipes.c", MLE, TLE),
    attack("fills_message_queues.c", AC, MLE, time_ms=2000),
    attack("fills_sockets.c", AC, MLE, time_ms=2000),
    attack("rises_above_its_limit_for_a_moment.c", MLE, time_ms=2000),
    attack("rises_above_its_limit_at_its_end.c", MLE, time_ms=2000),
    # Files.
    attack("writes_anywhere.py", AC, time_ms=2000),
    attack("fills_tmp.py", AC, memory_mib=512, time_ms=2000),
    attack("fills_tmp_over_its_memory.py", MLE, memory_mib=48, time_ms=2000),
    attack("makes_files_for_ever.py", TLE, MLE),
    attack("makes_deep_folders.py", AC, TLE, MLE),
    attack("writes_a_sparse_terabyte.c", AC),
    attack("replaces_itself_by_a_link.py", AC, time_ms=2000),
    attack("replaces_its_output_by_a_link.c", AC),
    # Rights.
    attack("wants_more_rights.c", AC),
    attack("calls_as_another_architecture.c", RE),
    # Output.
    attack("prints_for_ever.c", OLE, time_ms=5000),
    attack("prints_errors_for_ever.py", OLE, time_ms=5000),
    attack("prints_100_mb.c", OLE, time_ms=5000),
    attack("prints_10_million_blank_lines.c", AC, time_ms=5000),
    attack("prints_any_bytes.py", WA, time_ms=2000),
)

NO_PROGRAM_COMES_OF = (
    "includes_a_host_file.c",
    "includes_random.c",
    "includes_zero.cpp",
    "includes_its_input.c",
    "includes_itself.c",
    "includes_itself_twice.cpp",
    "embeds_a_host_file.c",
    "embeds_zero.c",
    "embeds_the_runners_memory.c",
    "two_gigabytes_of_data.c",
    "repeats_in_the_assembler.c",
    "a_template_bomb.cpp",
    "a_macro_bomb.c",
    "endless_errors.cpp",
    "a_constant_that_never_ends.cpp",
    "a_plugin.c",
    "nested_without_end.py",
    "blocks_without_end.py",
    "a_foreign_coding.py",
)
AT_COMPILE_TIME = (
    *(attack(f"compile/{file}", CE) for file in NO_PROGRAM_COMES_OF),
    attack("compile/includes_the_environment.c", AC),
    attack("compile/a_huge_constant.py", MLE, RE, time_ms=2000),
)

# Where memory is only sampled and each process bounded: what an rlimit ends may be an RE, and so is
# a child, or a socket, that is refused.
WITHOUT_GROUPS = (
    attack("forks_for_ever.c", RE, TLE, MLE),
    attack("forks_for_ever.py", RE, TLE, MLE, time_ms=2000),
    attack("starts_threads_for_ever.cpp", RE, TLE, MLE),
    attack("burns_time_in_children.c", RE, TLE),
    attack("burns_time_in_threads.cpp", TLE),
    attack("has_children_that_nobody_waits_for.c", RE, TLE),
    attack("leaves_a_daemon.c", AC, RE, TLE),
    attack("leaves_a_daemon.py", AC, RE, TLE, time_ms=2000),
    attack("opens_sockets.c", AC),
    attack("allocates_for_ever.c", MLE, time_ms=2000),
    attack("allocates_in_a_child.py", MLE, RE, time_ms=2000),
    attack("allocates_in_many_children.c", MLE, RE, WA, time_ms=2000),
    attack("allocates_shared_memory.c", RE, time_ms=2000),
    attack("fills_message_queues.c", AC, time_ms=2000),
    attack("fills_sockets.c", AC, time_ms=2000),
    attack("fills_pipes.c", AC, RE, MLE, TLE),
    attack("rises_above_its_limit_for_a_moment.c", MLE, time_ms=2000),
    attack("rises_above_its_limit_at_its_end.c", MLE, time_ms=2000),
    attack("one_huge_global.c", MLE, RE, time_ms=2000),
    attack("populates_memory.c", MLE, time_ms=2000),
    attack("fills_tmp.py", AC, memory_mib=512, time_ms=2000),
    attack("wants_more_rights.c", AC),
)
