"""How much the queue's reads and writes may rely on what they meet.

A failover takes back what no majority of the members has, and a primary that has been cut off
still answers reads for a while. So:

- A write is acknowledged when a majority has it (`DURABLE`); so is the news that a guard did not
  hold, which waits for a majority to have all that the guard saw. (Not that nothing is newer: what
  follows from such news is something that stays true, or looks again.)
- A read is of what a majority has (`MAJORITY`), wherever something else is done because of it:
  another document is written, or somebody is told.
- What a runner is told for good, so that it drops a result, is read with proof that no newer
  primary has gone on without this one (`LINEARIZABLE`). That costs a durable write.
- A read may be of the newest state (`LOCAL`) where the write that follows guards that very
  document, or where being wrong for a moment costs nothing.
"""

from __future__ import annotations

from pymongo import WriteConcern
from pymongo.read_concern import ReadConcern

DURABLE = WriteConcern("majority", j=True, wtimeout=10_000)
"""Acknowledged means on the disks of a majority: a failover loses no claim and no landing."""
SOFT = WriteConcern(1)
"""For notes whose loss in a failover costs nothing."""

MAJORITY = ReadConcern("majority")
LOCAL = ReadConcern("local")
LINEARIZABLE = ReadConcern("linearizable")
LINEARIZABLE_MS_MAX = 5_000
"""How long a linearizable read may take: a primary that is cut off would wait for its members."""
