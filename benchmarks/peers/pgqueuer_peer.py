"""PgQueuer, job by job (`batch_size=1`), on PostgreSQL, each worker a process of its own."""

from __future__ import annotations

import asyncio
import time

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode
from workers import CATCH_UP_S, Workers, await_start, input_ended, options, show


async def work(url: str, mode: str) -> None:
    """Drain the queue, or judge what comes until the input ends."""
    connection = await asyncpg.connect(url)
    peer = PgQueuer.from_asyncpg_connection(connection)
    numbers: list[float] = []

    @peer.entrypoint("noop")
    async def noop(job: Job) -> None:
        now = time.monotonic()
        numbers.append(now if mode == "drain" else 1000 * (now - float(job.payload or b"0")))

    await_start()
    execution = QueueExecutionMode.drain if mode == "drain" else QueueExecutionMode.continuous
    running = asyncio.create_task(peer.qm.run(batch_size=1, mode=execution))
    if mode != "drain":
        await input_ended()
        peer.shutdown.set()
    await running
    show(numbers)


async def main() -> None:
    """Queue jobs, and have them drained or measure how soon each starts."""
    asked = options()
    if asked.role == "worker":
        await work(asked.url, asked.mode)
        return
    connection = await asyncpg.connect(asked.url)
    queries = Queries.from_asyncpg_connection(connection)
    if not await queries.schema_is_installed():
        await queries.install()
    await queries.clear_queue()
    if asked.role == "drain":
        await queries.enqueue(["noop"] * asked.jobs, [None] * asked.jobs, [0] * asked.jobs)
    workers = Workers(__file__, asked.url, asked.role, asked.workers)
    workers.begin()
    if asked.role == "latency":
        await asyncio.sleep(1)  # until everybody listens
        began = time.monotonic()
        for number in range(asked.jobs):
            await asyncio.sleep(max(0.0, began + number / asked.per_s - time.monotonic()))
            await queries.enqueue("noop", str(time.monotonic()).encode())
        await asyncio.sleep(CATCH_UP_S)
    show(workers.numbers(drained=asked.role == "drain"))
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
