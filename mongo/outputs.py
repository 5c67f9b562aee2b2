"""What programs printed: one bundle per landing, cut to a limit per case.

Guarantees: a bundle is named by its submission and carries its landing's fence; text that is not
valid Unicode is stored with replacement characters; no document grows with the output.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import Literal

from dispatch.contract import CaseResult, JudgeResult
from mongo import storage
from mongo.storage import Kept

OUTPUT_BYTES_MAX = 1024 * 1024
EPOCH = (1980, 1, 1, 0, 0, 0)

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """A stored bundle: its blob (None where nothing was printed) and which cases were cut."""

    blob: Kept | None
    cut: frozenset[tuple[int, int]]


def blob_name(submission_id: str) -> str:
    """Return the name shared by a submission's bundles."""
    return f"outputs/{submission_id}"


def store(submission_id: str, fence: int, tasks: JudgeResult) -> Bundle:
    """Store the outputs of one landing."""
    packed = io.BytesIO()
    cut: set[tuple[int, int]] = set()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bundle:
        for number, cases in enumerate(tasks):
            for index, case in enumerate(cases):
                if _add(bundle, number, index, case):
                    cut.add((number, index))
        empty = not bundle.namelist()
    if empty:
        return Bundle(blob=None, cut=frozenset(cut))
    blob = storage.keep(packed.getvalue(), name=blob_name(submission_id), fence=fence)
    return Bundle(blob=blob, cut=frozenset(cut))


def _add(bundle: zipfile.ZipFile, task: int, case: int, result: CaseResult) -> bool:
    """Add a case's two streams; tell whether one was cut, by the runner or here."""
    was_cut = result.output_truncated
    for name, text in (("stdout", result.stdout), ("stderr", result.stderr)):
        data = text.encode("utf-8", "replace")
        if len(data) > OUTPUT_BYTES_MAX:
            data, was_cut = _cut(data), True
        if data:
            entry = zipfile.ZipInfo(f"{task}/{case}/{name}", EPOCH)
            bundle.writestr(entry, data, zipfile.ZIP_DEFLATED, 1)
    return was_cut


def _cut(data: bytes) -> bytes:
    """Return the beginning of UTF-8 text that is too long, no character cut in half."""
    end = OUTPUT_BYTES_MAX
    while data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


def read(blob: Kept, task: int, case: int, stream: Stream) -> bytes:
    """Return what a case printed; empty where it printed nothing."""
    data = storage.read(blob)
    if data is None:
        return b""
    with zipfile.ZipFile(io.BytesIO(data)) as bundle:
        try:
            return bundle.read(f"{task}/{case}/{stream}")
        except KeyError:
            return b""
