"""I8: whatever state a submission and its job are found in, it ends with a verdict by itself.

Each case is put into the database by hand, as no transition leaves it: what failovers, restored
dumps and other hands leave. What is only in flight is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dispatch import job as verbs
from dispatch import repair
from dispatch.invariants import check_database, check_step
from dispatch.repair import REPAIRS_MAX
from mongo import cancelling, stranded, submission
from tests.factories import Runner, Service, handed_out, results

LEASE_OVER_S = 31
LONG_S = 3600 * 24

Change = dict[str, Any]


class Crash(Exception):
    """The process ends here."""


def crash(*_args: object, **_kwargs: object) -> Any:
    raise Crash


class Scene:
    """Ada's one submission, its job, and a runner."""

    def __init__(self, service: Service) -> None:
        self.service = service
        service.user("ada")
        service.problem(1)
        service.submit("ada", 1, "s1")
        self.runner: Runner = service.runner()
        self.database = service.database

    # -- the way to a state ----------------------------------------------------------------

    def claim(self) -> Any:
        payload = self.service.claim(self.runner)
        assert payload is not None
        return payload

    def judge(self, verdict: str = "AC") -> None:
        self.service.judge(self.runner, "s1", verdict)

    def rejudge(self) -> None:
        self.service.ok("POST", "/submissions/s1/rejudge")

    def begin_landing(self) -> Any:
        begun = self.queue.jobs.begin_complete(
            self.stored(),
            runner_id=self.runner.runner_id,
            lease_token=None,
            now=self.service.clock(),
        )
        assert begun is not None
        return begun

    def change_job(self, **changed: Any) -> None:
        """Set fields; None takes one away."""
        self._change("jobs", changed)

    def change_submission(self, **changed: Any) -> None:
        self._change("submissions", changed)

    def _change(self, collection: str, changed: Change) -> None:
        update: Change = {}
        for name, value in changed.items():
            kind = "$unset" if value is None else "$set"
            update.setdefault(kind, {})[name] = "" if value is None else value
        assert self.database[collection].update_one({"_id": "s1"}, update).matched_count

    # -- looking ---------------------------------------------------------------------------

    @property
    def queue(self) -> Any:
        return self.service.services.queue

    def stored(self) -> Any:
        return self.queue.jobs.get("s1")

    def job(self) -> Change:
        return self.service.view_job("s1")

    def submission(self) -> Change:
        found = self.database["submissions"].find_one({"_id": "s1"})
        assert found is not None
        return found

    def documents(self) -> tuple[Any, Any]:
        return self.database["jobs"].find_one({"_id": "s1"}), self.submission()

    def verdict(self) -> str:
        return str(self.service.view("s1")["verdict"])

    def why(self) -> str:
        return str(self.service.ok("GET", "/submissions/s1")["waits_because"])

    def events(self) -> list[str]:
        return [entry["event"] for entry in self.job()["history"]]


@pytest.fixture
def scene(service: Service) -> Scene:
    return Scene(service)


def fence_ahead(scene: Scene) -> None:
    """As chaos left it: the mark of a rejudge stands whose job a failover took back."""
    scene.judge()
    fence = scene.job()["fence"]
    scene.change_submission(status=-1, fence=fence + 1, job_id="jb_taken_back")


def fence_ahead_while_waiting(scene: Scene) -> None:
    scene.change_submission(fence=7)


def fence_ahead_while_leased(scene: Scene) -> None:
    scene.claim()
    scene.change_submission(fence=7)


def fence_ahead_while_landing(scene: Scene) -> None:
    scene.claim()
    scene.begin_landing()
    scene.change_submission(fence=7)


def fence_ahead_of_a_rejudge(scene: Scene) -> None:
    """The rejudge's mark is still due, and can come no more."""
    scene.judge()
    verbs.rejudge_job(
        scene.queue,
        submission_id="s1",
        problem_id=1,
        language=2,
        submission_fence=0,
        now=scene.service.clock,
    )
    scene.change_submission(fence=9)


def done_with(outcome: str | None) -> Callable[[Scene], None]:
    def put(scene: Scene) -> None:
        scene.judge()
        scene.change_job(outcome=outcome)
        scene.change_submission(status=-1)

    put.__name__ = f"done_with_{outcome}"
    return put


