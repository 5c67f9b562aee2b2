"""Failovers of the model: an old primary, cut off, still answers, and shows what is taken back.

A world is what a majority has. What the old primary shows beside it is what the table's own next
steps would lead to (`phantoms`): they were asked for there, nobody was told that they are done, and
they are gone when it joins the others. So a reader that reads by majority acts, late perhaps, on
what was once true; one that does not acts on what never was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.stateful.rejudging import remove_job
from tests.stateful.repairing import Repairing
from tests.stateful.world import NONE, PHANTOM, REJUDGED, SWEEP, Act, Move, World, is_due

Read = Callable[[World], Act | None]


class Failovers(Repairing):
    """Who reads one document and writes another, with a failover between or before them."""

    reader: str

    def _reading(self, world: World) -> Iterator[Move]:
        left = world._replace(failovers_left=world.failovers_left - 1)
        yield from {
            "marks": self._reading_marks,
            "restores": self._reading_restores,
            "missing": self._reading_missing,
            "cancels": self._reading_cancels,
            "retention": self._reading_retention,
            "recomputes": self._reading_recomputes,
            "judge errors": self._reading_refusals,
            "answers": self._reading_answers,
            "blobs": self._reading_blobs,
            "repairs": self._looking,
        }[self.reader](left)

    # -- what is seen ----------------------------------------------------------------------

    def phantoms(self, world: World, writes: int = 1) -> Iterator[tuple[str, World]]:
        """Yield what an old primary may show: (how it came there, the world as it shows it)."""
        for move in self.steps(world):
            yield move.name, move.world
            if writes > 1:
                for name, further in self.phantoms(move.world, writes - 1):
                    yield f"{move.name}, {name}", further

    def _seen(self, guard: str, world: World, read: Read, writes: int = 1) -> Iterator[Move]:
        """Have one reader read, to act some time: the truth by majority, else a phantom."""
        if self._has(guard):
            act = read(world)
            if act is not None:
                yield Move(f"a slow reader: {act.kind}", False, world._replace(act=act))
            return
        met: set[Act] = set()
        for how, shown in self.phantoms(world, writes):
            act = read(shown)
            if act is not None and act not in met:
                met.add(act)
                name = f"an old primary shows: {how}. Its reader: {act.kind}"
                yield Move(name, False, world._replace(act=act))

    # -- who reads -------------------------------------------------------------------------

    def _reading_marks(self, world: World) -> Iterator[Move]:
        def read(shown: World) -> Act | None:
            due = shown.mark_due
            return None if due == NONE else Act("marks", fence=due, job=shown.job)

        yield from self._seen("marks_read_by_majority", world, read)

    def _reading_restores(self, world: World) -> Iterator[Move]:
        def read(shown: World) -> Act | None:
            due = shown.restore_due
            return None if due == NONE else Act("brings back", fence=due)

        yield from self._seen("restores_read_by_majority", world, read)
        if world.restore_due == NONE or self._has("bring_back_read_by_majority"):
            return
        for how, shown in self.phantoms(world):
            if shown.sub_fence >= world.restore_due > world.sub_fence:
                over = self._counted(world)._replace(restore_due=NONE)
                name = f"an old primary shows: {how}. The sweep finds nothing to bring back"
                yield Move(name, False, over)

    def _reading_missing(self, world: World) -> Iterator[Move]:
        def named(shown: World) -> int:
            # Whoever hands in again makes another id.
            return shown.sub_job if world.stored else PHANTOM

        def missing(shown: World) -> Act | None:
            if not shown.stored or shown.state != "absent" or shown.status != "pending":
                return None
            return Act("enqueues", fence=shown.sub_fence + 1, job=named(shown))

        def rejudge(shown: World) -> Act | None:
            if not shown.stored or shown.state != "absent" or shown.rejudger != "idle":
                return None
            job = named(shown) if shown.status == "pending" else REJUDGED
            return Act("rejudges", fence=shown.sub_fence + 1, job=job)

        yield from self._seen("missing_read_by_majority", world, missing)
        yield from self._seen("rejudge_read_by_majority", world, rejudge)

    def _reading_cancels(self, world: World) -> Iterator[Move]:
        def read(shown: World) -> Act | None:
            under_way = shown.status == "pending" or shown.mark_due != NONE
            open_ = shown.state in ("pending", "leased", "landing")
            if not (open_ and under_way and shown.result is not None):
                return None
            return Act("cancels", fence=shown.fence, job=shown.job)

        yield from self._seen("cancel_read_by_majority", world, read)

    def _reading_retention(self, world: World) -> Iterator[Move]:
        def read(shown: World) -> Act | None:
            # It takes days: whoever handed the submission in is no longer at it.
            if shown.state != "done" or is_due(shown) or shown.submitting:
                return None
            return Act("keeps the fence", fence=shown.fence)

        yield from self._seen("retention_read_by_majority", world, read, writes=2)

    def _reading_recomputes(self, world: World) -> Iterator[Move]:
        # A landing of another submission. The old primary's versions are of writes taken back.
        left = 0 if self._has("recompute_read_by_majority") else 1
        reads = Act("recounts", left=left, counts_it=True)
        yield Move(f"a slow reader: recounts, {left} ahead", False, world._replace(act=reads))
        if self._has("recompute_reads_its_own_write"):
            return
        for landing in world.landings:
            if landing.at == "counters":
                rest = list(world.landings)
                rest.remove(landing)
                counted = world._replace(landings=(*rest, landing._replace(at="end")))
                name = f"landing for {landing.by} counts what a majority had before its result"
                yield Move(name, False, counted)

    def _reading_refusals(self, world: World) -> Iterator[Move]:
        if self._has("refusal_read_by_majority"):
            return
        for landing in world.landings:
            if landing.by != SWEEP or landing.at != "write" or landing.fence < world.sub_fence:
                continue
            rest = list(world.landings)
            rest.remove(landing)
            refused = landing._replace(at="end", says="dropped")
            for how, shown in self.phantoms(world, writes=2):
                if shown.sub_fence > landing.fence:
                    name = f"an old primary shows: {how}. JE finds something newer"
                    yield Move(name, False, world._replace(landings=(*rest, refused)))

    def _reading_answers(self, world: World) -> Iterator[Move]:
        if self._has("answers_confirmed") or not world.owner:
            return
        for how, shown in self.phantoms(world):
            if world.state in ("leased", "landing") and shown.owner != world.owner:
                name = f"an old primary shows: {how}. {world.owner} is told so"
                yield Move(name, False, world, broken="I3 a holder was told that it holds nothing")

    def _reading_blobs(self, world: World) -> Iterator[Move]:
        if self._has("blobs_read_by_majority") or world.result is None or world.result[1] != "real":
            return
        for how, shown in self.phantoms(world):
            if shown.result != world.result:
                name = f"an old primary shows: {how}. The sweep drops the outputs of before"
                yield Move(name, False, world, broken="I6 the outputs of what stands are gone")

    def _in_vain(self, world: World, act: Act) -> bool:
        """Tell whether an act can change nothing any more, all guards being there."""
        if act.kind in ("looks at the submission", "repairs"):
            return world.fence > act.fence and self._has("repair_fence")
        if act.kind == "marks":
            return world.sub_fence >= act.fence and not NONE < world.mark_due <= act.fence
        if act.kind in ("enqueues", "rejudges"):
            return world.state != "absent"
        return act.kind == "cancels" and world.fence > act.fence

    # -- what is done because of it --------------------------------------------------------

    def _acting(self, world: World, act: Act) -> Iterator[Move]:
        over = world._replace(act=None)
        yield Move(f"the reader dies: {act.kind}", False, over)
        name = f"the reader acts: {act.kind}"
        if act.kind == "marks":
            marked = self._marked(over, act.fence, rejudge_fence=act.fence, job=act.job)
            if world.job == act.job and world.mark_due <= act.fence:
                marked = marked._replace(mark_due=NONE)
            yield Move(name, False, marked)
        elif act.kind == "brings back":
            back = self._counted(self._brought_back(over, act.fence))
            if back.restore_due <= act.fence:
                back = back._replace(restore_due=NONE)
            yield Move(name, False, back)
        elif act.kind in ("enqueues", "rejudges") and world.state == "absent":
            entered = over._replace(state="pending", job=act.job, fence=act.fence)
            if act.kind == "rejudges":
                entered = entered._replace(mark_due=act.fence, rejudger="over")
            yield Move(name, False, entered)
        elif act.kind == "cancels":
            open_ = world.state in ("pending", "leased", "landing")
            if open_ and (world.fence, world.job) == (act.fence, act.job):
                yield Move(name, False, self._cancelled(over), "cancel")
        elif act.kind == "keeps the fence":
            kept = max(act.fence, world.sub_fence) if world.stored else world.sub_fence
            removing = act._replace(kind="removes the job")
            yield Move(name, False, world._replace(sub_fence=kept, act=removing))
        elif act.kind == "removes the job":
            yield from self._removing(over, act)
        elif act.kind == "recounts" and not act.left:
            yield Move(name, False, over._replace(counters_fresh=act.counts_it))
        else:
            yield from self._repairing(world, act)

    def _removing(self, world: World, act: Act) -> Iterator[Move]:
        # (Its filter asks when it was done; only one that has not moved was done then.)
        as_read = world.state == "done" and world.fence == act.fence and not is_due(world)
        if world.state != "absent" and (as_read or not self._has("retention_removes_what_it_read")):
            yield Move("the reader acts: removes the job", False, remove_job(world))
