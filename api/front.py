"""What admins move in the queue, for whoever asks: API, console, command line."""

from __future__ import annotations

from api.errors import ProblemError
from api.services import services
from dispatch import held_problems
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


def release_held_problem(problem_id: int, *, by: str) -> None:
    """Hand out the jobs of a held problem again.

    Raises:
        ProblemError: 409 `not_held`.
    """
    if not held_problems.release(services().queue, problem_id, why=f"by {by}"):
        raise ProblemError(409, "not_held", f"problem {problem_id} is not held")
    services().wakeup.notify()
