"""Row 3: from a submit to the runner that has the job, with runners that wait for it.

Counted from the moment the submit is sent to the moment the waiting runner has read its job. The
peers: from the call that queues a no-op to the no-op's first line.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import client
from benchmarks.bench import Bench
from benchmarks.client import Connection, Refused, RunnerKey
from benchmarks.load import Crowd, sleep_until
from benchmarks.peers.found import PEERS, Peer
from benchmarks.report import Line, line
from benchmarks.servers import Missing, service
from benchmarks.stats import summarise
from benchmarks.world import CODE, PROBLEM, World, furnish

ROW = "3 submit to claim"
OURS = "judge-dispatch"
PER_S = 20.0
SINGLE_PER_S = 5.0
RUNNERS = 50
PEER_WORKERS = 4
WAIT_S = 30
SUBMITTERS = 8
TURNED_AWAY_PAUSE_S = 1.0
CATCH_UP_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyShare:
    """A runner's part, or (no runner) a submitter's. A runner ends `seconds` after the start.

    `moments_s`: when to submit, from the start.
    """

    port: int
    runner: RunnerKey | None
    keys: tuple[str, ...]
    moments_s: tuple[float, ...] = ()
    seconds: float


Event = tuple[str, str, float, float]
"""What (`sent`, `claimed`, `turned away`), the submission's id, and two moments in s: when a submit
was sent and answered, or when a poll was sent and answered."""


def play(share: LatencyShare, start_at: float) -> list[Event]:
    """Play a share."""
    if share.runner is None:
        return _submit(share, start_at)
    return _wait(share, share.runner, start_at)


def _submit(share: LatencyShare, start_at: float) -> list[Event]:
    events: list[Event] = []
    chance = random.Random(len(share.moments_s))
    with Connection(share.port) as connection:
        connection.request("GET", "/healthz", "none")
        for moment_s in share.moments_s:
            sleep_until(start_at + moment_s)
            sent = time.monotonic()
            status, submission_id = client.submit(
                connection, chance.choice(share.keys), PROBLEM, CODE
            )
            if status != 201:
                raise Refused(f"submit: {status}")
            events.append(("sent", submission_id, sent, time.monotonic()))
    return events


def _wait(share: LatencyShare, runner: RunnerKey, start_at: float) -> list[Event]:
    events: list[Event] = []
    until = start_at + share.seconds
    with Connection(share.port) as connection:
        while (asked := time.monotonic()) < until:
            wait_s = max(1, min(WAIT_S, int(until - asked)))
            job = client.next_job(connection, runner, wait_s)
            now = time.monotonic()
            if job is None:
                if now - asked < wait_s - 1:
                    events.append(("turned away", "", asked, now))
                    time.sleep(TURNED_AWAY_PAUSE_S)
                continue
            events.append(("claimed", job["submission_id"], asked, now))
            client.complete(connection, runner, job, True)
    return events


def run(bench: Bench) -> Iterator[Line]:
    """Measure ours with many waiting runners and with one, and the peers."""
    with service(bench.mongod.uri_for("bench_latency"), bench.folder) as api:
        world = furnish(api, RUNNERS)
        for runners, per_s, submits in (
            (RUNNERS, PER_S, bench.sizes.latency_submits),
            (1, SINGLE_PER_S, bench.sizes.latency_submits_single),
        ):
            case = f"{runners} waiting, {per_s:g} submits/s"
            bench.say(f"{case}, {OURS}")
            yield _ours(bench.crowd, world, runners, per_s, submits, case)
    for workers, per_s, submits in (
        (PEER_WORKERS, PER_S, bench.sizes.latency_submits),
        (1, SINGLE_PER_S, bench.sizes.latency_submits_single),
    ):
        arguments = ("--jobs", str(submits), "--per-s", str(per_s), "--workers", str(workers))
        case = f"{workers} waiting, {per_s:g} submits/s"
        for peer in PEERS:
            if peer.listens:
                bench.say(f"{case}, {peer.name}")
                yield _peer(bench, peer, case, arguments)


def _peer(bench: Bench, peer: Peer, case: str, arguments: tuple[str, ...]) -> Line:
    try:
        latencies_ms = peer.measure(bench, "latency", *arguments)
    except Missing as missing:
        bench.say(f"*** {peer.name} LEFT OUT: {missing}")
        return Line(row=ROW, case=case, who=peer.name, note=f"LEFT OUT: {missing}")
    return line(ROW, case, peer.name, summarise(latencies_ms))


def _ours(crowd: Crowd, world: World, runners: int, per_s: float, submits: int, case: str) -> Line:
    seconds = 1 + submits / per_s + CATCH_UP_S
    moments = [1 + number / per_s for number in range(submits)]
    # A slow submit must not hold up the next.
    submitters = [tuple(moments[first::SUBMITTERS]) for first in range(SUBMITTERS)]
    shares = [
        LatencyShare(port=world.port, runner=None, keys=world.keys, moments_s=own, seconds=seconds)
        for own in submitters
    ] + [
        LatencyShare(port=world.port, runner=runner, keys=world.keys, seconds=seconds)
        for runner in world.runners[:runners]
    ]
    measured = crowd.run(play, shares)
    events = measured.results
    sent = {event[1]: event for event in events if event[0] == "sent"}
    claimed = {event[1]: event[3] for event in events if event[0] == "claimed"}
    both = [submission_id for submission_id in sent if submission_id in claimed]
    total_ms = [1000 * (claimed[each] - sent[each][2]) for each in both]
    answered_ms = summarise([1000 * (sent[each][3] - sent[each][2]) for each in both])
    after_ms = summarise([max(0.0, 1000 * (claimed[each] - sent[each][3])) for each in both])
    away = sum(event[0] == "turned away" for event in events)
    note = (
        f"the submit's own answer {answered_ms.median:.1f}/{answered_ms.p99:.1f} ms, "
        f"after it {after_ms.median:.1f}/{after_ms.p99:.1f} ms (median/p99); "
        f"clients {measured.cores:.2f} cores; polls turned away {away}"
    )
    if len(both) < submits:
        note += f"; NOT CLAIMED in time: {submits - len(both)}"
    return line(ROW, case, OURS, summarise(total_ms), note=note)
