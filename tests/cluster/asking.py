"""Asks the service while its primary is cut off: with a phantom, or with a newer one elected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from dispatch.concerns import DURABLE, SOFT
from tests.cluster.cut_off import BLOCKED_S, Drop, Write, choose_heir, elect
from tests.cluster.replica_set import ReplicaSet
from tests.factories import Service

Ask = Callable[[], Any]
FailOver = Callable[[], None]
Served = Callable[[Drop | None], Service]


class Asked:
    """What was asked at once, each by a thread of its own."""

    def __init__(self, asks: Mapping[str, Ask]) -> None:
        self._pool = ThreadPoolExecutor(len(asks))
        self._futures: dict[str, Future[Any]] = {
            name: self._pool.submit(ask) for name, ask in asks.items()
        }

    def answered(self) -> set[str]:
        """What has been answered within a moment."""
        wait(self._futures.values(), BLOCKED_S)
        return {name for name, future in self._futures.items() if future.done()}

    def outcomes(self) -> dict[str, Any]:
        """Every answer's status, or what was raised, as soon as all are there."""
        with self._pool:
            return {name: _outcome(future) for name, future in self._futures.items()}


def _outcome(future: Future[Any]) -> Any:
    error = future.exception()
    return error if error is not None else getattr(future.result(), "status_code", future.result())


@contextmanager
def phantom(replica_set: ReplicaSet, service: Service, write: Write) -> Iterator[FailOver]:
    """Cut the primary off with a phantom; yield what has another elected and mends all."""
    old = replica_set.await_healthy()
    heir = choose_heir(replica_set, old)
    replica_set.isolate(old, clients_too=False)
    with old.client(limit_s=10) as client:
        write(client.get_database(service.database.name, write_concern=SOFT))

    def fail_over() -> None:
        elect(heir)
        replica_set.mend()

    yield fail_over
    replica_set.await_healthy()


@contextmanager
def overtaken(replica_set: ReplicaSet, service: Service, write: Write) -> Iterator[None]:
    """Have a newer primary go on by itself, while the service asks the old one."""
    old = replica_set.await_healthy()
    heir = choose_heir(replica_set, old)
    replica_set.isolate(*(member for member in replica_set.members if member is not old))
    elect(heir)
    with heir.client(limit_s=10) as client:
        write(client.get_database(service.database.name, write_concern=DURABLE))
    yield
    replica_set.mend()
    replica_set.await_healthy()
