"""The thread that gives notices: what each change means, and a stream that breaks."""

from __future__ import annotations

import queue as queues
import threading
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo.errors import ConnectionFailure, InvalidOperation, OperationFailure

from dispatch import feed as feeding
from dispatch.feed import Feed, Stream
from dispatch.wakeup import Interest, Waiter, Wakeup
from tests.factories import EPOCH

LIMIT_S = 30
"""What a hanging test costs; nothing is measured by it."""


class FakeJobs:
    """A queue's jobs: only what a tick asks for."""

    def __init__(self) -> None:
        self.lost: list[Any] = []
        self.line: list[Any] = []
        self.paused: list[Any] = []
        self.asked = threading.Semaphore(0)

    def orphans(self, now: Any, languages: Any, without: Any, limit: int) -> list[Any]:
        self.asked.release()
        return self.lost[:limit]

    def pause_over(self, now: Any, within_s: float, limit: int) -> list[Any]:
        return self.paused[:limit]

    def pending(self, now: Any, languages: Any, without: Any, limit: int) -> list[Any]:
        return self.line[:limit]


class FakeStream:
    """Says what it is given; an exception is raised."""

    def __init__(self) -> None:
        self.says: queues.Queue[Any] = queues.Queue()
        self.resume_token: Mapping[str, Any] | None = None
        self.closed = threading.Event()

    def try_next(self) -> Mapping[str, Any] | None:
        try:
            said = self.says.get(timeout=0.01)
        except queues.Empty:
            return None
        if isinstance(said, Exception):
            raise said
        self.resume_token = said["_id"]
        return said

    def close(self) -> None:
        self.closed.set()


