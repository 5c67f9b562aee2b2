"""How much the queue's reads and writes may rely on what they meet.

A failover takes back what no majority of the members has, and a primary that has been cut off
still answers reads for a while. So:

- A write is acknowledged when a majority has it (`DURABLE`); so is the news that a guard did not
  hold, which waits for a majority to have all that the guard saw. (Not that nothing is newer: what
  follows from such news is something that stays true, or looks again.)
- A read is of what a majority has (`MAJORITY`), wherever something else is done because of it:
  another document is written, or somebody is told.
- What a runner is told for good, so that it drops a result, is read with proof that no newer
  primary has gone on without this one (`proven`). That costs a durable write.
- A read may be of the newest state (`LOCAL`) where the write that follows guards that very
  document, or where being wrong for a moment costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo import MongoClient, WriteConcern
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

DURABLE = WriteConcern("majority", j=True, wtimeout=10_000)
"""Acknowledged means on the disks of a majority: a failover loses no claim and no landing."""
SOFT = WriteConcern(1)
"""For notes whose loss in a failover costs nothing."""

MAJORITY = ReadConcern("majority")
LOCAL = ReadConcern("local")
PROOFS = "proofs"
"""The collection of the writes that prove a read. Nobody reads it."""


@contextmanager
def proven(database: Database[dict[str, Any]]) -> Iterator[ClientSession | None]:
    """Yield a session whose majority reads are at least as new as all acknowledged before.

    By a durable write first: a primary that has been cut off, and knows nothing of what another
    acknowledges, does not get it acknowledged. (A linearizable read does the same, and waits up to
    100 ms for the journal.) None on the in-process store, which has no sessions.

    Raises:
        PyMongoError: there is no such proof; this primary may have been cut off.
    """
    client: Any = database.client
    if not isinstance(client, MongoClient):
        yield None
        return
    with client.start_session(causal_consistency=True) as session:
        proofs = database.get_collection(PROOFS).with_options(write_concern=DURABLE)
        proofs.update_one({"_id": 0}, {"$inc": {"given": 1}}, upsert=True, session=session)
        yield session
