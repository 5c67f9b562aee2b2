"""The service's own small problem, and programs for it whose verdicts are known: what checks hand
to runners.

Guarantees: nothing here is stored. The problem, its test data and its programs are made from this
file alone, alike in every process; they are in no list, no counter and no export.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from functools import cache

from dispatch.contract import HandedOut, KnownProgram, Language, TaskSpec, Verdict
from mongo.archive import source_zip

PROBLEM_ID = 2**31 - 1
"""What a check's payload names as its problem. A number like any other to a runner."""

STEPS = 300_000
"""How many steps the problem asks for: some 50 ms of Python."""
ROUNDS = 200
"""How often the compiled programs walk them, so that their time says something of the machine."""
_A, _C, _M = 1_103_515_245, 12_345, 2**31

AMPLE_MS, SHORT_MS = 10_000, 500
"""Time limits: for what is to end by itself on any machine, and for what never ends."""
MEMORY_KIB = 256 * 1024
SMALL_KIB = 64 * 1024
"""The memory limit of the programs that break it; they take eight times as much."""

_TAKEN_MIB = 8 * SMALL_KIB // 1024

_WALK_C = f"""\
static unsigned walk(unsigned steps) {{
    unsigned state = 1;
    for (int round = 0; round < {ROUNDS}; round++) {{
        state = 1;
        for (unsigned step = 0; step < steps; step++)
            state = (state * {_A}u + {_C}u) % {_M}u + (round < 0);
    }}
    return state;
}}
"""
_WALK_PYTHON = f"""\
state = 1
for _ in range(int(input())):
    state = (state * {_A} + {_C}) % {_M}
"""

_SOURCES: Mapping[Language, Mapping[Verdict, str]] = {
    Language.C: {
        Verdict.AC: f"""\
#include <stdio.h>
{_WALK_C}
int main(void) {{
    unsigned steps;
    if (scanf("%u", &steps) != 1) return 1;
    printf("%u\\n", walk(steps));
    return 0;
}}
""",
        Verdict.WA: f"""\
#include <stdio.h>
{_WALK_C}
int main(void) {{
    unsigned steps;
    if (scanf("%u", &steps) != 1) return 1;
    printf("%u\\n", walk(steps) ^ 1u);
    return 0;
}}
""",
        Verdict.CE: """\
#include <stdio.h>
int main(void) {
    printf("%d\\n", this_name_is_declared_nowhere);
    return 0;
}
""",
        Verdict.RE: """\
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    fprintf(stderr, "this program aborts\\n");
    abort();
}
""",
        Verdict.TLE: """\
int main(void) {
    volatile unsigned long turns = 0;
    for (;;) turns++;
}
""",
        Verdict.MLE: f"""\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {{
    unsigned sum = 0;
    for (int piece = 0; piece < {_TAKEN_MIB}; piece++) {{
        char *taken = malloc(1 << 20);
        if (!taken) abort();
        memset(taken, piece + 1, 1 << 20);
        sum += (unsigned char)taken[(piece * 4096) % (1 << 20)];
    }}
    printf("%u\\n", sum);
    return 0;
}}
""",
    },
    Language.CPP: {
        Verdict.AC: f"""\
#include <iostream>
{_WALK_C}
int main() {{
    unsigned steps;
    if (!(std::cin >> steps)) return 1;
    std::cout << walk(steps) << std::endl;
    return 0;
}}
""",
        Verdict.WA: f"""\
#include <iostream>
{_WALK_C}
int main() {{
    unsigned steps;
    if (!(std::cin >> steps)) return 1;
    std::cout << (walk(steps) ^ 1u) << std::endl;
    return 0;
}}
""",
        Verdict.CE: """\
#include <iostream>
int main() {
    std::cout << this_name_is_declared_nowhere << std::endl;
    return 0;
}
""",
        Verdict.RE: """\
#include <stdexcept>
int main() {
    throw std::runtime_error("nobody catches this");
}
""",
        Verdict.TLE: """\
int main() {
    volatile unsigned long turns = 0;
    for (;;) turns = turns + 1;
}
""",
        Verdict.MLE: f"""\
#include <cstring>
#include <iostream>
#include <vector>
int main() {{
    std::vector<char *> pieces;
    unsigned sum = 0;
    for (int piece = 0; piece < {_TAKEN_MIB}; piece++) {{
        char *taken = new char[1 << 20];
        std::memset(taken, piece + 1, 1 << 20);
        sum += static_cast<unsigned char>(taken[(piece * 4096) % (1 << 20)]);
        pieces.push_back(taken);
    }}
    std::cout << sum << std::endl;
    return 0;
}}
""",
    },
    Language.PYTHON: {
        Verdict.AC: f"{_WALK_PYTHON}print(state)\n",
        Verdict.WA: f"{_WALK_PYTHON}print(state ^ 1)\n",
        Verdict.CE: "def broken(:\n    pass\n",
        Verdict.RE: "raise ValueError('nobody catches this')\n",
        Verdict.TLE: "while True:\n    pass\n",
    },
}
"""No Python program breaks the memory limit: where memory is refused rather than the program ended,
Python ends with an error of its own, and which of the two happens is the runner's affair."""