class Bench:
    """A feed with streams to be made up, and those who wait."""

    def __init__(self) -> None:
        self.wakeup = Wakeup()
        self.jobs = FakeJobs()
        self.opened: queues.Queue[tuple[Any, FakeStream]] = queues.Queue()
        self.refuses: Exception | None = None
        self.maintained = threading.Semaphore(0)
        self.feed = self.made(self._open)

    def made(self, open_stream: Any, **settings: Any) -> Feed:
        fakes: Any = SimpleNamespace(jobs=self.jobs, languages=(0, 1, 2))
        made = Feed(
            self.wakeup,
            fakes,
            now=lambda: EPOCH,
            open_stream=open_stream,
            maintain=self.maintained.release,
            **settings,
        )
        self.wakeup.when_somebody_waits(made.begin)
        return made

    def _open(self, token: Any) -> Stream:
        if self.refuses is not None:
            raise self.refuses
        stream = FakeStream()
        self.opened.put((token, stream))
        return stream

    def next_stream(self) -> tuple[Any, FakeStream]:
        return self.opened.get(timeout=LIMIT_S)

    def settled(self, waiter: Waiter) -> None:
        """Have the waiter sleep again after the look that the opening of a stream calls for."""
        assert waiter.woken.wait(LIMIT_S)
        waiter.look()
        assert not waiter.wait(0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(feeding, "REOPEN_EVERY_S", (0.0,))
    monkeypatch.setattr(feeding, "LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(feeding, "TICK_EVERY_S", 0.001)
    made = Bench()
    yield made
    made.wakeup.close()


RUNNER = Interest(runner_id="rn_1", languages=(2,))
READER = Interest(submission_id="sn_1")


def change(collection: str, key: str, operation: str = "update", **more: Any) -> dict[str, Any]:
    return {
        "_id": {"_data": key},
        "operationType": operation,
        "ns": {"coll": collection},
        "documentKey": {"_id": key},
        **more,
    }


def became(state: str) -> dict[str, Any]:
    return {"updateDescription": {"updatedFields": {"state": state}}}


TOLD = {
    "a job is entered": (change("jobs", "sn_1", "insert", fullDocument={"language": 2}), RUNNER),
    "a job is given back": (change("jobs", "sn_1", **became("pending")), RUNNER),
    "the queue goes on": (change("dispatch_control", "queue"), RUNNER),
    "a problem becomes ready": (change("problems", "1"), RUNNER),
    "the runner is revoked": (change("runners", "rn_1"), RUNNER),
    "a verdict has landed": (change("jobs", "sn_1", **became("done")), READER),
    "a cancelled rejudge is brought back": (change("jobs", "sn_1"), READER),
}
NOT_TOLD = {
    "a job in another language": (
        change("jobs", "sn_1", "insert", fullDocument={"language": 0}),
        RUNNER,
    ),
    "another runner": (change("runners", "rn_2"), RUNNER),
    "a verdict": (change("jobs", "sn_1", **became("done")), RUNNER),
    "another's verdict": (change("jobs", "sn_2", **became("done")), READER),
    "a job": (change("jobs", "sn_1", "insert", fullDocument={"language": 2}), READER),
}


@pytest.mark.parametrize("what", [*TOLD, *NOT_TOLD])
def test_a_change_wakes_whom_it_concerns(bench: Bench, what: str) -> None:
    said, interest = (TOLD | NOT_TOLD)[what]
    bench.feed = bench.made(None)
    bench.wakeup.when_somebody_waits(lambda: None)
    with bench.wakeup.waiter(interest) as waiter:
        waiter.look()
        assert not waiter.wait(0)
        bench.feed.tell(said)
        assert waiter.woken.is_set() == (what in TOLD)


@pytest.mark.parametrize("stream_first", [False, True])
def test_a_job_is_told_of_once_by_the_handler_and_the_stream(
    bench: Bench, stream_first: bool
) -> None:
    bench.wakeup.when_somebody_waits(lambda: None)
    entered = change("jobs", "sn_1", "insert", fullDocument={"language": 2})
    tell = [lambda: bench.feed.submitted("sn_1", 2), lambda: bench.feed.tell(entered)]
    with bench.wakeup.waiter(RUNNER) as one, bench.wakeup.waiter(RUNNER) as other:
        for waiter in (one, other):
            waiter.look()
            waiter.wait(0)
        for told in reversed(tell) if stream_first else tell:
            told()
        assert one.woken.is_set()
        assert not other.woken.is_set()


def test_a_stream_is_followed_from_when_somebody_waits(bench: Bench) -> None:
    assert bench.opened.empty()
    with bench.wakeup.waiter(RUNNER) as waiter:
        token, stream = bench.next_stream()
        assert token is None
        bench.settled(waiter)
        stream.says.put(change("jobs", "sn_1", "insert", fullDocument={"language": 2}))
        assert waiter.woken.wait(LIMIT_S)
        assert waiter.notice is not None
        assert waiter.notice.submission_id == "sn_1"


def test_a_stream_that_breaks_is_resumed_where_it_broke_and_everybody_looks(bench: Bench) -> None:
    with bench.wakeup.waiter(RUNNER) as waiter:
        _, stream = bench.next_stream()
        bench.settled(waiter)
        stream.says.put(change("runners", "rn_2"))
        stream.says.put(ConnectionFailure("cut"))
        token, _ = bench.next_stream()
        assert token == {"_data": "rn_2"}
        assert stream.closed.is_set()
        assert waiter.woken.wait(LIMIT_S)


def test_a_stream_whose_history_is_lost_starts_anew_and_everybody_looks(bench: Bench) -> None:
    with bench.wakeup.waiter(RUNNER) as waiter:
        _, stream = bench.next_stream()
        bench.settled(waiter)
        stream.says.put(change("runners", "rn_2"))
        stream.says.put(OperationFailure("resume of change stream was not possible", 286))
        token, _ = bench.next_stream()
        assert token is None
        assert waiter.woken.wait(LIMIT_S)


@pytest.mark.parametrize("refusal", [OperationFailure("only on replica sets", 40573), None])
def test_without_a_stream_the_line_is_looked_at(bench: Bench, refusal: Exception | None) -> None:
    bench.refuses = refusal
    if refusal is None:
        bench.feed = bench.made(None)
    with bench.wakeup.waiter(RUNNER) as waiter, bench.wakeup.waiter(READER) as reader:
        waiter.look()
        waiter.wait(0)
        assert reader.woken.wait(LIMIT_S), "readers look, too"
        bench.jobs.line = [SimpleNamespace(submission_id="sn_9", language=2)]
        assert waiter.woken.wait(LIMIT_S)
        assert not bench.feed.up


def test_a_stream_is_tried_again(bench: Bench) -> None:
    bench.refuses = ConnectionFailure("away")
    with bench.wakeup.waiter(RUNNER) as waiter:
        waiter.look()
        assert bench.jobs.asked.acquire(timeout=LIMIT_S), "it looks meanwhile"
        bench.refuses = None
        bench.next_stream()


def test_orphans_are_looked_for_beside_the_stream(bench: Bench) -> None:
    with bench.wakeup.waiter(RUNNER) as waiter:
        bench.next_stream()
        bench.settled(waiter)
        assert bench.maintained.acquire(timeout=LIMIT_S)
        bench.jobs.lost = [SimpleNamespace(submission_id="sn_9", language=2)]
        assert waiter.woken.wait(LIMIT_S)
        assert waiter.notice is not None
        assert waiter.notice.submission_id == "sn_9"


def test_pauses_that_are_over_are_looked_for_beside_the_stream(bench: Bench) -> None:
    with bench.wakeup.waiter(RUNNER) as waiter:
        bench.next_stream()
        bench.settled(waiter)
        bench.jobs.paused = [SimpleNamespace(submission_id="sn_9", language=2)]
        assert waiter.woken.wait(LIMIT_S)
        assert waiter.notice is not None
        assert waiter.notice.submission_id == "sn_9"


def test_the_thread_rests_while_nobody_waits_and_begins_again(bench: Bench) -> None:
    bench.feed = bench.made(bench._open, rest_after_s=0)
    for _ in range(2):
        with bench.wakeup.waiter(RUNNER):
            _, stream = bench.next_stream()
        assert stream.closed.wait(LIMIT_S)
        thread = bench.feed._thread
        if thread is not None:
            thread.join(LIMIT_S)


def test_the_thread_ends_with_its_client(bench: Bench) -> None:
    with bench.wakeup.waiter(RUNNER):
        _, stream = bench.next_stream()
        thread = bench.feed._thread
        assert thread is not None
        stream.says.put(InvalidOperation("Cannot use MongoClient after close"))
        thread.join(LIMIT_S)
        assert not thread.is_alive()
