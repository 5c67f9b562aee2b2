"""What students and programs wrote: shown as text up to a limit, or saved whole.

Guarantees: never sent as anything a browser would run: pages hold it escaped, downloads are
attachments that are not sniffed. What is shown says where it was cut or replaced.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import Literal

from flask import Response, abort, render_template
from flask.typing import ResponseReturnValue

from api.services import services
from console.blueprint import console
from console.words import visible

SHOWN_BYTES_MAX = 64 * 1024
Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """Text as a page shows it. `cut`: there is more than that; `replaced`: some was no text."""

    name: str
    text: str
    bytes_total: int
    cut: bool
    replaced: bool


def shown(name: str, data: bytes, bytes_total: int | None = None) -> Shown:
    """Return the beginning of `data` as text. `bytes_total`: its length, if `data` is a part."""
    total = len(data) if bytes_total is None else bytes_total
    cut = total > SHOWN_BYTES_MAX
    # A character that the cut goes through is left out, not replaced.
    head = data[:SHOWN_BYTES_MAX].decode("utf-8", "surrogateescape" if cut else "replace")
    if cut:
        head = _without_half(head)
    text = head.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return Shown(
        name=name,
        text=visible(text),
        bytes_total=total,
        cut=cut,
        replaced="\ufffd" in text or visible(text) != text,
    )


def _without_half(head: str) -> str:
    """Drop the bytes at the end that are the beginning of a character."""
    for _ in range(3):
        if head and "\udc80" <= head[-1] <= "\udcff":
            head = head[:-1]
    return head


def read_source(submission_id: str) -> Shown:
    """Return a submission's program, as far as it is shown."""
    with zipfile.ZipFile(io.BytesIO(services().judge.read_code(submission_id))) as archive:
        entry = archive.infolist()[0]
        with archive.open(entry) as file:
            return shown(entry.filename, file.read(SHOWN_BYTES_MAX), entry.file_size)


@console.get("/submissions/<submission_id>/cases/<int:task>/<int:case>")
def case_output(submission_id: str, task: int, case: int) -> ResponseReturnValue:
    """Show what a case printed."""
    read = services().judge.read_output
    view = services().judge.view_submission(submission_id)
    streams = [
        shown(stream, read(submission_id, task, case, stream)) for stream in ("stdout", "stderr")
    ]
    if not (task < len(view["tasks"]) and case < len(view["tasks"][task]["cases"])):
        abort(404, "There is no such case.")  # a rejudge began between the reads
    return render_template(
        "console/case.html",
        view=view,
        task=task,
        case=case,
        result=view["tasks"][task]["cases"][case],
        streams=streams,
    )


@console.get(
    "/submissions/<submission_id>/outputs/<int:task>/<int:case>/<any(stdout, stderr):stream>"
)
def save_output(submission_id: str, task: int, case: int, stream: Stream) -> ResponseReturnValue:
    """Save what a case printed, as far as it was kept."""
    data = services().judge.read_output(submission_id, task, case, stream)
    name = f"{submission_id}-{task}-{case}-{stream}.txt"
    return _attachment(data, name, "text/plain; charset=utf-8")


@console.get("/submissions/<submission_id>/code")
def save_code(submission_id: str) -> ResponseReturnValue:
    """Save a submission's code as a zip."""
    data = services().judge.read_code(submission_id)
    return _attachment(data, f"{submission_id}.zip", "application/zip")


def _attachment(data: bytes, name: str, content_type: str) -> Response:
    """Return data for saving. The name is safe: only ids that exist come this far."""
    response = Response(data, content_type=content_type)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
