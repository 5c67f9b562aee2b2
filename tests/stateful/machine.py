"""The transition table as a model in plain Python, for exhaustive search.

Two runners, one submission and its landing in single steps (begin, result, counters, end), a
crash possible between any two; one rejudge (its job, then its mark), taken back again where the
search allows it (`cancels_left`); landings that raise; aborts;
exhaustion at two attempts; deadlines that pass at any moment. Dropping a guard (`without`) shows
what it is for.

Only the order of fences matters, so worlds are kept with fences numbered from 0, and a process
that can change nothing any more is forgotten: that makes the worlds finitely many.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.stateful.world import (
    GUARDS,
    LANDINGS_MAX,
    MAX_ATTEMPTS,
    NONE,
    REFUNDS_MAX,
    RUNNERS,
    SWEEP,
    Had,
    Landing,
    Move,
    World,
    breaks_by_writing,
    is_spent,
    number_fences,
)


class Machine:
    """The table, with some guards dropped. `tokens`: whether runners send their lease token."""

    def __init__(self, without: frozenset[str] = frozenset(), *, tokens: bool = True) -> None:
        if not without <= GUARDS.keys():
            raise ValueError(f"no such guard: {without - GUARDS.keys()}")
        self._without = without
        self._tokens = tokens
        # With tokens and owners checked, an older judging cannot act: no need to remember it.
        self._remember = not tokens or bool(
            without & {"complete_token", "complete_owner", "abort_owner"}
        )

    def _has(self, guard: str) -> bool:
        return guard not in self._without

    def compact(self, world: World) -> World:
        """Return what the world comes down to: one of finitely many."""
        if world.submitting and world.state != "absent" and self._has("enqueue_if_absent"):
            world = world._replace(submitting=False)
        if self._has("end_fence") and self._has("restore_fence") and self._has("result_fence"):
            kept = (landing for landing in world.landings if not is_spent(world, landing))
            world = world._replace(landings=tuple(sorted(kept)))
        if any(had and had.job != world.job for had in world.had):
            had = tuple(had if had and had.job == world.job else None for had in world.had)
            world = world._replace(had=had)
        return number_fences(world)

    def moves(self, world: World) -> Iterator[Move]:
        """Yield everything that can happen next."""
        yield from self._entering(world)
        for runner in RUNNERS:
            yield from self._taking(world, runner)
            yield from self._completing(world, runner)
            yield from self._aborting(world, runner)
        for landing in world.landings:
            yield from self._landing(world, landing)
        yield from self._exhausting(world)
        yield from self._rejudging(world)
        yield from self._cancelling(world)
        yield from self._time(world)

    # -- entering --------------------------------------------------------------------------

    def _entering(self, world: World) -> Iterator[Move]:
        absent = world.state == "absent"
        if world.submitting:
            after = world._replace(submitting=False)
            yield Move("submit crashes", False, after)
            if absent:
                yield Move("submit enqueues", False, after._replace(state="pending", fence=1))
            elif not self._has("enqueue_if_absent"):
                again = after._replace(state="pending", fence=1, owner="", token=NONE)
                yield Move("submit enqueues again", False, again, broken="I7 a second job")
            else:
                yield Move("submit finds its job", False, after)
        if absent and self._has("enqueue_missing"):
            entered = world._replace(state="pending", fence=world.sub_fence + 1)
            yield Move("sweep enqueues", True, entered)

    # -- leases ----------------------------------------------------------------------------

    def _taking(self, world: World, runner: str) -> Iterator[Move]:
        fair = runner == "B"
        if world.state == "pending":
            yield Move(f"{runner} claims", fair, self._leased(world, runner), "claim")
        if world.state not in ("leased", "landing"):
            return
        if world.owner == runner and world.lease_over:
            yield Move(f"{runner} renews", False, world._replace(lease_over=False))
        over = world.lease_over or not self._has("reclaim_deadline")
        budget = world.attempts < MAX_ATTEMPTS or not self._has("reclaim_budget")
        held = world.state == "leased" or self._has("reclaim_landing")
        if over and budget and held:
            broken = "" if world.lease_over else "I2 reclaimed before the deadline"
            yield Move(f"{runner} reclaims", fair, self._leased(world, runner), "reclaim", broken)

    def _leased(self, world: World, runner: str) -> World:
        fence = world.fence + 1 if self._has("lease_fence") else world.fence
        index = RUNNERS.index(runner)
        had = list(world.had)
        if self._remember and had[index] is None:
            had[index] = Had(world.job, fence, world.rejudged)
        return world._replace(
            state="leased",
            owner=runner,
            token=fence if self._remember else 0,
            fence=fence,
            attempts=world.attempts + (1 if self._has("claim_counts") else 0),
            leases=world.leases + 1,
            lease_over=False,
            landing_over=False,
            had=tuple(had),
        )

    # -- completing ------------------------------------------------------------------------

    def _completing(self, world: World, runner: str) -> Iterator[Move]:
        over = world.landing_over or not self._has("complete_landing_deadline")
        if not (world.state == "leased" or (world.state == "landing" and over)):
            return
        if len(world.landings) >= LANDINGS_MAX:
            return
        for broken, fair in self._judgings(world, runner):
            fence = world.fence + 1 if self._has("landing_fence") else world.fence
            if world.state == "landing" and not world.landing_over:
                broken = "I3 a landing taken over before its deadline"
            begun = world._replace(
                state="landing",
                fence=fence,
                lease_over=False,
                landing_over=False,
                landings=(*world.landings, Landing(runner, world.job, fence, "write")),
            )
            yield Move(f"{runner} completes", fair, begun, "complete_begins", broken)

    def _judgings(self, world: World, runner: str) -> Iterator[tuple[str, bool]]:
        """Yield the judgings that this runner can land now: (what that breaks, fair)."""
        mine = world.owner == runner
        if mine:
            yield "", runner == "B"
        had = world.had[RUNNERS.index(runner)]
        if had is None or had.token == world.token or had.job != world.job:
            return
        token_fits = not self._tokens or not self._has("complete_token")
        if not mine and not self._has("complete_owner"):
            yield "I3 complete by a runner that holds no lease", False
        elif mine and token_fits:
            # Without tokens, two judgings of one job id cannot be told apart: a known limit.
            told_apart = self._tokens or world.rejudged == "replaced"
            outdated = told_apart and had.rejudged != world.rejudged
            yield "I4 a judging from before the rejudge lands" if outdated else "", False

    def _landing(self, world: World, landing: Landing) -> Iterator[Move]:
        rest = list(world.landings)
        rest.remove(landing)
        fair = landing.by in ("B", SWEEP)
        without_it = world._replace(landings=tuple(rest))
        yield Move(f"the process landing for {landing.by} dies", not fair, without_it)
        if landing.by != SWEEP:
            yield self._restore(without_it, landing)
        if landing.at == "write":
            yield self._write(world, landing, rest, fair)
        elif landing.at == "counters":
            after = landing._replace(at="end")
            fresh = world._replace(landings=(*rest, after), counters_fresh=True)
            yield Move(f"landing for {landing.by} counts", fair, fresh)
        else:
            yield self._end(without_it, landing, fair)

    def _restore(self, world: World, landing: Landing) -> Move:
        name = f"landing for {landing.by} raises"
        same = world.fence == landing.fence or not self._has("restore_fence")
        if world.state == "landing" and world.job == landing.job and same:
            restored = world._replace(state="leased", lease_over=False, landing_over=False)
            return Move(name, False, restored, "complete_restore")
        return Move(name, False, world)

    def _write(self, world: World, landing: Landing, rest: list[Landing], fair: bool) -> Move:
        name = f"landing for {landing.by} writes"
        if self._has("result_fence") and world.sub_fence > landing.fence:
            refused = landing._replace(at="end", says="dropped")
            return Move(name + ": refused", fair, world._replace(landings=(*rest, refused)))
        next_step = "counters" if self._has("counters_before_end") else "end"
        if landing.by == SWEEP:
            return self._write_judge_error(world, landing, rest, fair, next_step)
        after = landing._replace(at=next_step, says="verdict")
        written = world._replace(
            landings=(*rest, after),
            sub_fence=landing.fence,
            status="real",
            result=(landing.job, "real"),
            counters_fresh=False,
            result_outdated=False,
        )
        return Move(name, fair, written, broken=breaks_by_writing(world, landing))

    def _write_judge_error(
        self, world: World, landing: Landing, rest: list[Landing], fair: bool, next_step: str
    ) -> Move:
        real_one = world.result == (landing.job, "real")
        stands = real_one and (world.status != "pending" or not self._has("je_minds_mark"))
        if stands and self._has("je_keeps_result"):
            after = landing._replace(at=next_step, says="verdict")
            kept = world._replace(landings=(*rest, after), sub_fence=landing.fence)
            return Move("JE finds a real result", fair, kept)
        after = landing._replace(at=next_step, says="judge_error")
        written = world._replace(
            landings=(*rest, after),
            sub_fence=landing.fence,
            status="je",
            result=(landing.job, "je"),
            counters_fresh=False,
            result_outdated=False,
        )
        replaced = real_one and not world.result_outdated
        broken = "I6 JE replaced a real result" if replaced else breaks_by_writing(world, landing)
        return Move("JE is written", fair, written, broken=broken)

    def _end(self, world: World, landing: Landing, fair: bool) -> Move:
        same = world.fence == landing.fence or not self._has("end_fence")
        if world.state == "landing" and world.job == landing.job and same:
            done = world._replace(
                state="done", outcome=landing.says, lease_over=False, landing_over=False
            )
            edge = "exhaust_ends" if landing.by == SWEEP else "complete_ends"
            return Move(f"landing for {landing.by} ends", fair, done, edge)
        return Move(f"landing for {landing.by} finds the job moved on", fair, world)

    # -- giving back and giving up ---------------------------------------------------------

    def _aborting(self, world: World, runner: str) -> Iterator[Move]:
        leased = world.state == "leased" or (
            world.state == "landing" and not self._has("abort_from_leased")
        )
        had = world.had[RUNNERS.index(runner)]
        mine = world.owner == runner
        knows = mine or (had is not None and had.job == world.job and not self._has("abort_owner"))
        if not (leased and knows and world.aborts_left):
            return
        broken = "" if mine else "I3 abort by a runner that holds no lease"
        world = world._replace(aborts_left=world.aborts_left - 1)
        back = world._replace(
            state="pending", owner="", token=NONE, lease_over=False, landing_over=False
        )
        if world.refunds < REFUNDS_MAX or not self._has("drain_refunds_bound"):
            drained = back._replace(attempts=world.attempts - 1, refunds=world.refunds + 1)
            yield Move(f"{runner} drains", False, drained, "abort", broken)
        if world.attempts < MAX_ATTEMPTS:
            yield Move(f"{runner} aborts", False, back, "abort", broken)
        elif world.state == "leased" and len(world.landings) < LANDINGS_MAX:
            exhausted = self._exhausted(world)
            yield Move(f"{runner} aborts at the limit", False, exhausted, "exhaust_begins", broken)

    def _exhausting(self, world: World) -> Iterator[Move]:
        held = world.state == "leased" or (
            world.state == "landing" and self._has("exhaust_landing")
        )
        over = world.lease_over or not self._has("exhaust_deadline")
        used_up = world.attempts >= MAX_ATTEMPTS or not self._has("exhaust_budget")
        if not (held and over and used_up):
            return
        if len(world.landings) >= LANDINGS_MAX:
            return
        broken = "" if world.lease_over else "I2 exhausted before the deadline"
        if world.attempts < MAX_ATTEMPTS:
            broken = "I5 exhausted with attempts left"
        yield Move("sweep exhausts", True, self._exhausted(world), "exhaust_begins", broken)

    def _exhausted(self, world: World) -> World:
        fence = world.fence + 1 if self._has("exhaust_fence") else world.fence
        landing = Landing(SWEEP, world.job, fence, "write")
        cleared = self._has("exhaust_clears_owner")
        return world._replace(
            state="landing",
            fence=fence,
            owner="" if cleared else world.owner,
            token=NONE if cleared else world.token,
            lease_over=False,
            landing_over=False,
            landings=(*world.landings, landing),
        )

    # -- rejudging -------------------------------------------------------------------------

    def _rejudging(self, world: World) -> Iterator[Move]:
        if world.rejudger == "idle":
            yield self._rejudge(world)
        elif world.rejudger == "marks":
            over = world._replace(rejudger="over", rejudge_fence=NONE)
            yield Move("the rejudging process dies", False, over)
            marked = self._marked(over, world.rejudge_fence, world.rejudge_fence)
            yield Move("rejudge marks, then dies", False, marked)
            if world.mark_due == world.rejudge_fence:
                marked = marked._replace(mark_due=NONE)
            yield Move("rejudge marks", False, marked)
        if world.mark_due != NONE:
            fence = world.mark_due if self._has("mark_own_fence") else world.fence
            marked = self._marked(world, fence, world.mark_due)
            yield Move("sweep marks", True, marked._replace(mark_due=NONE))

    def _rejudge(self, world: World) -> Move:
        fence = world.fence + 1 if self._has("rejudge_fence") else world.fence
        asked = world._replace(rejudger="marks", rejudge_fence=fence, fence=fence)
        if world.state == "absent":
            entered = asked._replace(state="pending", job=1, rejudged="replaced")
            return Move("rejudge enqueues", False, entered)
        if world.state == "pending":
            kept = asked._replace(mark_due=fence, rejudged="kept")
            return Move("rejudge keeps the job", False, kept, "rejudge_pending")
        replaced = asked._replace(
            state="pending",
            job=1 if self._has("rejudge_new_id") else world.job,
            rejudged="replaced",
            owner="",
            token=NONE,
            attempts=0,
            refunds=0,
            leases=0,
            lease_over=False,
            landing_over=False,
            outcome="",
            mark_due=fence,
        )
        return Move("rejudge replaces the job", False, replaced, "rejudge")

    def _marked(self, world: World, fence: int, rejudge_fence: int) -> World:
        """Mark with `fence`; `rejudge_fence` is that of the rejudge itself."""
        world = world._replace(
            landings=tuple(
                landing._replace(outdated=landing.outdated or landing.fence <= rejudge_fence)
                for landing in world.landings
            ),
            result_outdated=world.result_outdated or world.sub_fence <= rejudge_fence,
        )
        if world.sub_fence >= fence and self._has("mark_if_older"):
            return world
        raised = max(fence, world.sub_fence) if self._has("mark_fence") else world.sub_fence
        return world._replace(status="pending", sub_fence=raised)

    # -- taking a rejudge back -------------------------------------------------------------

    def _cancelling(self, world: World) -> Iterator[Move]:
        if world.state == "pending":
            yield Move("is moved to the front", False, world, "move_to_front")
        under_way = world.status == "pending" or world.mark_due != NONE
        landed = world.result is not None or not self._has("cancel_after_a_result")
        open_ = world.state in ("pending", "leased", "landing")
        if world.cancels_left and open_ and under_way and landed:
            yield Move("cancel", False, self._cancelled(world), "cancel")
        if world.restore_due != NONE:
            back = self._brought_back(world)
            yield Move("the result is brought back; crash", False, back)
            fresh = back.counters_fresh or self._has("cancel_recounts")
            ended = back._replace(restore_due=NONE, counters_fresh=fresh)
            yield Move("the result is brought back", self._has("cancel_is_swept"), ended)

    def _cancelled(self, world: World) -> World:
        fence = world.fence + 1 if self._has("cancel_fence") else world.fence
        cleared = self._has("cancel_clears_owner")
        return world._replace(
            state="done",
            outcome="cancelled",
            cancels_left=world.cancels_left - 1,
            fence=fence,
            restore_due=fence,
            mark_due=NONE,
            owner="" if cleared else world.owner,
            token=NONE if cleared else world.token,
            lease_over=False,
            landing_over=False,
        )

    def _brought_back(self, world: World) -> World:
        fence = world.restore_due
        world = world._replace(
            landings=tuple(
                landing._replace(outdated=landing.outdated or landing.fence <= fence)
                for landing in world.landings
            )
        )
        if world.sub_fence >= fence and self._has("cancel_fence"):
            return world
        raised = self._has("cancel_brings_back_under_its_fence")
        return world._replace(
            status=world.result[1] if world.result else "pending",
            sub_fence=max(fence, world.sub_fence) if raised else world.sub_fence,
        )

    # -- time ------------------------------------------------------------------------------

    def _time(self, world: World) -> Iterator[Move]:
        if world.state in ("leased", "landing") and not world.lease_over:
            yield Move("the lease deadline passes", True, world._replace(lease_over=True))
        if world.state == "landing" and not world.landing_over:
            yield Move("the landing deadline passes", True, world._replace(landing_over=True))
