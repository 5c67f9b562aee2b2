"""Rejudges of the model, in two writes each: the job, then the mark; or taken back, the result."""

from __future__ import annotations

from collections.abc import Iterator

from tests.stateful.guards import Guarded
from tests.stateful.world import NONE, REJUDGED, Move, World


def replace_job(world: World, job: int) -> World:
    """Return the world with a fresh job in the place of what stands there, or of nothing."""
    return world._replace(
        state="pending",
        job=job,
        owner="",
        token=NONE,
        attempts=0,
        refunds=0,
        leases=0,
        lease_over=False,
        landing_over=False,
        outcome="",
    )


def remove_job(world: World) -> World:
    """Return the world without its job: a later one begins above the submission's fence."""
    gone = replace_job(world, world.job)
    return gone._replace(state="absent", fence=world.sub_fence, mark_due=NONE, restore_due=NONE)


class Rejudging(Guarded):
    """What admins ask for, and the sweeps that finish it."""

    # -- rejudging -------------------------------------------------------------------------

    def _rejudging(self, world: World) -> Iterator[Move]:
        if world.rejudger == "idle" and world.stored:
            yield self._rejudge(world)
        elif world.rejudger == "marks":
            over = world._replace(rejudger="over", rejudge_fence=NONE, rejudge_job=NONE)
            yield Move("the rejudging process dies", False, over)
            fence = world.rejudge_fence
            marked = self._marked(over, fence, rejudge_fence=fence, job=world.rejudge_job)
            yield Move("rejudge marks, then dies", False, marked)
            if world.mark_due == world.rejudge_fence:
                marked = marked._replace(mark_due=NONE)
            yield Move("rejudge marks", False, marked)
        if world.mark_due != NONE:
            fence = world.mark_due if self._has("mark_own_fence") else world.fence
            marked = self._marked(world, fence, rejudge_fence=world.mark_due, job=world.job)
            yield Move("sweep marks", True, marked._replace(mark_due=NONE))

    def _rejudge(self, world: World) -> Move:
        # (Above the submission's fence as it was read before: an older one, perhaps.)
        fence = world.fence + 1 if self._has("rejudge_fence") else world.fence
        asked = world._replace(rejudger="marks", rejudge_fence=fence, fence=fence)
        if world.state == "absent":
            # The id minted in the submission, while its first job has yet to enter.
            job = world.sub_job if world.status == "pending" else REJUDGED
            entered = asked._replace(state="pending", job=job, rejudge_job=job, mark_due=fence)
            return Move("rejudge enqueues", False, entered._replace(rejudged="replaced"))
        if world.state == "pending":
            kept = asked._replace(mark_due=fence, rejudged="kept", rejudge_job=world.job)
            return Move("rejudge keeps the job", False, kept, "rejudge_pending")
        job = REJUDGED if self._has("rejudge_new_id") else world.job
        replaced = replace_job(asked, job)._replace(
            rejudge_job=job, rejudged="replaced", mark_due=fence
        )
        return Move("rejudge replaces the job", False, replaced, "rejudge")

    def _marked(self, world: World, fence: int, *, rejudge_fence: int, job: int) -> World:
        """Mark with `fence` and `job`; `rejudge_fence` is that of the rejudge itself."""
        world = world._replace(
            landings=tuple(
                landing._replace(outdated=landing.outdated or landing.fence <= rejudge_fence)
                for landing in world.landings
            ),
            result_outdated=world.result_outdated or world.sub_fence <= rejudge_fence,
        )
        if not world.stored or (world.sub_fence >= fence and self._has("mark_if_older")):
            return world
        raised = max(fence, world.sub_fence) if self._has("mark_fence") else world.sub_fence
        return world._replace(status="pending", sub_fence=raised, sub_job=job)

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
            back = self._brought_back(world, world.restore_due)
            yield Move("the result is brought back; crash", False, back)
            ended = self._counted(back) if self._has("cancel_recounts") else back
            ended = ended._replace(restore_due=NONE)
            yield Move("the result is brought back", self._has("cancel_is_swept"), ended)

    def _cancelled(self, world: World) -> World:
        fence = world.fence + 1 if self._has("cancel_fence") else world.fence
        cleared = self._has("cancel_clears_owner")
        return world._replace(
            state="done",
            outcome="cancelled",
            cancels_left=max(world.cancels_left - 1, 0),
            fence=fence,
            restore_due=fence,
            mark_due=NONE,
            owner="" if cleared else world.owner,
            token=NONE if cleared else world.token,
            lease_over=False,
            landing_over=False,
        )

    def _brought_back(self, world: World, fence: int) -> World:
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

    # -- counters --------------------------------------------------------------------------

    def _counted(self, world: World) -> World:
        """Recompute. Another landing's recompute, read before, then finds the versions moved on."""
        act = world.act
        if act is not None and act.kind == "recounts":
            act = act._replace(left=act.left - 1) if act.left else None
        return world._replace(counters_fresh=True, act=act)
