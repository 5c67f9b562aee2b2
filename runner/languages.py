"""How a program of each language is compiled and run.

Guarantees: values only. The isolation says where the job's folder is for the program; a
compiler is started in the folder of the source, so that its messages name just the file.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCE_DIR = "src"
BINARY_DIR = "out"
_BINARY = "{root}/out/main"


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolchain:
    """One language. `{root}` in a command stands for the job's folder."""

    source_name: str
    compile_command: tuple[str, ...]
    run_command: tuple[str, ...]
    makes_binary: bool

    def compile_argv(self, root: str) -> list[str]:
        """Return the command that compiles, or only checks, the source."""
        return [part.format(root=root) for part in self.compile_command]

    def run_argv(self, root: str) -> list[str]:
        """Return the command that runs the program."""
        return [part.format(root=root) for part in self.run_command]


def _native(compiler: str, standard: str, source_name: str) -> Toolchain:
    # -fmax-errors: a compiler that finds ten thousand errors helps nobody and costs its time.
    flags = ("-O2", f"-std={standard}", "-fmax-errors=20", "-fdiagnostics-color=never")
    return Toolchain(
        source_name=source_name,
        compile_command=(compiler, *flags, "-o", _BINARY, source_name, "-lm"),
        run_command=(_BINARY,),
        makes_binary=True,
    )


# What `python3 -m py_compile` does, but its result goes where a compiler may write.
_CHECK_PYTHON = """
import py_compile, sys
try:
    py_compile.compile("main.py", cfile=sys.argv[1], doraise=True)
except py_compile.PyCompileError as error:
    sys.exit(error.msg)
"""

TOOLCHAINS: dict[int, Toolchain] = {
    0: _native("gcc", "gnu11", "main.c"),
    1: _native("g++", "gnu++17", "main.cpp"),
    2: Toolchain(
        source_name="main.py",
        compile_command=("python3", "-I", "-B", "-c", _CHECK_PYTHON, "{root}/out/main.pyc"),
        run_command=("python3", "-B", "{root}/src/main.py"),
        makes_binary=False,
    ),
}
