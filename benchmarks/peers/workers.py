"""Worker processes of a peer, started together. For the scripts of this folder alone.

A worker says "ready", begins at a line on its standard input, ends when it has drained its queue
or its input ends, and prints its numbers as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable

CATCH_UP_S = 2.0


class Workers:
    """`count` processes of a script, waiting for the start."""

    def __init__(self, script: str, url: str, mode: str, count: int) -> None:
        command = [sys.executable, script, "worker", "--url", url, "--mode", mode]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        for process in self._processes:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise SystemExit("a worker did not start")

    def begin(self) -> None:
        """Let all begin at once."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.write("go\n")
                process.stdin.flush()

    def numbers(self, *, drained: bool) -> list[float]:
        """End them, or wait until they have drained the queue; return what they measured."""
        found: list[float] = []
        for process in self._processes:
            if drained:
                out = process.stdout.read() if process.stdout is not None else ""
                process.wait()
            else:
                out, _ = process.communicate()
            if process.returncode:
                raise SystemExit("a worker failed")
            found.extend(json.loads(out))
        return found


def await_start() -> None:
    """Say that this worker is ready, and wait for the start."""
    print("ready", flush=True)
    sys.stdin.readline()


async def input_ended() -> None:
    """Return when the parent has closed this worker's standard input."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def paced(count: int, per_s: float, submit: Callable[[], None]) -> None:
    """Call `submit` at a steady pace; a late one is made up for, not left out."""
    began = time.monotonic()
    for number in range(count):
        left_s = began + number / per_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)
        submit()
    time.sleep(CATCH_UP_S)


def options() -> argparse.Namespace:
    """Return what the script was called with."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("drain", "latency", "worker"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--mode", default="drain")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--per-s", type=float, default=0)
    parser.add_argument("--workers", type=int, default=4)
    return parser.parse_args()


def show(numbers: list[float]) -> None:
    """Print what was measured."""
    print(json.dumps(numbers), flush=True)
