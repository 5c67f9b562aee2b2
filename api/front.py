"""Moving a submission to the front of the queue, for whoever asks: API, console, command line."""

from __future__ import annotations

from api.errors import ProblemError
from api.services import services
from dispatch import job as verbs


def move_to_front(submission_id: str) -> str:
    """Have a waiting submission judged next; return its job's id.

    Raises:
        ProblemError: 409 `not_waiting`.
        Contended: other transitions won every race.
    """
    services().judge.owner_of(submission_id)
    moved = verbs.move_to_front(services().queue, submission_id, now=services().now)
    if moved is None:
        raise ProblemError(409, "not_waiting", f"{submission_id} does not wait in the queue")
    services().wakeup.notify()
    return moved.job_id