def done_and_cleared(scene: Scene) -> None:
    """Nothing ever landed, and the cancel's restore has been ticked off."""
    scene.change_job(state="done", outcome="cancelled", restore_due=1)


def of_another_id(scene: Scene) -> None:
    scene.change_submission(job_id="jb_of_another_time")


def of_another_id_while_leased(scene: Scene) -> None:
    scene.claim()
    scene.change_submission(job_id="jb_of_another_time")


def a_preview(scene: Scene) -> None:
    """Its result would be kept beside the submission's, which has none."""
    scene.change_job(preview=True)


def mark_of_the_future(scene: Scene) -> None:
    scene.change_job(mark_due=9)


def mark_of_the_future_while_done(scene: Scene) -> None:
    scene.judge()
    scene.change_job(mark_due=9)


def restore_of_the_future(scene: Scene) -> None:
    scene.judge()
    scene.rejudge()
    scene.change_job(restore_due=9)


def restore_of_the_future_while_done(scene: Scene) -> None:
    scene.change_job(state="done", outcome="cancelled", restore_due=9)


def lacking(*names: str) -> Callable[[Scene], None]:
    def put(scene: Scene) -> None:
        scene.change_job(**dict.fromkeys(names))

    put.__name__ = f"lacking_{'_'.join(names)}"
    return put


def of_another_problem(scene: Scene) -> None:
    scene.service.problem(2)
    scene.change_job(problem_id=2)


def of_another_language(scene: Scene) -> None:
    scene.change_job(language=0)


def of_an_unknown_language(scene: Scene) -> None:
    scene.change_job(language=77)


def leased_for_ever(scene: Scene) -> None:
    scene.claim()
    scene.change_job(leased_by="rn_gone", lease_deadline=scene.service.clock() + timedelta(days=30))


REPAIRED: list[Callable[[Scene], None]] = [
    fence_ahead,
    fence_ahead_while_waiting,
    fence_ahead_while_leased,
    fence_ahead_while_landing,
    fence_ahead_of_a_rejudge,
    *map(done_with, ("verdict", "judge_error", "dropped", "cancelled", "lost", None)),
    done_and_cleared,
    of_another_id,
    of_another_id_while_leased,
    a_preview,
    mark_of_the_future,
    mark_of_the_future_while_done,
    restore_of_the_future,
    restore_of_the_future_while_done,
    lacking("queued_at"),
    lacking("problem_id"),
    lacking("language"),
    lacking("job_id"),
    of_another_problem,
    of_another_language,
    of_an_unknown_language,
    leased_for_ever,
]


@pytest.mark.parametrize("put", REPAIRED, ids=lambda put: put.__name__)
def test_i8_it_is_judged_afresh_within_two_sweeps(
    scene: Scene, put: Callable[[Scene], None], caplog: pytest.LogCaptureFixture
) -> None:
    put(scene)
    before = scene.documents()
    if before[1]["status"] == -1 and before[0].get("outcome") in (
        "verdict",
        "dropped",
        "cancelled",
    ):
        assert scene.why() == "Its judging got lost. It is about to be judged again."
    for _ in range(2):
        scene.service.sweep()
    assert scene.events()[-1] == "repair"
    assert scene.events().count("repair") == 1
    assert caplog.text.count("stranded_repaired") == 1
    job, shown = scene.documents()
    assert shown["job_id"] == job["job_id"] != before[0].get("job_id")
    assert shown["fence"] == job["fence"] > max(before[0].get("fence", 0), before[1]["fence"])
    assert (job["attempts"], job["repairs"]) == (0, 1)
    assert "mark_due" not in job
    assert check_database(scene.database) == []
    # One judging, by whoever comes, and it is over.
    late = scene.service.runner("late")
    scene.service.judge(late, "s1", "WA")
    assert scene.verdict() == "WA"
    scene.service.sweep()
    assert scene.verdict() == "WA"
    assert scene.service.claim(late) is None
    assert check_database(scene.database) == []
    assert scene.service.counters("ada") == (1, 0, [])


def test_i8_a_missing_job_is_entered(scene: Scene) -> None:
    scene.database["jobs"].delete_many({})
    scene.service.sweep()
    assert scene.events() == ["enqueue"]
    scene.judge()
    assert scene.verdict() == "AC"


# -- put right by others -------------------------------------------------------------------


