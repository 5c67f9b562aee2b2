"""Import of problem packages in the Kattis format (`legacy` and `2023-07-draft`).

Guarantees: a package is either read in full, with nothing it asks for left out silently, or
refused with a sentence that says what is missing or not supported. Pure reading: no database, no
program of the package is run, no file outside its folder is opened (see `mongo.package_files`).
The same folder always gives the same bytes of test data.

A pass-fail package becomes one task of 100, samples first. A scoring package becomes one task per
group of secret data; its samples carry no score and are not judged. Every case of a task is
judged, whatever `on_reject` says, since a task scores in full or not at all.
"""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

from mongo.package_config import read_config, refuse_validator_flags
from mongo.package_files import PackageFiles, PackageRefused
from mongo.package_groups import Case, Group, GroupSettings, read_group, read_settings

__all__ = ["PackageRefused", "PackageTask", "ProblemPackage", "read_package"]

SCORE_TOTAL = 100
# Names in the archive have two digits for the task and two for the case.
TASKS_MAX = 99
CASES_MAX = 99
_SCORING_MODES = ("sum", "avg", "min", "max")
_LENIENT_VERDICTS = ("always_accept", "accept_if_any_accepted")
# The zip format's zero; the files' real times would change the bytes at every import.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class PackageTask:
    """One task: its score in points, its limits, and how many cases it has."""

    task_score: int
    memory_limit_kib: int
    time_limit_ms: int
    case_count: int


@dataclass(frozen=True, kw_only=True)
class ProblemPackage:
    """What an import needs. `case_names` names the cases of each task, for showing."""

    name: str
    tasks: tuple[PackageTask, ...]
    testdata_zip: bytes
    license: str | None
    case_names: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class _Data:
    """The groups of a package; `root` is what `data/testdata.yaml` says."""

    root: GroupSettings
    sample: Group
    secret: Group


def read_package(path: Path, *, allow_default_comparison: bool = False) -> ProblemPackage:
    """Read the problem package in the folder `path`.

    With `allow_default_comparison` a package that brings its own output validator, or flags for
    the default one, is judged by the default comparison instead of being refused.
    Raises `PackageRefused` with a sentence that says what is missing or not supported.
    """
    files = PackageFiles(path)
    config = read_config(files, allow_default_comparison=allow_default_comparison)
    data = _read_data(files)
    if not allow_default_comparison:
        _refuse_group_validators(data)
    scored = _task_per_group(data) if config.scoring else _one_task(data)
    _refuse_too_many(scored)
    return ProblemPackage(
        name=config.name,
        tasks=tuple(
            PackageTask(
                task_score=score,
                memory_limit_kib=config.memory_limit_kib,
                time_limit_ms=config.time_limit_ms,
                case_count=len(cases),
            )
            for score, cases in scored
        ),
        testdata_zip=_zip([cases for _, cases in scored]),
        license=config.license,
        case_names=tuple(tuple(case.name for case in cases) for _, cases in scored),
    )


_Scored = list[tuple[int, tuple[Case, ...]]]


def _read_data(files: PackageFiles) -> _Data:
    folder = files.root / "data"
    root = read_settings(files, folder, GroupSettings())
    data = _Data(
        root=root,
        sample=read_group(files, folder / "sample", root),
        secret=read_group(files, folder / "secret", root),
    )
    if not data.secret.all_cases():
        raise PackageRefused("The package has no test data in data/secret.")
    if root.custom_grader:
        raise PackageRefused("data is graded by a program of the package, which is not supported.")
    for group in (*data.sample.all_groups(), *data.secret.all_groups()):
        if group.settings.custom_grader:
            raise PackageRefused(
                f"data/{group.name} is graded by a program of the package, which is not supported."
            )
    return data


def _refuse_group_validators(data: _Data) -> None:
    for group in (*data.sample.all_groups(), *data.secret.all_groups()):
        refuse_validator_flags(group.settings.validator_flags, f"data/{group.name}")


def _one_task(data: _Data) -> _Scored:
    for group in (*data.sample.all_groups(), *data.secret.all_groups()):
        lenient = _first(group.settings.grader_flags, _LENIENT_VERDICTS)
        if lenient is not None:
            raise PackageRefused(
                f"data/{group.name} is accepted without all its cases ({lenient}),"
                " which is not supported."
            )
    return [(SCORE_TOTAL, (*data.sample.all_cases(), *data.secret.all_cases()))]


def _task_per_group(data: _Data) -> _Scored:
    secret = data.secret
    if secret.cases:
        raise PackageRefused(
            f"data/{secret.cases[0].name} lies in no test group; a scoring package needs each"
            " case in a group of data/secret."
        )
    # With the samples ignored, the root has one result to combine and any mode keeps it as it is.
    combining = [(secret.settings, "data/secret")]
    if "ignore_sample" not in data.root.grader_flags:
        combining.append((data.root, "data"))
    for settings, where in combining:
        mode = _mode(settings)
        if mode != "sum" and len(secret.groups) > 1:
            raise PackageRefused(
                f"{where} combines the scores of its groups by {mode}; only their sum is supported."
            )
    scored = [(_whole_score(group), group.all_cases()) for group in secret.groups]
    total = sum(score for score, _ in scored)
    if total != SCORE_TOTAL:
        raise PackageRefused(
            f"The scores of the groups in data/secret sum to {total}, not to {SCORE_TOTAL}."
        )
    return scored


def _whole_score(group: Group) -> int:
    """Return the points of a group that scores in full or not at all; refuse any other."""
    where, settings = f"data/{group.name}", group.settings
    if group.groups:
        raise PackageRefused(f"{where} has groups of its own, which is not supported.")
    if not group.cases:
        raise PackageRefused(f"{where} is a group without cases.")
    why = _why_partial(group)
    if why is not None:
        raise PackageRefused(
            f"{where} gives part of its score for part of its cases ({why}); only groups that"
            " score in full or not at all (grader_flags: min) are supported."
        )
    if not float(settings.accept_score).is_integer() or settings.accept_score < 0:
        raise PackageRefused(f"{where} has an accept_score that is not a whole number of points.")
    return int(settings.accept_score)


def _why_partial(group: Group) -> str | None:
    """Return the setting by which a failed case leaves some of the score, None if none does."""
    flags = group.settings.grader_flags
    lenient = _first(flags, _LENIENT_VERDICTS)
    if lenient is not None:
        return lenient
    if group.settings.reject_score != 0:
        return "reject_score"
    mode = _mode(group.settings)
    return mode if mode != "min" and len(group.cases) > 1 else None


def _mode(settings: GroupSettings) -> str:
    return _first(settings.grader_flags, _SCORING_MODES) or "sum"


def _first(flags: tuple[str, ...], wanted: tuple[str, ...]) -> str | None:
    return next((flag for flag in flags if flag in wanted), None)


def _refuse_too_many(scored: _Scored) -> None:
    if len(scored) > TASKS_MAX:
        raise PackageRefused(f"The package has {len(scored)} groups, more than {TASKS_MAX}.")
    for _, cases in scored:
        if len(cases) > CASES_MAX:
            raise PackageRefused(f"A task has {len(cases)} cases, more than {CASES_MAX}.")


def _zip(tasks: list[tuple[Case, ...]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for task, cases in enumerate(tasks):
            for number, case in enumerate(cases):
                stem = f"{task:02d}{number:02d}"
                for suffix, content in ((".in", case.input), (".out", case.answer)):
                    entry = zipfile.ZipInfo(stem + suffix, date_time=_ZIP_TIME)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    entry.external_attr = 0o644 << 16
                    archive.writestr(entry, content)
    return buffer.getvalue()
