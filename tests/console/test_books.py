"""What the queue's own books say: samples, one a minute, and the chart that is drawn of them."""

from __future__ import annotations

from datetime import timedelta

from console import chart
from dispatch import books
from dispatch.books import Sample
from tests.factories import EPOCH, Service

MINUTE = timedelta(minutes=1)


def sample(minutes_ago: int, pending: int, held: int = 0) -> Sample:
    return Sample(at=EPOCH - minutes_ago * MINUTE, pending=pending, held=held, done=0)


def test_a_sample_is_taken_once_a_minute(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    queue = service.services.queue
    for number in range(3):
        service.submit("ada", 1, f"sn_{number}")
    service.judge(runner, "sn_0", "AC")
    service.claim(runner)
    service.database["queue_samples"].delete_many({})  # a poll above may have written one
    books.record_sample(queue, EPOCH)
    service.submit("ada", 1, "sn_3")
    books.record_sample(queue, EPOCH + MINUTE * 0.9)
    expected = [Sample(at=EPOCH, pending=1, held=1, done=1)]
    assert books.samples_since(queue, EPOCH - MINUTE) == expected
    books.record_sample(queue, EPOCH + MINUTE)
    expected.append(Sample(at=EPOCH + MINUTE, pending=2, held=1, done=0))
    assert books.samples_since(queue, EPOCH - MINUTE) == expected
    assert books.samples_since(queue, EPOCH) == expected[1:]


def test_polls_write_the_samples(service: Service) -> None:
    runner = service.runner()
    service.services.maintain._next_tidy = service.clock()  # type: ignore[attr-defined]
    service.claim(runner)
    assert service.database["queue_samples"].count_documents({}) == 1


def test_a_rejudged_job_is_no_longer_done(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    service.submit("ada", 1, "sn_1")
    service.judge(runner, "sn_1", "AC")
    queue, since = service.services.queue, EPOCH - MINUTE
    assert books.done_since(queue, since) == 1
    service.ok("POST", "/submissions/sn_1/rejudge")
    assert books.done_since(queue, since) == 0


def test_samples_are_forgotten_and_the_throughput_has_an_index(service: Service) -> None:
    samples = service.database["queue_samples"].index_information()
    assert samples["old"]["expireAfterSeconds"] == 24 * 3600
    assert "ended" in service.database["jobs"].index_information()


def test_the_throughput_counts_what_landed_in_each_of_the_last_minutes(service: Service) -> None:
    service.user("ada")
    service.problem(1)
    runner = service.runner()
    for number, wait_s in enumerate((540, 180, 30)):
        service.submit("ada", 1, f"sn_{number}")
        service.judge(runner, f"sn_{number}", "AC")
        service.clock.advance(wait_s)
    assert service.ok("GET", "/queue")["landed_per_min"] == {
        "last_1_min": 1.0,
        "last_5_min": 0.4,
        "last_15_min": 0.2,
    }
    # One that is taken back has not landed.
    service.ok("POST", "/submissions/sn_2/rejudge")
    service.ok("POST", "/submissions/sn_2/cancel")
    assert service.ok("GET", "/queue")["landed_per_min"]["last_1_min"] == 0.0


def test_the_chart_runs_from_left_to_right_and_from_its_foot_to_its_top() -> None:
    drawn = chart.draw([sample(60, 0), sample(59, 50), sample(58, 20, held=10)], EPOCH)
    assert drawn.top == 50
    assert drawn.waiting == ("0.0,160.0 12.0,0.0 24.0,96.0",)
    assert drawn.held == ("0.0,160.0 12.0,160.0 24.0,128.0",)
    assert drawn.areas == ("0.0,160 0.0,160.0 12.0,0.0 24.0,96.0 24.0,160",)
    assert (drawn.highest, drawn.highest_at) == (50, EPOCH - 59 * MINUTE)


def test_a_gap_in_the_samples_is_a_gap_in_the_chart() -> None:
    drawn = chart.draw([sample(40, 1), sample(38, 1), sample(30, 1), sample(27, 2)], EPOCH)
    assert [line.count(",") for line in drawn.waiting] == [2, 2]


def test_what_is_older_than_the_chart_is_left_out() -> None:
    drawn = chart.draw([sample(61, 900), sample(1, 3)], EPOCH)
    assert (drawn.top, drawn.highest) == (5, 3)
    assert chart.draw([], EPOCH).waiting == ()


def test_the_top_is_a_round_number() -> None:
    tops = {
        depth: chart.draw([sample(0, depth)], EPOCH).top for depth in (0, 5, 6, 11, 21, 99, 101)
    }
    assert tops == {0: 5, 5: 5, 6: 10, 11: 20, 21: 50, 99: 100, 101: 200}