def without_deadline(scene: Scene) -> None:
    scene.claim()
    scene.change_job(lease_deadline=None)


def landing_without_deadlines(scene: Scene) -> None:
    scene.claim()
    scene.begin_landing()
    scene.change_job(lease_deadline=None, landing_deadline=None)


def without_what_was_handed_out(scene: Scene) -> None:
    scene.claim()
    scene.change_job(handed_out=None)
    scene.service.clock.advance(LEASE_OVER_S)


def without_owner(scene: Scene) -> None:
    scene.claim()
    scene.change_job(leased_by=None, lease_token=None)
    scene.service.clock.advance(LEASE_OVER_S)


def given_back_while_leased(scene: Scene) -> None:
    scene.claim()
    scene.change_job(given_back={"runner_id": "r", "lease_token": None, "reason": "drain"})
    scene.service.clock.advance(LEASE_OVER_S)


def waiting_with_a_lease(scene: Scene) -> None:
    scene.change_job(
        leased_by="rn_gone",
        lease_token="t",
        claim_id="c",
        lease_deadline=scene.service.clock() + timedelta(days=1),
        landing_deadline=scene.service.clock() + timedelta(days=1),
        handed_out=handed_out((100, 1)).to_document(),
    )


def waiting_with_an_outcome(scene: Scene) -> None:
    scene.change_job(outcome="verdict", done_at=scene.service.clock())


def waiting_with_no_attempt_left(scene: Scene) -> None:
    scene.change_job(attempts=3)


CLAIMED = [
    without_deadline,
    landing_without_deadlines,
    without_what_was_handed_out,
    without_owner,
    given_back_while_leased,
    waiting_with_a_lease,
    waiting_with_an_outcome,
    waiting_with_no_attempt_left,
]


@pytest.mark.parametrize("put", CLAIMED, ids=lambda put: put.__name__)
def test_i8_it_is_claimed_all_the_same(scene: Scene, put: Callable[[Scene], None]) -> None:
    """I2: what has no deadline, or one that has passed, is anybody's; what waits is, too."""
    put(scene)
    before = scene.job()
    scene.service.services.maintain._each(  # type: ignore[attr-defined]
        [scene.service.services.maintain._right_waiting]  # type: ignore[attr-defined]
    )
    assert scene.job() == before
    scene.service.judge(scene.service.runner("late"), "s1", "AC")
    assert scene.verdict() == "AC"
    assert scene.job()["state"] == "done"


# -- jobs without a submission -------------------------------------------------------------


