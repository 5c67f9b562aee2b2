"""The first page: how the queue fares, and who judges."""

from __future__ import annotations

from datetime import timedelta

from flask import render_template
from flask.typing import ResponseReturnValue

from api.services import services
from console import chart
from console.blueprint import console
from console.runners import runner_entries
from dispatch import books

LATELY = timedelta(minutes=5)
LATEST = 8


@console.get("", strict_slashes=False)
def overview() -> ResponseReturnValue:
    """Show the service at a glance."""
    queue, now = services().queue, services().now()
    # Runners that poll write the samples; with none alive, whoever looks at the chart does.
    books.record_sample(queue, now)
    current = books.take_sample(queue, now)
    oldest = queue.jobs.oldest_pending()
    latest, _ = services().judge.list_submissions(
        username=None, problem_id=None, status=None, limit=LATEST, before=None
    )
    return render_template(
        "console/overview.html",
        current=current,
        oldest_s=None if oldest is None else (now - oldest).total_seconds(),
        lately=books.done_since(queue, now - LATELY),
        lately_min=LATELY // timedelta(minutes=1),
        chart=chart.draw([*books.samples_since(queue, now - chart.SPAN), current], now),
        box=(chart.WIDTH, chart.HEIGHT),
        runners=runner_entries(),
        latest=latest,
    )
