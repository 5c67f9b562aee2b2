"""mongo-taskqueue: one collection, `next` and `on_success`, on the run's own replica set."""

from __future__ import annotations

import time

from mongotq import get_task_queue
from mongotq.task import Task
from workers import Workers, await_start, options, show

VISIBLE_S = 60


def main() -> None:
    """Drain jobs queued beforehand."""
    asked = options()
    queue = get_task_queue(
        database_name="bench_mongo_taskqueue",
        collection_name="jobs",
        host=asked.url,
        ttl=-1,
        visibility_timeout=VISIBLE_S,
        client_options={"w": "majority", "journal": True},
    )
    if asked.role == "worker":
        queue.size()
        await_start()
        times: list[float] = []
        while (task := queue.next()) is not None:
            queue.on_success(task)
            times.append(time.monotonic())
        show(times)
        return
    queue.bulk_append([Task(payload=None, priority=0) for _ in range(asked.jobs)])
    workers = Workers(__file__, asked.url, asked.role, asked.workers)
    workers.begin()
    show(workers.numbers(drained=True))


if __name__ == "__main__":
    main()