def test_i8_a_job_without_its_submission_is_removed(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.database["submissions"].delete_many({})
    scene.service.sweep()
    assert scene.database["jobs"].count_documents({}) == 0
    assert caplog.text.count("job_without_submission") == 1


@pytest.mark.parametrize("way", [["claim"], ["claim", "begin_landing"]], ids=str)
def test_i4_a_job_without_its_submission_stays_as_long_as_somebody_may_land_it(
    scene: Scene, way: list[str]
) -> None:
    """A new job under the id would begin its fences anew, below that of the old landing."""
    for step in way:
        getattr(scene, step)()
    before = scene.job()
    scene.database["submissions"].delete_many({})
    scene.service.sweep()
    assert scene.job() == before


def test_a_job_that_moves_while_it_is_removed_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its submission is handed in anew between the last look and the write, and it is claimed."""
    gone = scene.submission()
    scene.database["submissions"].delete_many({})
    real = repair._remove

    def late(*args: Any) -> None:
        scene.database["submissions"].insert_one(gone)
        scene.claim()
        real(*args)

    monkeypatch.setattr(repair, "_remove", late)
    scene.service.services.maintain._right_open()  # type: ignore[attr-defined]
    assert scene.job()["state"] == "leased"


# -- what only a human can put right -------------------------------------------------------


def of_an_unknown_state(scene: Scene) -> None:
    scene.change_job(state="held_by_a_newer_version")


def in_a_language_nobody_judges(scene: Scene) -> None:
    scene.change_job(language=77)
    scene.change_submission(language=77)


@pytest.mark.parametrize("put", [of_an_unknown_state, in_a_language_nobody_judges])
def test_what_cannot_be_repaired_is_said_once(
    scene: Scene, put: Callable[[Scene], None], caplog: pytest.LogCaptureFixture
) -> None:
    put(scene)
    for _ in range(3):
        scene.service.sweep()
    assert caplog.text.count("stranded_given_up") == 1
    assert "stranded_repaired" not in caplog.text
    assert repair.count_given_up(scene.queue) == 1


def test_two_that_give_up_at_once_say_so_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    of_an_unknown_state(scene)
    read = scene.job()
    wrong = repair.what_strands(
        read, stranded.look("s1"), languages=(0, 1, 2), now=scene.service.clock()
    )
    assert wrong is not None
    for _ in range(2):
        repair._give_up(scene.queue, read, wrong, scene.service.clock())
        scene.service.clock.advance(1)
    assert caplog.text.count("stranded_given_up") == 1


def test_who_waits_for_it_is_told(scene: Scene) -> None:
    in_a_language_nobody_judges(scene)
    scene.service.sweep()
    assert scene.why() == "Its judging got lost. An admin has to have it judged again."


def test_what_is_well_again_is_no_longer_given_up(scene: Scene) -> None:
    of_an_unknown_state(scene)
    scene.service.sweep()
    scene.change_job(state="pending")
    scene.service.sweep()
    assert repair.count_given_up(scene.queue) == 0
    scene.judge()
    assert scene.verdict() == "AC"


def test_i8_nothing_is_repaired_for_ever(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Each time later, and no more than a few times, until somebody asks for a rejudge."""
    waited_min = []
    for _ in range(REPAIRS_MAX):
        scene.change_submission(fence=scene.job()["fence"] + 5)
        begun = scene.service.clock()
        repairs = scene.job().get("repairs", 0)
        while scene.job().get("repairs", 0) == repairs:
            scene.service.sweep()
            if scene.job().get("repairs", 0) == repairs:
                scene.service.clock.advance(60)
        waited_min.append((scene.service.clock() - begun).total_seconds() // 60)
    assert waited_min[0] == 0
    for n, waited in enumerate(waited_min[1:], 1):
        assert 4**n <= waited <= 1.2 * 4**n + 2
    scene.change_submission(fence=scene.job()["fence"] + 5)
    for _ in range(3):
        scene.service.clock.advance(LONG_S)
        scene.service.sweep()
    assert scene.job()["repairs"] == REPAIRS_MAX
    assert caplog.text.count("stranded_repaired") == REPAIRS_MAX
    assert caplog.text.count("stranded_given_up") == 1
    assert repair.count_given_up(scene.queue) == 1
    scene.rejudge()
    assert repair.count_given_up(scene.queue) == 0
    assert "repairs" not in scene.job()
    scene.judge()
    assert scene.verdict() == "AC"


@pytest.mark.parametrize("way", [[], ["claim"], ["judge"]], ids=str)
def test_i8_a_humans_rejudge_heals_a_fence_that_is_ahead(scene: Scene, way: list[str]) -> None:
    """At once: above the submission's fence, not only above the job's."""
    for step in way:
        getattr(scene, step)()
    scene.change_submission(fence=9)
    scene.rejudge()
    job, shown = scene.documents()
    assert shown["fence"] == job["fence"] == 10
    scene.judge("WA")
    assert scene.verdict() == "WA"
    assert check_database(scene.database) == []


def test_a_preview_of_a_submission_whose_fence_is_ahead_lands(scene: Scene) -> None:
    scene.judge()
    scene.change_submission(fence=9)
    left = verbs.preview_job(
        scene.queue,
        submission_id="s1",
        problem_id=1,
        language=2,
        submission_fence=9,
        rejudge_id="rj_1",
        now=scene.service.clock,
    )
    assert left is not None
    assert left.fence == 10


# -- what is in flight ---------------------------------------------------------------------


def nothing(scene: Scene) -> None:
    pass


def leased(scene: Scene) -> None:
    scene.claim()


def landing(scene: Scene) -> None:
    scene.claim()
    scene.begin_landing()


def landed_and_not_ended(scene: Scene) -> None:
    """The submission has its verdict, and the job is not done yet."""
    scene.claim()
    begun = scene.begin_landing()
    scene.service.services.process_result(
        submission_id="s1",
        job_id=begun.job_id,
        fence=begun.fence,
        tasks=results("AC"),
        handed_out=handed_out((100, 1)),
    )


def judged(scene: Scene) -> None:
    scene.judge()


def rejudged_and_not_marked(scene: Scene) -> None:
    scene.judge()
    _rejudge_and_crash(scene)


def rejudged_while_waiting_and_not_marked(scene: Scene) -> None:
    _rejudge_and_crash(scene)


def rejudged_while_leased_and_not_marked(scene: Scene) -> None:
    scene.claim()
    _rejudge_and_crash(scene)


def rejudged_without_a_job_and_not_marked(scene: Scene) -> None:
    """It waits for a rejudge whose job is gone; another rejudge has entered a new one."""
    scene.judge()
    scene.rejudge()
    scene.database["jobs"].delete_many({})
    _rejudge_and_crash(scene)


def marked_and_not_ticked_off(scene: Scene) -> None:
    scene.judge()
    scene.rejudge()
    scene.change_job(mark_due=scene.job()["fence"])


def _rejudge_and_crash(scene: Scene) -> None:
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(submission, "mark_rejudged", crash)
        scene.service.call("POST", "/submissions/s1/rejudge", may_fail=True)


def cancelled_and_not_restored(scene: Scene) -> None:
    scene.judge()
    scene.rejudge()
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(cancelling, "bring_back", crash)
        scene.service.call("POST", "/submissions/s1/cancel", may_fail=True)
    assert scene.job()["outcome"] == "cancelled"
    assert scene.verdict() == "PENDING"


def previewed(scene: Scene) -> None:
    scene.judge()
    scene.service.services.judge.start_rejudge(filter={"problem_id": 1}, mode="preview", by="me")
    maintain: Any = scene.service.services.maintain
    while maintain.advance_rejudges():
        pass
    assert scene.job()["preview"]


def preview_leased(scene: Scene) -> None:
    previewed(scene)
    scene.claim()


def preview_to_be_refused(scene: Scene) -> None:
    """Nothing waits for it; its rejudge says what became of it."""
    previewed(scene)
    scene.change_submission(fence=99)


def between_the_writes_of_retention(scene: Scene) -> None:
    scene.judge()
    scene.change_job(fence=9)
    submission.keep_fences({"s1": 9})


IN_FLIGHT = [
    nothing,
    leased,
    landing,
    landed_and_not_ended,
    judged,
    rejudged_and_not_marked,
    rejudged_while_waiting_and_not_marked,
    rejudged_while_leased_and_not_marked,
    rejudged_without_a_job_and_not_marked,
    marked_and_not_ticked_off,
    cancelled_and_not_restored,
    previewed,
    preview_leased,
    preview_to_be_refused,
    between_the_writes_of_retention,
]


@pytest.mark.parametrize("put", IN_FLIGHT, ids=lambda put: put.__name__)
def test_what_is_in_flight_is_left_alone(scene: Scene, put: Callable[[Scene], None]) -> None:
    put(scene)
    before = scene.documents()
    maintain: Any = scene.service.services.maintain
    for _ in range(4):
        maintain._right_waiting()
        maintain._right_open()
    assert scene.documents() == before
    # Nor would a second look touch it.
    stranded.repair("s1", queue=scene.service.services.judge._queue)  # type: ignore[attr-defined]
    assert scene.documents() == before


def test_a_pair_that_moves_while_it_is_read_is_read_again(scene: Scene) -> None:
    """A landing between the look at the job and that at its submission is no contradiction."""
    scene.claim()
    looks: list[Any] = []

    def look() -> Any:
        seen = stranded.look("s1")
        if not looks:
            looks.append(seen)
            payload = scene.job()["job_id"]
            assert scene.service.complete(scene.runner, payload, "AC").status_code == 204
            scene.service.clock.advance(1)
            scene.rejudge()
            return stranded.look("s1")
        return seen

    job, seen = repair.confirmed(scene.queue, "s1", look)
    assert job == scene.job()
    assert seen == stranded.look("s1")
    assert scene.events()[-1] == "rejudge"


def test_a_pair_that_never_stands_still_is_left_alone(scene: Scene) -> None:
    def look() -> Any:
        scene.rejudge()
        scene.change_submission(fence=scene.job()["fence"] + 5)
        return stranded.look("s1")

    assert repair.repair_job(scene.queue, "s1", look=look, now=scene.service.clock) is None
    assert "repair" not in scene.events()


# -- races ---------------------------------------------------------------------------------


def late_claim(scene: Scene) -> None:
    scene.service.claim(scene.runner)


def late_landing(scene: Scene) -> None:
    scene.service.complete(scene.runner, scene.job()["job_id"], "AC")


def late_rejudge(scene: Scene) -> None:
    scene.rejudge()


def late_cancel(scene: Scene) -> None:
    scene.service.call("POST", "/submissions/s1/cancel", may_fail=True)


RACES: dict[str, tuple[list[str], Callable[[Scene], None]]] = {
    "claim": ([], late_claim),
    "landing": (["claim"], late_landing),
    "rejudge": (["judge"], late_rejudge),
    "rejudge of a leased one": (["claim"], late_rejudge),
    "cancel": (["judge", "rejudge"], late_cancel),
    "cancel of a leased one": (["judge", "rejudge", "claim"], late_cancel),
}


@pytest.mark.parametrize("first", ["the other", "the repair"])
@pytest.mark.parametrize("name", RACES)
def test_a_repair_beside_what_others_do_leaves_all_whole(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, name: str, first: str
) -> None:
    """The other comes between the repair's looks and its write, or the repair first."""
    way, other = RACES[name]
    for step in way:
        getattr(scene, step)()
    scene.change_submission(status=-1, fence=scene.job()["fence"] + 3, job_id="jb_taken_back")
    before = scene.job()
    real = scene.queue.jobs.repair
    steps = []

    def late(*args: Any, **options: Any) -> Any:
        if first == "the other":
            other(scene)
            steps.append(scene.job())
        left = real(*args, **options)
        steps.append(scene.job())
        if first == "the repair":
            other(scene)
            steps.append(scene.job())
        return left

    monkeypatch.setattr(type(scene.queue.jobs), "repair", lambda _self, *a, **o: late(*a, **o))
    scene.service.services.maintain._right_waiting()  # type: ignore[attr-defined]
    monkeypatch.undo()
    assert steps
    for after in [*steps, scene.job()]:
        assert check_step(before, after) == []
        before = after
    for _ in range(2):
        scene.service.sweep()
    finish(scene)
    assert check_database(scene.database) == []
    assert scene.job()["state"] == "done"
    assert scene.verdict() in ("AC", "WA")


def finish(scene: Scene) -> None:
    """Whoever holds it is gone; another judges what there is."""
    scene.service.clock.advance(LEASE_OVER_S)
    scene.service.sweep()
    late = scene.service.runner("late")
    payload = scene.service.claim(late)
    if payload is not None:
        assert scene.service.complete(late, payload["job_id"], "WA").status_code == 204
    scene.service.sweep()


def test_one_that_cannot_be_repaired_stops_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.service.submit("ada", 1, "s2")
    scene.database["submissions"].update_many({}, {"$set": {"fence": 7}})
    real = submission.mark_rejudged

    def some(submission_id: str, **more: Any) -> bool:
        if submission_id == "s1":
            raise ValueError("this one never works")
        return real(submission_id, **more)

    monkeypatch.setattr(stranded, "mark_rejudged", some)
    scene.service.services.maintain._right_waiting()  # type: ignore[attr-defined]
    assert scene.service.view_job("s2")["repairs"] == 1
    shown = scene.database["submissions"].find_one({"_id": "s2"})
    assert shown is not None
    assert shown["fence"] == scene.service.view_job("s2")["fence"]
    # And the mark that did not come is the sweep's.
    monkeypatch.undo()
    scene.service.sweep()
    assert scene.submission()["fence"] == scene.job()["fence"]


def test_the_walks_come_by_all_a_few_at_a_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stranded, "WAITING_MAX", 2)
    for number in range(2, 8):
        scene.service.clock.advance(1)
        scene.service.submit("ada", 1, f"s{number}")
    for number in (1, 4, 7):
        scene.database["submissions"].update_one({"_id": f"s{number}"}, {"$set": {"fence": 7}})
    scene.database["submissions"].delete_many({"_id": {"$in": ["s2", "s6"]}})
    walk = stranded.Stranded(scene.service.services.judge._queue)  # type: ignore[attr-defined]
    for _ in range(10):
        walk.right_waiting()
        walk.right_open()
    repaired = scene.database["jobs"].find({"repairs": 1}).distinct("_id")
    assert repaired == ["s1", "s4", "s7"]
    assert scene.database["jobs"].count_documents({}) == 5
