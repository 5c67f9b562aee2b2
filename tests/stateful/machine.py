"""The transition table as a model in plain Python, for exhaustive search.

Two runners, one submission and its landing in single steps (begin, result, counters, end), a
crash possible between any two; one rejudge (its job, then its mark), taken back again where the
search allows it (`cancels_left`); landings that raise; aborts; exhaustion at two attempts;
deadlines that pass at any moment; a failover of the database (`failovers`), and what an older
version may have left (`repairing`). Dropping a guard (`without`) shows what it is for.

Only the order of fences matters, so worlds are kept with fences numbered from 0, and a process
that can change nothing any more is forgotten: that makes the worlds finitely many.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.stateful.failovers import Failovers
from tests.stateful.guards import READERS
from tests.stateful.world import (
    JOB,
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
    is_due,
    is_impossible,
    is_spent,
    number_fences,
)


class Machine(Failovers):
    """The table, with some guards dropped. `tokens`: whether runners send their lease token.

    `reader`: whose reads a failover meets, if there is one.
    """

    def __init__(
        self,
        without: frozenset[str] = frozenset(),
        *,
        tokens: bool = True,
        reader: str = "",
        landings_max: int = LANDINGS_MAX,
    ) -> None:
        if reader and reader not in READERS:
            raise ValueError(f"no such reader: {reader}")
        super().__init__(without)
        self.reader = reader
        self._tokens = tokens
        self._landings_max = landings_max
        # With tokens and owners checked, an older judging cannot act: no need to remember it.
        self._remember = not tokens or bool(
            without & {"complete_token", "complete_owner", "abort_owner"}
        )

    def compact(self, world: World) -> World:
        """Return what the world comes down to: one of finitely many."""
        if world.act is not None and self._in_vain(world, world.act):
            world = world._replace(act=None)
        entered = world.stored and world.state != "absent"
        if world.submitting and entered and self._has("enqueue_if_absent"):
            world = world._replace(submitting=False)
        if self._has("end_fence") and self._has("restore_fence") and self._has("result_fence"):
            kept = (landing for landing in world.landings if not is_spent(world, landing))
            world = world._replace(landings=tuple(sorted(kept)))
        if any(had and had.job != world.job for had in world.had):
            had = tuple(had if had and had.job == world.job else None for had in world.had)
            world = world._replace(had=had)
        if world.status != "pending" and world.sub_job != NONE:
            world = world._replace(sub_job=NONE)
        if world.result is None and world.result_outdated:
            world = world._replace(result_outdated=False)
        left = world.act is not None or is_impossible(world) or is_due(world)
        if world.planted and world.stored and not left:
            # Put right: as if nothing had been left.
            world = world._replace(planted=False, repairs=0)
        return number_fences(world)

    def moves(self, world: World) -> Iterator[Move]:
        """Yield everything that can happen next."""
        yield from self.steps(world)
        if world.act is not None:
            yield from self._acting(world, world.act)
        elif world.failovers_left and self.reader:
            yield from self._reading(world)
        if world.planted or world.plant:
            yield from self._righting(world)

    def steps(self, world: World) -> Iterator[Move]:
        """Yield what can happen next on a database that nothing is wrong with."""
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
        if not world.stored:
            if world.submitting:
                taken_in = world._replace(stored=True, sub_job=JOB, sub_fence=0)
                yield Move("submit stores the submission", False, taken_in)
            return
        absent = world.state == "absent"
        if world.submitting:
            after = world._replace(submitting=False)
            yield Move("submit crashes", False, after)
            if absent:
                entered = after._replace(state="pending", job=JOB, fence=1)
                yield Move("submit enqueues", False, entered)
            elif not self._has("enqueue_if_absent"):
                again = after._replace(state="pending", fence=1, owner="", token=NONE)
                yield Move("submit enqueues again", False, again, broken="I7 a second job")
            else:
                yield Move("submit finds its job", False, after)
        if absent and world.status == "pending" and self._has("enqueue_missing"):
            entered = world._replace(state="pending", job=world.sub_job, fence=world.sub_fence + 1)
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
        if len(world.landings) >= self._landings_max:
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
            fresh = self._counted(world._replace(landings=(*rest, after)))
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
        if not world.stored or (self._has("result_fence") and world.sub_fence > landing.fence):
            refused = landing._replace(at="end", says="dropped")
            return Move(name + ": refused", fair, world._replace(landings=(*rest, refused)))
        next_step = "counters" if self._has("counters_before_end") else "end"
        if landing.by == SWEEP:
            return self._write_judge_error(world, landing, rest, fair, next_step)
        after = landing._replace(at=next_step, says="verdict")
        written = self._written(world._replace(landings=(*rest, after)), landing, "real")
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
        written = self._written(world._replace(landings=(*rest, after)), landing, "je")
        replaced = real_one and not world.result_outdated
        broken = "I6 JE replaced a real result" if replaced else breaks_by_writing(world, landing)
        return Move("JE is written", fair, written, broken=broken)

    def _written(self, world: World, landing: Landing, what: str) -> World:
        return world._replace(
            sub_fence=landing.fence,
            status=what,
            result=(landing.job, what),
            counters_fresh=False,
            result_outdated=False,
            act=world.act and world.act._replace(counts_it=False),
        )

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
        elif world.state == "leased" and len(world.landings) < self._landings_max:
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
        if len(world.landings) >= self._landings_max:
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

    # -- time ------------------------------------------------------------------------------

    def _time(self, world: World) -> Iterator[Move]:
        if world.state in ("leased", "landing") and not world.lease_over:
            yield Move("the lease deadline passes", True, world._replace(lease_over=True))
        if world.state == "landing" and not world.landing_over:
            yield Move("the landing deadline passes", True, world._replace(landing_over=True))
