"""Celery on Redis, durable: `acks_late`, a result backend, prefork workers, nothing prefetched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

from celery import Celery
from workers import options, paced, show

URL = "BENCH_REDIS_URL"
RESULT_S_MAX = 600

app = Celery("celery_peer", broker=os.environ.get(URL), backend=os.environ.get(URL))
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop() -> float:
    """Return when it ran, on the machine's monotonic clock."""
    return time.monotonic()


def start_workers(count: int) -> subprocess.Popen[bytes]:
    """Start one Celery worker with so many processes."""
    command = [sys.executable, "-m", "celery", "-A", "celery_peer", "worker", "-P", "prefork"]
    command += ["-c", str(count), "-l", "error", "--without-gossip", "--without-mingle"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def drain(jobs: int, workers: int) -> list[float]:
    """Return when each of the jobs queued beforehand ran."""
    sent = [noop.delay() for _ in range(jobs)]
    process = start_workers(workers)
    try:
        return [float(each.get(timeout=RESULT_S_MAX)) for each in sent]
    finally:
        process.terminate()
        process.wait()


def latency(jobs: int, per_s: float, workers: int) -> list[float]:
    """Return how soon each job started, in ms."""
    process = start_workers(workers)
    try:
        for warm in [noop.delay() for _ in range(4 * workers)]:
            warm.get(timeout=RESULT_S_MAX)
        sent: list[tuple[float, Any]] = []

        def send() -> None:
            began = time.monotonic()
            sent.append((began, noop.delay()))

        paced(jobs, per_s, send)
        return [1000 * (each.get(timeout=RESULT_S_MAX) - began) for began, each in sent]
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Measure what was asked for."""
    asked = options()
    if os.environ.get(URL) != asked.url:
        # The workers import this file, too, and have to find the same Redis.
        os.environ[URL] = asked.url
        os.execv(sys.executable, [sys.executable, *sys.argv])
    app.control.purge()
    if asked.role == "drain":
        show(drain(asked.jobs, asked.workers))
    else:
        show(latency(asked.jobs, asked.per_s, asked.workers))


if __name__ == "__main__":
    main()
