"""What is wrong with a machine, and is no program's doing.

Guarantees: values only. Whoever catches a `MachineFaultError` gives the job back; no verdict is
made of it.
"""

from __future__ import annotations


class MachineFaultError(Exception):
    """The machine kept a program from being judged; the message names the fault, for people.

    `unsound`: the fault is there whatever the program is, so the language cannot be judged here
    until it is gone.
    """

    def __init__(self, reason: str, *, unsound: bool = False) -> None:
        super().__init__(reason)
        self.unsound = unsound
