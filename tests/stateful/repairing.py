"""What an older version may have left in the model, and the maintenance that has it judged afresh.

With every read as it should be, nobody's steps lead to a pair of documents that `is_impossible`
describes; then a repair must never happen, whatever races with its looking. Where such a pair was
left (`_planted`), a repair leads it to rest, whatever else goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.stateful.rejudging import Rejudging, remove_job, replace_job
from tests.stateful.world import NONE, PHANTOM, REPAIRED, Act, Move, World, is_due, is_impossible


class Repairing(Rejudging):
    """Maintenance: it looks at the job, then at its submission, then writes the job."""

    def phantoms(self, world: World, writes: int = 1) -> Iterator[tuple[str, World]]:
        """Yield what an old primary may show."""
        raise NotImplementedError

    def steps(self, world: World) -> Iterator[Move]:
        """Yield what can happen next on a database that nothing is wrong with."""
        raise NotImplementedError

    # -- where nothing was left ------------------------------------------------------------

    def _looking(self, world: World) -> Iterator[Move]:
        """Look at the one document; `_repairing` goes on to the other."""
        if world.state == "absent" or not world.stored:
            return
        job_first = self._has("repair_reads_in_order")
        if job_first and not is_due(world):
            seen = Act("looks at the submission", world.fence, world.job, world.state)
            yield Move("maintenance looks at the job", False, world._replace(act=seen))
        elif not job_first and world.status == "pending":
            seen = Act("looks at the job", named=world.sub_job, above=world.sub_fence)
            yield Move("maintenance looks at the submission", False, world._replace(act=seen))

    def _repairing(self, world: World, act: Act) -> Iterator[Move]:
        over = world._replace(act=None)
        if act.kind == "looks at the submission":
            by_majority = self._has("repair_read_by_majority")
            shown = [("", over)] if by_majority else self.phantoms(over, writes=2)
            for how, seen in shown:
                pair = seen._replace(
                    fence=act.fence,
                    job=act.job,
                    state=act.state,
                    mark_due=NONE,
                    restore_due=NONE,
                )
                if is_impossible(pair):
                    found = act._replace(kind="repairs", above=seen.sub_fence)
                    name = f"maintenance looks at the submission: {how or 'as a majority has it'}"
                    yield Move(name, False, world._replace(act=found))
        elif act.kind == "looks at the job":
            pair = over._replace(status="pending", sub_job=act.named, sub_fence=act.above)
            if is_impossible(pair):
                found = Act("repairs", world.fence, world.job, world.state, above=act.above)
                yield Move("maintenance looks at the job", False, world._replace(act=found))
        elif act.kind == "repairs":
            same = world.fence == act.fence or not self._has("repair_fence")
            if same and (world.job, world.state) == (act.job, act.state):
                broken = "" if world.planted else "I4 a repair replaced a judging that counts"
                yield Move("repair", True, self._repaired(over, act), "repair", broken)
            elif world.planted:
                yield Move("repair finds the job moved on", True, over)

    def _repaired(self, world: World, act: Act) -> World:
        above = act.above if self._has("repair_above_both") else NONE
        fence = max(world.fence, above) + 1
        return replace_job(world, REPAIRED + world.repairs)._replace(
            fence=fence,
            mark_due=fence if self._has("repair_is_marked") else NONE,
            restore_due=NONE,
            repairs=world.repairs + 1,
        )

    # -- where something was left ----------------------------------------------------------

    def _righting(self, world: World) -> Iterator[Move]:
        if world.plant and world.stored and world.state != "absent":
            # A mark may have been asked for: what it covers is not held on to.
            left = world._replace(plant="", planted=True, result_outdated=True)
            yield from self._planted(left, world.plant)
        if not world.planted or world.act is not None or not self._has("repair_stranded"):
            return
        unowned = not world.stored and world.state != "absent"
        if unowned and self._has("repair_leaves_what_has_no_submission"):
            # Fences begin anew: not while somebody may still land under one of before. (Of a job
            # that nobody has held for longer than any landing takes.)
            over = world.state in ("pending", "done") and not world.landings
            if over or not self._has("removal_waits_for_landings"):
                yield Move("maintenance removes the job", True, remove_job(world))
        elif unowned or is_impossible(world):
            seen = Act("repairs", world.fence, world.job, world.state, above=world.sub_fence)
            yield Move("maintenance finds what is impossible", True, world._replace(act=seen))

    def _planted(self, world: World, plant: str) -> Iterator[Move]:
        """Leave what was found in the field, or might be."""
        if plant in ("a mark", "a mark far ahead"):
            # Of a rejudge that is gone.
            job = world.job if world.state == "pending" else PHANTOM
            fence = world.fence + (1 if plant == "a mark" else 2)
            marked = world._replace(status="pending", sub_fence=fence, sub_job=job)
            yield Move(f"{plant} was left", False, marked)
        elif plant == "a result" and world.result is not None:
            # Brought back for a cancel that is gone.
            shown = world._replace(status=world.result[1], sub_fence=world.fence + 1)
            yield Move("a result was left", False, shown)
        elif is_due(world):
            return
        elif plant == "no verdict" and world.state == "done":
            for outcome in {world.outcome, "dropped"}:
                lost = world._replace(status="pending", sub_job=world.job, outcome=outcome)
                yield Move(f"no verdict was left, {outcome}", False, lost)
        elif plant == "another job" and world.state != "done" and world.status == "pending":
            yield Move("another job was left", False, world._replace(sub_job=PHANTOM))


PLANTS = ("a mark", "a mark far ahead", "a result", "no verdict", "another job")