_ALSO_RIGHT: Mapping[Verdict, frozenset[Verdict]] = {
    # A runner may refuse memory; then the program ends itself.
    Verdict.MLE: frozenset({Verdict.RE}),
}


def known_programs() -> tuple[KnownProgram, ...]:
    """Return the programs, by language and then in the order of `Verdict`."""
    return tuple(
        KnownProgram(
            program_id=_program_id(language, verdict),
            language=language.value,
            expected=verdict,
            also_right=_ALSO_RIGHT.get(verdict, frozenset()),
            handed_out=_handed_out(verdict),
        )
        for language, sources in _SOURCES.items()
        for verdict in sorted(sources)
    )


class KnownFiles:
    """What the links of a check lead to."""

    problem_id = PROBLEM_ID

    def read_code(self, program_id: str) -> bytes | None:
        """Return a program as the zip that runners get; None: there is no such program."""
        return _zips().get(program_id)

    def read_testdata(self, sha256: str) -> bytes | None:
        """Return the problem's test data as a zip; None: in this version it has another hash."""
        packed, known = _testdata()
        return packed if sha256 == known else None


def answer(steps: int) -> int:
    """Return what a right program prints for `steps`."""
    state = 1
    for _ in range(steps):
        state = (state * _A + _C) % _M
    return state


def _program_id(language: Language, verdict: Verdict) -> str:
    return f"{verdict.name.lower()}-{language.value}"


def _handed_out(verdict: Verdict) -> HandedOut:
    spec = TaskSpec(
        task_score=100,
        memory_limit_kib=SMALL_KIB if verdict is Verdict.MLE else MEMORY_KIB,
        time_limit_ms=SHORT_MS if verdict is Verdict.TLE else AMPLE_MS,
        case_count=1,
    )
    return HandedOut(tasks=(spec,), testdata_sha256=_testdata()[1], checker="default")


@cache
def _zips() -> Mapping[str, bytes]:
    return {
        _program_id(language, verdict): source_zip(source.encode(), language)
        for language, sources in _SOURCES.items()
        for verdict, source in sources.items()
    }


@cache
def _testdata() -> tuple[bytes, str]:
    """Return the test data and its SHA-256. Stored, not deflated: alike with every zlib."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        # A fixed time, or every process would make other data.
        archive.writestr(zipfile.ZipInfo("0000.in"), f"{STEPS}\n")
        archive.writestr(zipfile.ZipInfo("0000.out"), f"{answer(STEPS)}\n")
    data = packed.getvalue()
    return data, hashlib.sha256(data).hexdigest()
