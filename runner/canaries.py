"""Programs of known verdicts: what a sound machine makes of them is known beforehand.

Guarantees: values only. A canary is small enough to be compiled beside every compile error, and
asks for what every program of its language needs: the compiler, its parts, headers, libraries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from runner.languages import TOOLCHAINS, Toolchain
from runner.wire import Verdict

ANSWER = b"42\n"

_C = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
int main(void) {
    char word[16] = "";
    if (scanf("%15s", word) != 1) return 1;
    if (!strcmp(word, "AC")) printf("%d\\n", (int)sqrt(1764.0));
    if (!strcmp(word, "RE")) abort();
    if (!strcmp(word, "TLE")) for (volatile int i = 0;; ) i = i + 1;
    if (!strcmp(word, "MLE")) for (;;) {
        char *block = (char *)malloc(1 << 20);
        if (!block) abort();
        memset(block, 1, 1 << 20);
    }
    return 0;
}
"""
_PYTHON = """
import array, bisect, collections, copy, decimal, fractions, functools, heapq, io, itertools, math
import operator, os, queue, random, re, statistics, string, sys, time
word = input()
if word == "AC": print(math.isqrt(1764))
if word == "RE": os.abort()
while word == "TLE": pass
kept = []
while word == "MLE": kept.append(bytearray(b"x") * (1 << 20))
"""
_CPP = _C.replace("<stdio.h>", "<cstdio>").replace("<stdlib.h>", "<cstdlib>").replace(
    "<string.h>", "<cstring>"
).replace("<math.h>", "<cmath>")  # fmt: skip

# What is compiled beside a compile error has to be quick.
_QUICK_C = """
#include <stdio.h>
{headers}
int main(void) {{ return puts("42") < 0; }}
"""
_QUICK = {"main.c": _QUICK_C, "main.cpp": _QUICK_C.replace("<stdio.h>", "<cstdio>")}

# What a program may include that comes with the compiler, by language; a text that misses one of
# these is a reason to try just that one.
C_HEADERS = """
assert.h ctype.h errno.h float.h inttypes.h limits.h locale.h math.h pthread.h setjmp.h signal.h
stdarg.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h sys/types.h time.h unistd.h wchar.h
"""
CPP_HEADERS = """
algorithm array bits/stdc++.h bitset cassert cctype chrono climits cmath complex cstdint cstdio
cstdlib cstring ctime deque exception fstream functional iomanip iostream iterator limits list map
memory mutex numeric optional queue random regex set sstream stack stdexcept string string_view
thread tuple type_traits unordered_map unordered_set utility variant vector
"""
HEADERS = {
    "main.c": frozenset(C_HEADERS.split()),
    "main.cpp": frozenset((C_HEADERS + CPP_HEADERS).split()),
}
_HEADER_MISSING = re.compile(rb"fatal error: ([\w./+]{1,40}): ")
HEADERS_MAX = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What a canary is told and what a sound machine makes of it, within these limits."""

    verdict: Verdict
    time_ms: int = 2000
    memory_mib: int = 64

    @property
    def stdin(self) -> bytes:
        """What the canary reads."""
        return f"{self.verdict.value}\n".encode()


SOUND = Case(verdict=Verdict.AC)
CASES = (
    SOUND,
    Case(verdict=Verdict.WA),
    Case(verdict=Verdict.RE),
    Case(verdict=Verdict.TLE, time_ms=100),
    Case(verdict=Verdict.MLE, memory_mib=32),
)
_SOURCES = {"main.c": _C, "main.cpp": _CPP, "main.py": _PYTHON}


def canary(source_name: str) -> tuple[Toolchain, bytes]:
    """Return the known program for a source file's language, and the toolchain that compiles it."""
    return _toolchain(source_name), _SOURCES[source_name].encode()


def quick_canary(source_name: str, compilers_text: bytes) -> tuple[Toolchain, bytes]:
    """Return a smaller one, good only for compiling.

    It includes the headers of the language that a compiler's text says are missing.
    """
    if source_name not in _QUICK:
        return canary(source_name)
    missing = [found.group(1).decode() for found in _HEADER_MISSING.finditer(compilers_text)]
    wanted = [name for name in missing[:HEADERS_MAX] if name in HEADERS[source_name]]
    headers = "".join(f"#include <{name}>\n" for name in wanted)
    return _toolchain(source_name), _QUICK[source_name].format(headers=headers).encode()


def _toolchain(source_name: str) -> Toolchain:
    (toolchain,) = (known for known in TOOLCHAINS.values() if known.source_name == source_name)
    return toolchain
