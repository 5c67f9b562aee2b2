"""Which peers there are, and which of them are on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.servers import Missing


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """A queue of somebody else's. `listens`: its workers are told of new jobs, or block on them."""

    name: str
    script: str
    url: Callable[[Bench], str]
    listens: bool = True

    def there(self, bench: Bench, role: str, *arguments: str) -> Callable[[], list[float]] | None:
        """Return what measures it; None, loudly, where it is missing."""
        try:
            python, url = bench.peers, self.url(bench)
        except Missing as missing:
            bench.say(f"*** {self.name} SKIPPED: {missing}")
            return None
        return lambda: python.run(self.script, role, "--url", url, *arguments)


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
