"""One job's place on this machine: its folder, its user, the walls around it.

Guarantees: nothing of a submission runs but through `Place.run`, so that every run has its limits,
its books and its walls; a run finds nothing of the one before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runner.accounting import Account, ProcAccount
from runner.cgroup import CgroupAccount, Hierarchy
from runner.isolation import Command, Isolation, Launch, Slot
from runner.limits import Limits, Outcome
from runner.process import run
from runner.streams import sealed_input
from runner.workspace import Workspace, empty

ShouldStop = Callable[[], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where one job's programs run. `hierarchy` is where control groups are made, if any."""

    workspace: Workspace
    slot: Slot
    isolation: Isolation
    hierarchy: Hierarchy | None

    @property
    def root(self) -> str:
        """Where programs find the job's folder."""
        return self.isolation.root(self.workspace)

    def run(
        self,
        program: list[str],
        *,
        limits: Limits,
        stdin: bytes,
        compiling: bool,
        should_stop: ShouldStop,
    ) -> Outcome:
        """Run a program to its end. Raises IsolationError, JobStoppedError and OSError."""
        account: Account = (
            ProcAccount(walls=self.isolation.processes)
            if self.hierarchy is None
            else CgroupAccount(self.hierarchy, limits)
        )
        # A compiler needs its parts as children; it is bounded, but what it is given is no number
        # that anybody is shown.
        alone = not account.enforces_memory and not compiling
        filters = self.isolation.filters
        try:
            with sealed_input(filters.alone if alone else filters.usual) as filter_fd:

                def build(status_fd: int) -> Command:
                    return self.isolation.command(
                        Launch(
                            program=program,
                            workspace=self.workspace,
                            slot=self.slot,
                            limits=limits,
                            memory_enforced=account.enforces_memory,
                            compiling=compiling,
                            status_fd=status_fd,
                            filter_fd=filter_fd,
                        )
                    )

                return run(
                    build,
                    stdin=stdin,
                    limits=limits,
                    account=account,
                    should_stop=should_stop,
                    owner=self.slot.uid,
                    core=self.slot.core,
                )
        finally:
            account.close()
            # Without a private /tmp the next run must not find what this one wrote.
            empty(self.workspace.scratch)
