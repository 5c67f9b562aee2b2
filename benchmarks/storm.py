"""Row 6: the minutes before a deadline: submissions come faster than they can be judged.

Runners hold a job for a fixed time, one at a time, and send heartbeats on a beat of their own. What
counts: when the last verdict has landed, against the best that so many runners could do; that no
heartbeat is late, no lease lost, and nothing answered with an error.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import client
from benchmarks.bench import Bench
from benchmarks.client import Connection, RunnerKey
from benchmarks.load import Measured, sleep_until
from benchmarks.report import Line, line
from benchmarks.servers import Service, service
from benchmarks.stats import Summary, best_makespan_s, longest_gap_s, ratio, summarise
from benchmarks.world import CODE, PROBLEM, World, furnish

ROW = "6 deadline storm"
JOB_S = 0.2
WAIT_S = 2
BEAT_EVERY_S = 5.0
"""A third of what the service asks for, so that a short storm sees several."""
BEAT_LATE_S = 15.0
"""Half a lease: later than that, one lost heartbeat more would cost the lease."""
SUBMITTERS = 32
NOTHING_LEFT_S = 6.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StormShare:
    """A submitter's part (`moments_s`: when, from the start), or a runner's."""

    port: int
    keys: tuple[str, ...] = ()
    moments_s: tuple[float, ...] = ()
    runner: RunnerKey | None = None
    arriving_s: float = 0.0


Event = tuple[str, str, float, float]
"""What, whose (a submission, a runner, a status), and when it was asked and answered, in s."""


def play(share: StormShare, start_at: float) -> list[Event]:
    """Play a share."""
    if share.runner is None:
        return _submit(share, start_at)
    return _Judge(share, share.runner).run(start_at)


def _submit(share: StormShare, start_at: float) -> list[Event]:
    events: list[Event] = []
    chance = random.Random(share.moments_s[0])
    with Connection(share.port) as connection:
        for moment_s in share.moments_s:
            sleep_until(start_at + moment_s)
            asked = time.monotonic()
            status, submission_id = client.submit(
                connection, chance.choice(share.keys), PROBLEM, CODE
            )
            what = "submitted" if status == 201 else f"submit {status}"
            events.append((what, submission_id, asked, time.monotonic()))
    return events


class _Judge:
    """One runner: a thread that judges, and one for the heartbeats."""

    def __init__(self, share: StormShare, runner: RunnerKey) -> None:
        self._share = share
        self._runner = runner
        self._holding = ""
        self._judging = ""
        self._over = threading.Event()
        self._events: list[Event] = []

    def run(self, start_at: float) -> list[Event]:
        beats = threading.Thread(target=self._beat)
        beats.start()
        try:
            sleep_until(start_at)
            with Connection(self._share.port) as connection:
                self._judge(connection, start_at + self._share.arriving_s)
        finally:
            self._over.set()
            beats.join()
        return self._events

    def _judge(self, connection: Connection, all_there_at: float) -> None:
        last_job = time.monotonic()
        while time.monotonic() < max(all_there_at, last_job) + NOTHING_LEFT_S:
            job = client.next_job(connection, self._runner, WAIT_S)
            if job is None:
                continue
            claimed = last_job = time.monotonic()
            self._holding = self._judging = job["job_id"]
            sleep_until(claimed + JOB_S)
            self._judging = ""
            status = client.complete(connection, self._runner, job, True)
            self._holding = ""
            last_job = time.monotonic()
            what = "landed" if status == 204 else f"complete {status}"
            self._events.append((what, job["submission_id"], claimed, last_job))

    def _beat(self) -> None:
        path = f"/runners/{self._runner.runner_id}/heartbeat"
        with Connection(self._share.port) as connection:
            while not self._over.wait(BEAT_EVERY_S):
                holding = self._holding
                beat = {"active_job_ids": [holding] if holding else [], "report_lost": True}
                asked = time.monotonic()
                status, answer = connection.request(
                    "POST", path, self._runner.token, json.dumps(beat).encode()
                )
                what = "beat" if status == 200 else f"beat {status}"
                # What is being reported may be landed already: no longer held, and not lost.
                lost = json.loads(answer)["lost_job_ids"] if status == 200 else []
                if lost and self._judging == holding:
                    self._events.append(("lost", holding, asked, time.monotonic()))
                self._events.append((what, self._runner.runner_id, asked, time.monotonic()))


def run(bench: Bench) -> Iterator[Line]:
    """Let it come down once."""
    sizes = bench.sizes
    database = "bench_storm"
    with service(bench.mongod.uri_for(database), bench.folder) as api:
        world = furnish(api, sizes.storm_runners)
        bench.say(f"{sizes.storm_submissions} submissions, {sizes.storm_runners} runners")
        before_s = api.cpu_s()
        measured = bench.crowd.run(play, _shares(bench, world))
        api_cores = (api.cpu_s() - before_s) / measured.wall_s
        verdicts = bench.mongo[database]["submissions"].count_documents({"status": {"$gte": 0}})
        yield from _lines(bench, api, measured, api_cores, verdicts)


def _shares(bench: Bench, world: World) -> list[StormShare]:
    sizes = bench.sizes
    moments = [
        number / sizes.storm_submissions * sizes.storm_arriving_s
        for number in range(sizes.storm_submissions)
    ]
    return [
        StormShare(port=world.port, keys=world.keys, moments_s=tuple(moments[first::SUBMITTERS]))
        for first in range(SUBMITTERS)
    ] + [
        StormShare(port=world.port, runner=runner, arriving_s=sizes.storm_arriving_s)
        for runner in world.runners
    ]


def _lines(
    bench: Bench, api: Service, measured: Measured[Event], api_cores: float, verdicts: int
) -> Iterator[Line]:
    sizes = bench.sizes
    case = (
        f"{sizes.storm_submissions:,} in {sizes.storm_arriving_s:g} s, "
        f"{sizes.storm_runners} runners, {1000 * JOB_S:g} ms each"
    )
    events = measured.results
    submitted = {event[1]: event for event in events if event[0] == "submitted"}
    landed = {event[1]: event for event in events if event[0] == "landed"}
    began = min(event[2] for event in submitted.values())
    best_s = best_makespan_s(
        sizes.storm_submissions, JOB_S, sizes.storm_runners, sizes.storm_arriving_s
    )
    took_s = max(event[3] for event in landed.values()) - began
    expected = {"submitted", "landed", "beat"}
    odd = Counter(event[0] for event in events if event[0] not in expected)
    yield Line(
        row=ROW,
        case=case,
        who="until the last verdict",
        unit="s",
        median=took_s,
        count=verdicts,
        rate_per_s=len(landed) / took_s,
        ratio=ratio(took_s, best_s),
        against=f"to the best possible, {best_s:.1f} s",
        note=(
            f"{verdicts:,} of {sizes.storm_submissions:,} have a verdict; "
            f"errors, lost leases: {dict(odd) or 'none'}; cores: clients {measured.cores:.2f}, "
            f"{api.processes} API processes {api_cores:.2f}"
        ),
    )
    both = [each for each in submitted if each in landed]
    yield line(
        ROW, case, "submit's answer", _ms([event[3] - event[2] for event in submitted.values()])
    )
    yield line(
        ROW,
        case,
        "submit to verdict",
        _ms([landed[each][3] - submitted[each][2] for each in both]),
    )
    beats = [event for event in events if event[0] == "beat"]
    if beats:
        yield _heartbeats(case, beats)


def _heartbeats(case: str, beats: list[Event]) -> Line:
    by_runner: dict[str, list[float]] = {}
    for event in beats:
        by_runner.setdefault(event[1], []).append(event[3])
    longest_s = [longest_gap_s(moments) for moments in by_runner.values()]
    late = sum(gap_s > BEAT_LATE_S for gap_s in longest_s)
    return line(
        ROW,
        case,
        "heartbeat's answer",
        _ms([event[3] - event[2] for event in beats]),
        note=(
            f"{len(beats)} beats, one every {BEAT_EVERY_S:g} s; longest gap "
            f"{max(longest_s):.1f} s; runners with one over {BEAT_LATE_S:g} s: {late}"
        ),
    )


def _ms(durations_s: list[float]) -> Summary:
    return summarise([1000 * each for each in durations_s])
