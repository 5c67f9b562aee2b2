"""The tree of test data groups of a problem package, as its files declare it.

Guarantees: every case has an input and an answer; groups and cases come in the order of their
names; a group without settings of its own has those of its closest ancestor. What a setting asks
for that cannot be done is left to the caller to refuse.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mongo.package_files import PackageFiles, PackageRefused

SETTINGS_FILE = "testdata.yaml"
GROUP_DEPTH_MAX = 8
POINTS_MAX = 1_000_000
_UNSUPPORTED_SUFFIXES = {
    ".args": "command line arguments",
    ".files": "files of its own",
    ".yaml": "settings of its own",
}


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """What a `testdata.yaml` says about grading. Scores are in points."""

    accept_score: float = 1
    reject_score: float = 0
    custom_grader: bool = False
    grader_flags: tuple[str, ...] = ()
    validator_flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input and its expected output; `name` is its path under `data`, without suffix."""

    name: str
    input: bytes
    answer: bytes


@dataclass(frozen=True, kw_only=True)
class Group:
    """A folder of test data: its settings and, in the order of names, cases and groups."""

    name: str
    settings: GroupSettings
    members: "tuple[Case | Group, ...]"

    @property
    def cases(self) -> tuple[Case, ...]:
        """The cases directly in this group."""
        return tuple(member for member in self.members if isinstance(member, Case))

    @property
    def groups(self) -> "tuple[Group, ...]":
        """The groups directly in this group."""
        return tuple(member for member in self.members if isinstance(member, Group))

    def all_cases(self) -> tuple[Case, ...]:
        """All cases of this group and the groups below, in order."""
        found: list[Case] = []
        for member in self.members:
            found.extend((member,) if isinstance(member, Case) else member.all_cases())
        return tuple(found)

    def all_groups(self) -> "tuple[Group, ...]":
        """This group and all groups below."""
        return (self, *(below for group in self.groups for below in group.all_groups()))


def read_settings(files: PackageFiles, folder: Path, inherited: GroupSettings) -> GroupSettings:
    """Read the settings of the group in `folder`; `inherited` when it has no file of its own."""
    entries = {entry.name: entry for entry in files.folder(folder)}
    if "test_group.yaml" in entries:
        shown = files.show(entries["test_group.yaml"])
        raise PackageRefused(f"{shown} belongs to a newer package format than those supported.")
    if SETTINGS_FILE not in entries:
        return inherited
    path = entries[SETTINGS_FILE]
    raw = files.mapping(path)
    shown = files.show(path)
    return GroupSettings(
        accept_score=_points(raw, "accept_score", default=1, shown=shown),
        reject_score=_points(raw, "reject_score", default=0, shown=shown),
        custom_grader=raw.get("grading", "default") != "default",
        grader_flags=_words(raw, "grader_flags", shown),
        validator_flags=_words(raw, "output_validator_flags", shown),
    )


def read_group(
    files: PackageFiles, folder: Path, inherited: GroupSettings, *, depth: int = 1
) -> Group:
    """Read the group in `folder` with all below it; a missing folder is an empty group."""
    shown = files.show(folder)
    if depth > GROUP_DEPTH_MAX:
        raise PackageRefused(f"{shown} lies deeper than {GROUP_DEPTH_MAX} groups.")
    settings = read_settings(files, folder, inherited)
    members: dict[str, Case | Group] = {}
    answers: set[str] = set()
    for entry in files.folder(folder):
        _refuse_case_extras(files, entry)
        if entry.suffix == ".in":
            members[entry.stem] = _read_case(files, entry)
        elif entry.suffix == ".ans":
            answers.add(entry.stem)
        elif entry.is_dir():
            members[entry.name + "/"] = read_group(files, entry, settings, depth=depth + 1)
        elif files.links_to_folder(entry):
            # Left out silently, its cases would be missing from the judging.
            raise PackageRefused(f"{files.show(entry)} is a flattened link to a whole group.")
    surplus = sorted(answers - members.keys())
    if surplus:
        raise PackageRefused(f"{shown}/{surplus[0]}.ans has no input beside it.")
    name = folder.relative_to(files.root / "data").as_posix()
    ordered = tuple(members[key] for key in sorted(members, key=lambda key: key.rstrip("/")))
    return Group(name=name, settings=settings, members=ordered)


def _read_case(files: PackageFiles, entry: Path) -> Case:
    answer = entry.with_suffix(".ans")
    if not os.path.lexists(answer):
        raise PackageRefused(f"{files.show(entry)} has no answer ({answer.name}) beside it.")
    name = entry.relative_to(files.root / "data").with_suffix("").as_posix()
    return Case(name=name, input=files.data(entry), answer=files.data(answer))


def _refuse_case_extras(files: PackageFiles, entry: Path) -> None:
    what = _UNSUPPORTED_SUFFIXES.get(entry.suffix)
    if what is not None and entry.name != SETTINGS_FILE:
        raise PackageRefused(f"{files.show(entry)} gives a case {what}, which is not supported.")


def _points(raw: dict[str, Any], key: str, *, default: float, shown: str) -> float:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PackageRefused(f"{shown}: {key} is not a number.")
    # Also refuses NaN, infinity and integers too long for a float.
    if not abs(value) <= POINTS_MAX:
        raise PackageRefused(f"{shown}: {key} is not between -{POINTS_MAX} and {POINTS_MAX}.")
    return value


def _words(raw: dict[str, Any], key: str, shown: str) -> tuple[str, ...]:
    value = raw.get(key)
    if value is None:
        return ()
    if not isinstance(value, str):
        raise PackageRefused(f"{shown}: {key} is not one line of text, as is supported.")
    return tuple(value.split())
