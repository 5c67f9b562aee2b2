"""Is the output right? A line comparison, and nothing but that.

Guarantees: pure; only trailing blanks of each line and trailing empty lines are ignored; time
and memory grow linearly with the output, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterator

# Work goes block by block: a list of ten million lines would cost hundreds of megabytes, and
# one long call into C would hold the interpreter while a heartbeat is due.
BLOCK_BYTES = 1 << 20


def same_output(actual: bytes, expected: bytes) -> bool:
    """Tell whether two outputs are the same to the line comparison.

    Lines end at line feeds. Blanks are the other ASCII white space: space, tab, carriage
    return, vertical tab and form feed. Blanks before and between words count.
    """
    return actual == expected or _normalised(actual) == _normalised(expected)


def _normalised(output: bytes) -> bytes:
    lines = bytearray()
    for block in _blocks(output):
        lines += b"\n".join(map(bytes.rstrip, block.split(b"\n")))
    return bytes(lines).rstrip()


def _blocks(output: bytes) -> Iterator[bytes]:
    """Cut after line feeds, each block at least `BLOCK_BYTES` long but for the last."""
    start = 0
    while start < len(output):
        line_end = output.find(b"\n", start + BLOCK_BYTES)
        end = len(output) if line_end < 0 else line_end + 1
        yield output[start:end]
        start = end
