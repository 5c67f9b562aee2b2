"""Random interleavings of the real queue on the real server, against a model and the invariants.

`HYPOTHESIS_PROFILE=soak` runs it for long.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from dispatch import job as verbs
from dispatch.contract import HandedOut, new_job_id
from dispatch.job import Ended
from dispatch.queue import Queue
from tests.stateful.bench import GATES, HANDED_OUT, Bench, Gate, result
from tests.stateful.interplay import Interplay, no_gate, pick_one
from tests.stateful.model import ModelJob, ModelRunner, ModelSubmission

SUBMISSIONS = ("s1", "s2", "s3", "s4")
RUNNERS: dict[str, tuple[int, ...] | None] = {"A": None, "B": (0, 2), "C": (2,)}
PROBLEMS = (1, 2)
"""The second is not always ready."""

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
SETTINGS = settings(
    max_examples=10_000 if SOAK else 300,
    stateful_step_count=100 if SOAK else 60,
    deadline=None,
    derandomize="CI" in os.environ and not SOAK,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)

runner_names = st.sampled_from(list(RUNNERS))
picks = st.integers(0, 11)
callers = st.sampled_from(["holder", "holder", "holder", *RUNNERS])
"""Who completes or aborts: the holder of some lease, or anyone."""
tokens = st.sampled_from(["right", "right", "none", "old"])
plans = st.sampled_from(["park", "through", "park", "through", *GATES])
"""How a landing goes: through, parked at its first gate, or raising at a gate."""


class Action(NamedTuple):
    """One kind of step: how often, when it makes sense, and with what."""

    name: str
    weight: int
    when: Callable[[Any], Any]
    arguments: st.SearchStrategy[dict[str, Any]]


ACTIONS: list[Action] = []


def action(
    weight: int, when: Callable[[Any], Any] = lambda self: True, **arguments: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a method one of the steps.

    Not a rule each: of many rules Hypothesis leaves out some in each example, and where there is
    no claim or no submit nothing happens.
    """

    def register(method: Callable[..., None]) -> Callable[..., None]:
        strategy = st.fixed_dictionaries(arguments)
        ACTIONS.append(Action(method.__name__, weight, when, strategy))
        return method

    return register


