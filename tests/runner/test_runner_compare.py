"""The line comparison."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import compare
from runner.compare import same_output

BLANKS = b" \t\r\v\f"
text = st.lists(st.sampled_from(sorted(b"a\n \t\r\x00\xff")), max_size=40).map(bytes)


def plainly(output: bytes) -> list[bytes]:
    """The rule as one would tell it: byte by byte, with no regard to cost."""
    lines = []
    for line in output.split(b"\n"):
        while line and line[-1] in BLANKS:
            line = line[:-1]
        lines.append(line)
    while lines and not lines[-1]:
        lines.pop()
    return lines


@given(text, text)
def test_agrees_with_the_plain_rule(left, right):
    assert same_output(left, right) == (plainly(left) == plainly(right))


@given(text, st.integers(1, 5))
def test_block_borders_change_nothing(output, block):
    whole = compare._normalised(output)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "BLOCK_BYTES", block)
        assert compare._normalised(output) == whole


@given(st.lists(st.tuples(text, st.sampled_from([b"", b" ", b"\t \r", b"\v\f"])), max_size=6))
def test_trailing_blanks_and_lines_are_ignored(lines):
    bare = b"\n".join(line for line, _ in lines)
    padded = b"\n".join(line + blanks for line, blanks in lines) + b" \n\n\t\n"
    assert same_output(padded, bare)
    assert same_output(bare, padded)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (b" a", b"a"),
        (b"a  b", b"a b"),
        (b"\na", b"a"),
        (b"a\n\nb", b"a\nb"),
        (b"A", b"a"),
        (b"1.0", b"1"),
        (b"a\x00", b"a"),
        (b"a\xa0", b"a"),
        (b"", b"a"),
        (b"a", b""),
    ],
)
def test_anything_else_counts(actual, expected):
    assert not same_output(actual, expected)


@pytest.mark.parametrize(
    "filler",
    [b"\n" * 10_000_000, b" \n" * 5_000_000, b" " * 10_000_000, b" \t" * 5_000_000],
    ids=["blank lines", "lines of blanks", "one long blank", "blanks in turn"],
)
def test_long_fillers_are_linear(filler):
    # A quadratic comparison would not end within the suite's time limit.
    assert same_output(b"x" + filler, b"x")
    assert not same_output(filler + b"x", b"x")
