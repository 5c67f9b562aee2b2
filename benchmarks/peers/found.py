"""Which peers there are, and which of them are on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.bench import Bench


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """A queue of somebody else's. `listens`: its workers are told of new jobs, or block on them."""

    name: str
    script: str
    url: Callable[[Bench], str]
    listens: bool = True

    def measure(self, bench: Bench, role: str, *arguments: str) -> list[float]:
        """Measure it; return the numbers.

        Raises:
            Missing: it is not on this machine, or failed on it.
        """
        return bench.peers.run(self.script, role, "--url", self.url(bench), *arguments)


PEERS = (
    Peer(name="Celery + Redis", script="celery_peer", url=lambda bench: bench.redis_url),
    Peer(name="PgQueuer one by one", script="pgqueuer_peer", url=lambda bench: bench.postgres_dsn),
    Peer(name="Procrastinate", script="procrastinate_peer", url=lambda bench: bench.postgres_dsn),
    Peer(
        name="mongo-taskqueue",
        script="mongo_taskqueue_peer",
        url=lambda bench: bench.mongod.uri_for("bench_mongo_taskqueue"),
        listens=False,
    ),
)
