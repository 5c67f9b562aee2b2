"""The queue: how much waits, what is next, pausing and resuming."""

from __future__ import annotations

from flask import render_template, request
from flask.typing import ResponseReturnValue

from api import body
from api.front import release_held_problem
from api.schemas import PauseBody
from api.services import services
from console.blueprint import console
from console.notices import actor, after
from dispatch import books
from dispatch.states import State

HEAD = 20


@console.get("/queue")
def queue() -> ResponseReturnValue:
    """Show the queue's depth and the head of the line."""
    kept, now = services().queue, services().now()
    depth = kept.jobs.depth()
    priorities = sorted({group["priority"] for group in depth}, reverse=True)
    counts = {(group["state"], group["priority"]): group["count"] for group in depth}
    oldest = kept.jobs.oldest_pending()
    return render_template(
        "console/queue.html",
        priorities=priorities,
        states=[state.value for state in (State.PENDING, State.LEASED, State.LANDING)],
        counts=counts,
        oldest_s=None if oldest is None else (now - oldest).total_seconds(),
        unreadable=kept.jobs.unreadable.count(),
        throughput=books.throughput(kept, now),
        orphans=kept.jobs.orphans(now, kept.languages, (), HEAD),
        head=kept.jobs.pending(now, kept.languages, (), HEAD),
        pausing=kept.jobs.pausing(now, HEAD),
        held=kept.control.read().held_problems.values(),
    )


@console.post("/queue/pause")
def pause() -> ResponseReturnValue:
    """Hand out nothing until resumed."""
    wish = body.validated(PauseBody, {"why": request.form.get("why", "").strip()})
    services().queue.control.pause(by=actor(), why=wish.why, now=services().now())
    return after("paused", "console.queue")


@console.post("/queue/problems/<int:problem_id>/release")
def release(problem_id: int) -> ResponseReturnValue:
    """Hand out the jobs of a held problem again."""
    release_held_problem(problem_id, by=actor())
    return after("problem_released", "console.queue")


@console.post("/queue/resume")
def resume() -> ResponseReturnValue:
    """Hand out jobs again."""
    services().queue.control.resume()
    services().wakeup.notify()
    return after("resumed", "console.queue")
