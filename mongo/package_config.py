"""What a package's `problem.yaml` says, checked against what can be done here.

Guarantees: a configuration is returned only when nothing in it asks for a kind of problem, a
grader or an output validator that is not supported; its limits lie within the bounds below.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mongo.package_files import PackageFiles, PackageRefused

FORMATS = ("legacy", "2023-07-draft")
# What a package gets that names no limit: enough for Python on a small machine.
DEFAULT_TIME_LIMIT_MS = 2_000
DEFAULT_MEMORY_LIMIT_KIB = 256 * 1024
TIME_LIMIT_MS_MAX = 60_000
MEMORY_LIMIT_KIB_MAX = 4 * 1024 * 1024
NAME_CHARS_MAX = 200
# Own output validators live in either folder, by the format's version.
_VALIDATOR_FOLDERS = ("output_validators", "output_validator")
_UNSUPPORTED_FOLDERS = {
    "include": "code that is compiled with every submission",
    "graders": "a grader of its own",
    "static_validator": "a validator of source code",
}
# The default comparison is by exact lines, so this flag asks for nothing it does not do.
_KEPT_VALIDATOR_FLAGS = {"case_sensitive"}


@dataclass(frozen=True, kw_only=True)
class PackageConfig:
    """The checked contents of `problem.yaml`."""

    name: str
    scoring: bool
    license: str | None
    time_limit_ms: int
    memory_limit_kib: int


def read_config(files: PackageFiles, *, allow_default_comparison: bool) -> PackageConfig:
    """Read and check `problem.yaml`; raises `PackageRefused` for what is not supported."""
    if files.has("problem.yaml") is None:
        raise PackageRefused("The package has no problem.yaml.")
    raw = files.mapping(files.root / "problem.yaml")
    version = raw.get("problem_format_version", "legacy")
    if version not in FORMATS:
        raise PackageRefused(
            f"The package format {version!r} is not supported, only {' and '.join(FORMATS)}."
        )
    scoring = _is_scoring(raw.get("type", "pass-fail"))
    _refuse_own_programs(files)
    _refuse_objective(raw.get("grading"))
    _check_validation(files, raw, allow_default_comparison=allow_default_comparison)
    limits = raw.get("limits") or {}
    if not isinstance(limits, dict):
        raise PackageRefused("problem.yaml: limits is not a mapping.")
    return PackageConfig(
        # The legacy format leaves the name to the statement; the folder's stands in for it.
        name=_name(raw.get("name"), fallback=files.root.name if version == "legacy" else None),
        scoring=scoring,
        license=_license(raw.get("license")),
        time_limit_ms=_time_limit_ms(files, limits),
        memory_limit_kib=_memory_limit_kib(limits),
    )


def refuse_validator_flags(flags: Iterable[str], where: str) -> None:
    """Raise `PackageRefused` if `flags` ask for more than the default comparison does."""
    asked = [flag for flag in flags if flag not in _KEPT_VALIDATOR_FLAGS]
    if asked:
        raise PackageRefused(
            f"{where} asks the output validator for {' '.join(asked)!r}, which the default"
            " comparison of lines does not do."
        )


def _is_scoring(value: Any) -> bool:
    kinds = value.split() if isinstance(value, str) else value
    if not isinstance(kinds, list) or not kinds or not all(isinstance(k, str) for k in kinds):
        raise PackageRefused("problem.yaml: type is neither a word nor a list of words.")
    for kind in kinds:
        if kind not in ("pass-fail", "scoring"):
            raise PackageRefused(f"Problems of the type {kind} are not supported.")
    if len(set(kinds)) > 1:
        raise PackageRefused("problem.yaml: type says both pass-fail and scoring.")
    return bool(kinds[0] == "scoring")


def _refuse_own_programs(files: PackageFiles) -> None:
    for folder, what in _UNSUPPORTED_FOLDERS.items():
        if files.has(folder):
            raise PackageRefused(f"The package brings {what} ({folder}), which is not supported.")


def _refuse_objective(grading: Any) -> None:
    if isinstance(grading, dict) and grading.get("objective", "max") != "max":
        raise PackageRefused("The package wants the lowest score to win, which is not supported.")


def _check_validation(
    files: PackageFiles, raw: dict[str, Any], *, allow_default_comparison: bool
) -> None:
    validation = raw.get("validation", "default")
    flags = raw.get("validator_flags") or ""
    if not isinstance(validation, str) or not isinstance(flags, str):
        raise PackageRefused("problem.yaml: validation and validator_flags are lines of text.")
    kind, *options = validation.split() or ["default"]
    if kind not in ("default", "custom"):
        raise PackageRefused(f"problem.yaml: the validation {kind!r} is unknown.")
    for option in options:
        # No comparison of outputs can stand in for these, whatever the importer allows.
        if option == "score":
            raise PackageRefused("The package's output validator gives the score itself.")
        raise PackageRefused(f"Problems with {option} validation are not supported.")
    if allow_default_comparison:
        return
    folder = files.has(*_VALIDATOR_FOLDERS)
    if kind == "custom" or folder is not None:
        said = "validation: custom" if kind == "custom" else folder
        raise PackageRefused(
            f"The package needs an output validator of its own ({said}); allow the default"
            " comparison for it if every case has just one right output."
        )
    refuse_validator_flags(flags.split(), "problem.yaml")


def _name(value: Any, *, fallback: str | None) -> str:
    if isinstance(value, dict):
        texts = {key: text for key, text in value.items() if isinstance(text, str)}
        value = texts.get("en") or next(iter(texts.values()), None)
    name = value.strip() if isinstance(value, str) else fallback
    if not name:
        raise PackageRefused("problem.yaml gives the problem no name.")
    if not name.isprintable():  # also lone surrogates, which no database would take
        raise PackageRefused("The problem's name has characters that cannot be shown.")
    if len(name) > NAME_CHARS_MAX:
        raise PackageRefused(f"The problem's name is longer than {NAME_CHARS_MAX} characters.")
    return name


def _license(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value.isprintable()):
        raise PackageRefused("problem.yaml: license is not a text.")
    return value


def _time_limit_ms(files: PackageFiles, limits: dict[str, Any]) -> int:
    where, value = "problem.yaml: limits.time_limit", limits.get("time_limit")
    if value is None and files.has(".timelimit"):
        where, value = ".timelimit", files.text(files.root / ".timelimit").strip()
        try:
            value = float(value)
        except ValueError as error:
            raise PackageRefused(f"{where} is not a number of seconds.") from error
    if value is None:
        return DEFAULT_TIME_LIMIT_MS
    return _bounded(value, 1000, most=TIME_LIMIT_MS_MAX, where=where)


def _memory_limit_kib(limits: dict[str, Any]) -> int:
    value = limits.get("memory")
    if value is None:
        return DEFAULT_MEMORY_LIMIT_KIB
    return _bounded(value, 1024, most=MEMORY_LIMIT_KIB_MAX, where="problem.yaml: limits.memory")


def _bounded(value: Any, factor: int, *, most: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PackageRefused(f"{where} is not a number.")
    # Compared before it is scaled: this also refuses NaN, infinity and integers of any length.
    if not 0 < value <= most / factor or round(value * factor) < 1:
        raise PackageRefused(f"{where} is not between 0 and {most / factor:g}.")
    return round(value * factor)