class Protocol(Interplay):
    """Everything that can happen to four submissions and three runners."""

    @initialize()
    def register(self) -> None:
        for name, languages in RUNNERS.items():
            runner, token = self.queue.runners.register(
                name=name, languages=languages, now=self.now()
            )
            self.ids[name] = (runner.runner_id, token)
            self.model.runners[name] = ModelRunner(runner.runner_id, languages, self.now())
        for submission_id in SUBMISSIONS[:2]:
            self.submit(submission_id, 1, 2, crashes=False)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        # The first ones are drawn a little more often.
        ordered = sorted(ACTIONS, key=lambda action: -action.weight)
        sensible = [action for action in ordered if action.when(self)]
        names = [action.name for action in sensible for _ in range(action.weight)]
        chosen = data.draw(st.sampled_from(names))
        strategy = next(action.arguments for action in sensible if action.name == chosen)
        getattr(self, chosen)(**data.draw(strategy, chosen))

    # -- entering and rejudging ------------------------------------------------------------

    @action(
        1,
        submission_id=st.sampled_from(SUBMISSIONS),
        problem_id=st.sampled_from(PROBLEMS),
        language=st.sampled_from([0, 2]),
        crashes=st.sampled_from([False, False, True]),
    )
    def submit(self, submission_id: str, problem_id: int, language: int, crashes: bool) -> None:
        """A first submit, or (I7) a second one under the same id, or the sweep's repeat."""
        self.tick()
        if submission_id not in self.model.submissions:
            job_id = new_job_id()
            self.model.submissions[submission_id] = ModelSubmission(job_id)
            self.bench.submissions.insert_one(
                {"_id": submission_id, "fence": 0, "status": -1, "job_id": job_id}
            )
            if crashes:
                return
        submission = self.model.submissions[submission_id]
        entered = verbs.enqueue_job(
            self.queue,
            submission_id=submission_id,
            job_id=submission.job_id,
            problem_id=problem_id,
            language=language,
            submission_fence=submission.fence,
            now=self.now,
        )
        assert entered == (submission_id not in self.model.jobs)
        if entered:
            self.model.jobs[submission_id] = ModelJob(
                submission_id,
                submission.job_id,
                problem_id,
                language,
                self.now(),
                submission.fence + 1,
            )
            self.model.every_id.append(submission.job_id)

    @action(
        1,
        when=lambda self: self.model.submissions,
        pick=picks,
        priority=st.sampled_from([-10, 0, 5]),
        rejudge_id=st.sampled_from([None, None, "bulk1", "bulk2"]),
        marks=st.booleans(),
    )
    def rejudge(self, pick: int, priority: int, rejudge_id: str | None, marks: bool) -> None:
        self.tick()
        submission_id = pick_one(sorted(self.model.submissions), pick)
        job = self.model.jobs.get(submission_id)
        skipped = job is not None and rejudge_id is not None and job.rejudge_id == rejudge_id
        left = verbs.rejudge_job(
            self.queue,
            submission_id=submission_id,
            problem_id=1,
            language=2,
            submission_fence=self.model.submissions[submission_id].fence,
            now=self.now,
            priority=priority,
            rejudge_id=rejudge_id,
        )
        assert (left is None) == skipped
        if left is None:
            return
        if job is None:
            fence = self.model.submissions[submission_id].fence + 1
            job = ModelJob(submission_id, left.job_id, 1, 2, self.now(), fence)
            job.priority, job.rejudge_id, job.mark_due = priority, rejudge_id, fence
            self.model.jobs[submission_id] = job
        else:
            assert (left.job_id == job.job_id) == (job.state == "pending")
            self.forget_token(job)
            self.model.rejudge(job, left.job_id, priority, rejudge_id, self.now())
        assert left.job_id not in self.model.every_id or left.job_id == job.job_id
        self.model.every_id.append(left.job_id)
        self.marks.append((submission_id, job.job_id, job.fence))
        if marks:
            self.mark(-1)

    @action(
        1,
        when=lambda self: self.shown(),
        pick=picks,
        rejudge_id=st.sampled_from(["bulk3", "bulk4"]),
    )
    def preview(self, pick: int, rejudge_id: str) -> None:
        """A bulk preview asks for a submission that shows a result."""
        self.tick()
        submission_id = pick_one(self.shown(), pick)
        job = self.model.jobs[submission_id]
        left = verbs.preview_job(
            self.queue,
            submission_id=submission_id,
            problem_id=job.problem_id,
            language=job.language,
            submission_fence=job.fence,
            rejudge_id=rejudge_id,
            now=self.now,
        )
        # One at a time: the rejudge asks for each submission once.
        again = job.rejudge_id == rejudge_id
        assert (left is None) == (job.state != "done" or again)
        if left is None:
            return
        self.forget_token(job)
        self.model.preview(job, left.job_id, rejudge_id, self.now())
        assert left.job_id not in self.model.every_id
        self.model.every_id.append(left.job_id)

    def shown(self) -> list[str]:
        return [
            name
            for name, submission in sorted(self.model.submissions.items())
            if submission.result is not None and submission.status != -1
        ]

    @action(1, when=lambda self: self.marks, pick=picks)
    def mark(self, pick: int) -> None:
        """The second write of a rejudge, perhaps much later."""
        submission_id, job_id, fence = self.marks.pop(pick % len(self.marks))
        self.bench.mark(submission_id, job_id, fence)
        self.model.mark(submission_id, job_id, fence)

    @action(1)
    def sweep_marks(self) -> None:
        due = {job.submission_id: job for job in self.queue.jobs.marks_due(10)}
        assert {name: job.mark_due for name, job in due.items()} == {
            name: job.mark_due for name, job in self.model.jobs.items() if job.mark_due is not None
        }
        for submission_id, job in due.items():
            assert job.mark_due is not None
            self.bench.mark(submission_id, job.job_id, job.mark_due)
            self.model.mark(submission_id, job.job_id, job.mark_due)

    # -- taking back, moving up --------------------------------------------------------------

    @action(1, when=lambda self: self.cancellable(), pick=picks, restores=st.booleans())
    def cancel(self, pick: int, restores: bool) -> None:
        """An admin takes a rejudge back, from whoever has it."""
        self.tick()
        submission_id = pick_one(self.cancellable(), pick)
        job = self.model.jobs[submission_id]
        stored = self.queue.jobs.get(submission_id)
        assert stored is not None
        cancelled = verbs.cancel_job(self.queue, stored, now=self.now)
        assert cancelled is not None
        self.forget_token(job)
        self.model.cancel(job)
        self.restores.append((submission_id, job.fence))
        if restores:
            self.bring_back(-1)

    def cancellable(self) -> list[str]:
        return [name for name in sorted(self.model.submissions) if self.model.may_cancel(name)]

    @action(1, when=lambda self: self.restores, pick=picks)
    def bring_back(self, pick: int) -> None:
        """The second half of a cancel, perhaps much later."""
        submission_id, fence = self.restores.pop(pick % len(self.restores))
        self.bench.bring_back(submission_id, fence)
        self.model.bring_back(submission_id, fence)

    @action(1)
    def sweep_restores(self) -> None:
        due = {job.submission_id: job.restore_due for job in self.queue.jobs.restores_due(10)}
        assert due == {
            name: job.restore_due
            for name, job in self.model.jobs.items()
            if job.restore_due is not None
        }
        for submission_id, fence in due.items():
            assert fence is not None
            self.bench.bring_back(submission_id, fence)
            self.model.bring_back(submission_id, fence)

    @action(1, when=lambda self: self.model.jobs, pick=picks)
    def move_to_front(self, pick: int) -> None:
        self.tick()
        job = self.model.jobs[pick_one(sorted(self.model.jobs), pick)]
        moved = verbs.move_to_front(self.queue, job.submission_id, now=self.now)
        assert (moved is not None) == (job.state == "pending")
        if moved is not None:
            self.model.move_to_front(job)

    @action(1, rejudge_id=st.sampled_from(["bulk1", "bulk2"]), hold=st.booleans())
    def hold(self, rejudge_id: str, hold: bool) -> None:
        if hold:
            self.queue.control.hold_rejudge(rejudge_id)
            self.model.held_rejudges.add(rejudge_id)
        else:
            self.queue.control.release_rejudge(rejudge_id)
            self.model.held_rejudges.discard(rejudge_id)

    # -- leases ----------------------------------------------------------------------------

    @action(
        6,
        name=runner_names,
        wish=st.sampled_from(["none", "new", "none", "again"]),
        meanwhile=st.sampled_from(["", "renew", "", "claim"]),
    )
    def claim(self, name: str, wish: str, meanwhile: str) -> None:
        self.tick()
        runner = self.seen(name)
        if wish == "new":
            self.claim_ids[name] = f"wish{len(self.model.every_id)}.{self.now().timestamp()}"
        claim_id = None if wish == "none" else self.claim_ids.get(name)
        taken = self.model.by_claim_id(runner.runner_id, claim_id) if claim_id else None
        best = self.model.claimable(runner, self.now())
        verified = self.queue.runners.verify(*self.ids[name], now=self.now())
        assert verified is not None
        between = [meanwhile] if meanwhile else []

        def hand_out(problem_id: int) -> HandedOut | None:
            # Asked after the line was read and before the lease is written.
            if between:
                self.come_between(between.pop(), name)
            return None if problem_id in self.model.not_ready else HANDED_OUT

        leased = verbs.claim_next_job(
            self.queue, verified, hand_out=hand_out, now=self.now, claim_id=claim_id
        )
        if taken is not None:
            still = taken.state == "leased" and not taken.over(self.now())
            assert (leased and leased.job_id) == (taken.job_id if still else None)
            return
        disturbed = bool(meanwhile) and not between
        if leased is None:
            assert disturbed or not best
            return
        job = self.model.jobs[leased.submission_id]
        assert self.model.is_claimable(job, self.now()) if disturbed else job in best
        assert leased.lease_token is not None
        self.forget_token(job)
        self.model.take(job, runner.runner_id, leased.lease_token, claim_id, self.now())
        assert (leased.fence, leased.attempts) == (job.fence, job.attempts)

    def come_between(self, what: str, name: str) -> None:
        """Something happens in the middle of a claim by `name`."""
        others = [other for other in RUNNERS if other != name]
        if what == "claim":
            self.claim(others[0], "none", "")
            return
        for job in self.held():
            if job.leased_by is not None:
                verbs.renew_leases(self.queue, job.leased_by, [job.job_id], now=self.now)
                self.model.renew(job.leased_by, [job.job_id], self.now())

    @action(
        2,
        when=lambda self: self.model.every_id,
        name=runner_names,
        chosen=st.sets(picks, max_size=3),
    )
    def heartbeat(self, name: str, chosen: set[int]) -> None:
        runner = self.seen(name)
        self.queue.runners.verify(*self.ids[name], now=self.now())
        job_ids = [pick_one(self.model.every_id, pick) for pick in chosen]
        verbs.renew_leases(self.queue, runner.runner_id, job_ids, now=self.now)
        self.model.renew(runner.runner_id, job_ids, self.now())
        held = {job.job_id for job in self.held() if job.leased_by == runner.runner_id}
        lost = verbs.lost_jobs(self.queue, runner.runner_id, job_ids)
        assert lost == [job_id for job_id in dict.fromkeys(job_ids) if job_id not in held]

    # -- results ---------------------------------------------------------------------------

    @action(
        5,
        when=lambda self: self.model.every_id,
        name=callers,
        pick=picks,
        token=tokens,
        plan=plans,
    )
    def complete(self, name: str, pick: int, token: str, plan: str) -> None:
        self.tick()
        runner_id, job_id, lease_token = self.aimed_at(name, pick, token)
        told = self.model.explain(runner_id, job_id, lease_token, self.now(), aborting=False)
        self.values += 1
        value = self.values

        def call(queue: Queue, gate: Gate) -> Ended:
            return verbs.complete_job(
                queue,
                runner_id,
                job_id,
                result(value),
                process_result=self.bench.landing(gate),
                now=self.now,
                lease_token=lease_token,
            )

        if told is not None:
            assert call(self.queue, no_gate) is told
        else:
            self.land(call, self.model.begin(job_id, value, self.now()), plan, "complete")

    @action(
        2,
        when=lambda self: self.model.every_id,
        name=callers,
        pick=picks,
        token=tokens,
        plan=plans,
        reason=st.sampled_from(["drain", "drain", "prep_failed", "rejected"]),
    )
    def abort(self, name: str, pick: int, token: str, plan: str, reason: str) -> None:
        self.tick()
        runner_id, job_id, lease_token = self.aimed_at(name, pick, token)
        job = self.model.by_job_id(job_id)
        if job is not None:
            self.old_tokens.setdefault(job.submission_id, [])
        kept_token = job.lease_token if job else None
        outcome = self.model.abort(runner_id, job_id, reason, lease_token, self.now())
        if job is not None and kept_token and job.lease_token is None:
            self.old_tokens[job.submission_id].append(kept_token)

        def call(queue: Queue, gate: Gate) -> Ended:
            return verbs.abort_job(
                queue,
                runner_id,
                job_id,
                reason,
                process_result=self.bench.landing(gate),
                now=self.now,
                lease_token=lease_token,
                # The model knows nothing of held problems.
                at_fault="machine",
            )

        if isinstance(outcome, Ended):
            assert call(self.queue, no_gate) is outcome
        else:
            self.land(call, outcome, plan, "abort")

    @action(2, plan=plans)
    def sweep(self, plan: str) -> None:
        self.tick()
        due = self.model.exhausted(self.now())
        for job in due:
            self.forget_token(job)

        def call(queue: Queue, gate: Gate) -> int:
            return verbs.sweep(queue, process_result=self.bench.landing(gate), now=self.now)

        if len(due) == 1:
            self.land(call, self.model.exhaust(due[0], self.now()), plan, "sweep")
            return
        landings = [self.model.exhaust(job, self.now()) for job in due]
        assert call(self.queue, no_gate) == len(due)
        for landing in landings:
            self.model.write(landing)
            self.model.count(landing)
            self.model.end(landing, self.now())

    @action(
        5,
        when=lambda self: self.parked,
        pick=picks,
        order=st.sampled_from(["on", "on", "on", "raise", "die"]),
    )
    def go_on(self, pick: int, order: str) -> None:
        """A parked landing does its next step, or fails, or its process dies."""
        self.tick()
        parked = self.parked.pop(pick % len(self.parked))
        at = parked.call.at
        assert at is not None
        if order == "on":
            parked.call.go_on()
            self.follow(parked, at)
            return
        parked.process.dead = order == "die"
        parked.call.go_on("raise")
        if order == "raise":
            self.model.fail(parked.landing, self.now())
        self.check_failed(parked)

    # -- around ----------------------------------------------------------------------------

    @action(2, seconds=st.sampled_from([30.1, 70, 0.4, 0.6, 4.9, 5.1, 9.9, 10.1, 15, 29.9]))
    def time_passes(self, seconds: float) -> None:
        self.now.advance(seconds)

    @action(
        3,
        when=lambda self: self.held(),
        pick=picks,
        off_ms=st.sampled_from([-2, -1, 0, 5]),
        landing=st.booleans(),
    )
    def time_passes_to_a_deadline(self, pick: int, off_ms: int, landing: bool) -> None:
        """To the edge: the next call ticks by one millisecond."""
        job = pick_one(self.held(), pick)
        deadline = job.landing_deadline if landing else job.lease_deadline
        if deadline is not None and deadline > self.now():
            left = (deadline - self.now()).total_seconds()
            self.now.advance(max(0.0, left + off_ms / 1000))

    @action(1, pause=st.sampled_from([False, False, True]))
    def pause(self, pause: bool) -> None:
        if pause == self.model.paused:
            return
        if pause:
            self.queue.control.pause(by="an admin", why="a test", now=self.now())
        else:
            self.queue.control.resume()
        self.model.paused = pause

    @action(
        1,
        problem_id=st.sampled_from(PROBLEMS[1:]),
        ready=st.sampled_from([True, True, False]),
    )
    def readiness(self, problem_id: int, ready: bool) -> None:
        (self.model.not_ready.discard if ready else self.model.not_ready.add)(problem_id)


@pytest.mark.timeout(14_400 if SOAK else 900)
def test_i1_to_i5_and_i7_hold_under_random_interleavings(
    shared_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Protocol, "bench", shared_bench, raising=False)
    monkeypatch.setattr(verbs, "emit", lambda *args, **fields: None)
    run_state_machine_as_test(Protocol, settings=SETTINGS)
