"""Procrastinate on PostgreSQL, one job at a time per worker, each a process of its own."""

from __future__ import annotations

import asyncio
import time

from procrastinate import App, PsycopgConnector
from workers import CATCH_UP_S, Workers, await_start, input_ended, options, show

numbers: list[float] = []


def open_app(url: str) -> App:
    """Return the app with its one task."""
    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name="noop", queue="bench")
    async def noop(sent_s: float | None = None) -> None:
        now = time.monotonic()
        numbers.append(now if sent_s is None else 1000 * (now - sent_s))

    return app


async def work(url: str, mode: str) -> None:
    """Drain the queue, or judge what comes until the input ends."""
    app = open_app(url)
    async with app.open_async():
        await app.check_connection_async()
        await_start()
        if mode == "drain":
            await app.run_worker_async(wait=False, listen_notify=False, queues=["bench"])
        else:
            running = asyncio.create_task(
                app.run_worker_async(queues=["bench"], install_signal_handlers=False)
            )
            await input_ended()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    show(numbers)


async def main() -> None:
    """Queue jobs, and have them drained or measure how soon each starts."""
    asked = options()
    if asked.role == "worker":
        await work(asked.url, asked.mode)
        return
    app = open_app(asked.url)
    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
        noop = app.tasks["noop"]
        if asked.role == "drain":
            await noop.batch_defer_async(*[{} for _ in range(asked.jobs)])
        workers = Workers(__file__, asked.url, asked.role, asked.workers)
        workers.begin()
        if asked.role == "latency":
            await asyncio.sleep(1)  # until everybody listens
            began = time.monotonic()
            for number in range(asked.jobs):
                await asyncio.sleep(max(0.0, began + number / asked.per_s - time.monotonic()))
                await noop.defer_async(sent_s=time.monotonic())
            await asyncio.sleep(CATCH_UP_S)
        show(workers.numbers(drained=asked.role == "drain"))


if __name__ == "__main__":
    asyncio.run(main())
