"""What a runner that failed a check has judged: having it judged afresh.

For the API, the console and the command line alike.
"""

from __future__ import annotations

from typing import Any

from api.errors import ProblemError
from api.services import services


def rejudge_doubtful(runner_id: str, *, by: str) -> dict[str, Any]:
    """Start a bulk rejudge of what the runner judged under its latest doubt; return it.

    Raises:
        ProblemError: 404 `unknown_runner`; 409 `nothing_doubtful`, it has failed no check.
    """
    runner = services().queue.runners.get(runner_id)
    if runner is None:
        raise ProblemError(404, "unknown_runner", f"there is no runner {runner_id[:100]!r}")
    doubt = runner.checks.doubt
    if doubt is None:
        raise ProblemError(409, "nothing_doubtful", "this runner has failed no check")
    return services().judge.start_rejudge(
        filter={
            "runner_id": runner_id,
            "judged_since": doubt.since,
            "judged_until": doubt.until,
        },
        mode="replace",
        by=by,
    )
