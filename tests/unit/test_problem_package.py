"""Reading of problem packages: the three examples, and every reason to refuse one."""

import contextlib
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mongo import package_files
from mongo.package_config import DEFAULT_MEMORY_LIMIT_KIB, DEFAULT_TIME_LIMIT_MS
from mongo.problem_package import PackageRefused, PackageTask, ProblemPackage, read_package

PROBLEMS = Path(__file__).parents[2] / "examples" / "problems"

MIN = "accept_score: {score}\ngrader_flags: min\n"


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def pass_fail(**more: str | bytes) -> dict[str, str | bytes]:
    base: dict[str, str | bytes] = {
        "problem.yaml": "name: Sum\n",
        "data/secret/1.in": "1 2\n",
        "data/secret/1.ans": "3\n",
    }
    return base | more


def scoring(first: int = 40, second: int = 60) -> dict[str, str | bytes]:
    return {
        "problem.yaml": "problem_format_version: 2023-07-draft\ntype: scoring\nname: Sum\n",
        "data/testdata.yaml": "grader_flags: ignore_sample\n",
        "data/sample/1.in": "sample",
        "data/sample/1.ans": "sample",
        "data/secret/a/testdata.yaml": MIN.format(score=first),
        "data/secret/a/1.in": "a1",
        "data/secret/a/1.ans": "A1",
        "data/secret/a/2.in": "a2",
        "data/secret/a/2.ans": "A2",
        "data/secret/b/testdata.yaml": MIN.format(score=second),
        "data/secret/b/1.in": "b1",
        "data/secret/b/1.ans": "B1",
    }


def contents(package: ProblemPackage) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(package.testdata_zip)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def refusal(root: Path, *, allow_default_comparison: bool = False) -> str:
    with pytest.raises(PackageRefused) as caught:
        read_package(root, allow_default_comparison=allow_default_comparison)
    message = str(caught.value)
    assert message.endswith(".")
    return message


# The three examples


def test_hello_is_one_task_of_100() -> None:
    package = read_package(PROBLEMS / "hello")
    assert package.name == "Hello World!"
    assert package.license == "public domain"
    assert package.tasks == (
        PackageTask(
            task_score=100,
            memory_limit_kib=512 * 1024,
            time_limit_ms=DEFAULT_TIME_LIMIT_MS,
            case_count=1,
        ),
    )
    assert contents(package) == {"0000.in": b"", "0000.out": b"Hello World!\n"}


def test_oddecho_is_one_task_per_group_and_its_flattened_links_are_followed() -> None:
    data = PROBLEMS / "oddecho" / "data" / "secret"
    # Guards the example itself: a copy that follows the links would make this test say nothing.
    assert (data / "subtask2" / "1.in").read_bytes() == b"../subtask1/1.in"

    package = read_package(PROBLEMS / "oddecho")

    assert package.name == "Odd Echo"
    assert [(task.task_score, task.case_count) for task in package.tasks] == [(50, 3), (50, 13)]
    assert package.tasks[0].memory_limit_kib == DEFAULT_MEMORY_LIMIT_KIB
    assert package.case_names[0] == tuple(f"secret/subtask1/{n}" for n in "123")
    assert package.case_names[1][9:] == tuple(f"secret/subtask2/{n}" for n in ("1", "10", "2", "3"))
    found = contents(package)
    assert len(found) == 2 * 16
    for case, source in (("0109", "1"), ("0111", "2"), ("0112", "3")):
        assert found[f"{case}.in"] == (data / "subtask1" / f"{source}.in").read_bytes()
        assert found[f"{case}.out"] == (data / "subtask1" / f"{source}.ans").read_bytes()


def test_different_needs_leave_for_the_default_comparison() -> None:
    message = refusal(PROBLEMS / "different")
    assert "output validator of its own (validation: custom)" in message

    package = read_package(PROBLEMS / "different", allow_default_comparison=True)
    assert package.tasks[0].case_count == 3
    assert package.case_names == (("sample/1", "secret/01", "secret/02_extreme_cases"),)
    assert contents(package)["0002.out"].startswith(b"1000000000000000\n")


# What is read


def test_the_same_folder_gives_the_same_bytes_whatever_its_times(tmp_path: Path) -> None:
    root = write(tmp_path, scoring())
    before = read_package(root).testdata_zip
    for path in root.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert read_package(root).testdata_zip == before
    # Two imports within one second would agree even if the archive kept the time of its making.
    with zipfile.ZipFile(io.BytesIO(before)) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_samples_of_a_scoring_package_are_not_judged(tmp_path: Path) -> None:
    package = read_package(write(tmp_path, scoring()))
    assert [task.task_score for task in package.tasks] == [40, 60]
    assert contents(package) == {
        "0000.in": b"a1",
        "0000.out": b"A1",
        "0001.in": b"a2",
        "0001.out": b"A2",
        "0100.in": b"b1",
        "0100.out": b"B1",
    }


def test_pass_fail_groups_become_one_task_samples_first_in_name_order(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        pass_fail(
            **{
                "data/sample/z.in": "",
                "data/sample/z.ans": "",
                "data/secret/0group/5.in": "",
                "data/secret/0group/5.ans": "",
                "data/secret/10.in": "",
                "data/secret/10.ans": "",
                "data/secret/10.desc": "ignored",
                "data/secret/.hidden.in": "ignored",
            }
        ),
    )
    assert read_package(root).case_names == (
        ("sample/z", "secret/0group/5", "secret/1", "secret/10"),
    )


def test_limits_come_from_problem_yaml(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        pass_fail(
            **{
                "problem.yaml": "name: Sum\nlimits: {memory: 64, time_limit: 1.5}\n",
                ".timelimit": "7\n",
            }
        ),
    )
    task = read_package(root).tasks[0]
    assert (task.memory_limit_kib, task.time_limit_ms) == (65536, 1500)


def test_time_limit_falls_back_to_the_timelimit_file(tmp_path: Path) -> None:
    assert read_package(write(tmp_path, pass_fail(**{".timelimit": "7\n"}))).tasks[0] == (
        PackageTask(
            task_score=100,
            memory_limit_kib=DEFAULT_MEMORY_LIMIT_KIB,
            time_limit_ms=7000,
            case_count=1,
        )
    )


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("name: {sv: Summa, en: Sum}", "Sum"),
        ("name: {sv: Summa}", "Summa"),
        ("license: cc0", "package"),
        ("type: [pass-fail]\nname: Sum", "Sum"),
    ],
)
def test_names(tmp_path: Path, config: str, name: str) -> None:
    root = write(tmp_path / "package", pass_fail(**{"problem.yaml": config}))
    assert read_package(root).name == name


def test_group_settings_are_those_of_the_closest_ancestor_as_a_whole(tmp_path: Path) -> None:
    files = scoring()
    files["data/secret/testdata.yaml"] = "accept_score: 60\ngrader_flags: min sum\n"
    files["data/secret/a/testdata.yaml"] = "accept_score: 40\ngrader_flags: min\n"
    del files["data/secret/b/testdata.yaml"]
    message = refusal(write(tmp_path, files))
    # `min` is the first mode of the inherited settings, so the sum over the groups is gone too.
    assert "data/secret combines the scores of its groups by min" in message

    (tmp_path / "data/secret/testdata.yaml").write_text("accept_score: 60\n")
    # b has one case, so the default mode (sum) is as good as min.
    assert [task.task_score for task in read_package(tmp_path).tasks] == [40, 60]

    # A file of its own replaces all of the ancestor's: accept_score is the default again.
    (tmp_path / "data/secret/b/testdata.yaml").write_text("grader_flags: min\n")
    assert "sum to 41" in refusal(tmp_path)


def test_the_root_combines_nothing_where_it_ignores_the_samples(tmp_path: Path) -> None:
    files = scoring() | {"data/secret/testdata.yaml": "grader_flags: sum\n"}
    files["data/testdata.yaml"] = "grader_flags: ignore_sample max\n"
    assert len(read_package(write(tmp_path, files)).tasks) == 2
    (tmp_path / "data/testdata.yaml").write_text("grader_flags: max\n")
    assert "data combines the scores of its groups by max" in refusal(tmp_path)


# What is refused, and the sentence that says so

REFUSED_PASS_FAIL: list[tuple[dict[str, str | bytes], str]] = [
    ({"problem.yaml": "name: S\nproblem_format_version: 2025-09"}, "'2025-09' is not supported"),
    ({"problem.yaml": "name: S\nproblem_format_version: [1]"}, "is not supported"),
    ({"problem.yaml": "problem_format_version: 2023-07-draft"}, "gives the problem no name"),
    ({"problem.yaml": f"name: {'x' * 300}"}, "name is longer than"),
    ({"problem.yaml": 'name: "\\ud800"'}, "characters that cannot be shown"),
    ({"problem.yaml": 'name: S\nlicense: "\\ud800"'}, "license is not a text"),
    ({"problem.yaml": "name: S\nlicense: [cc0]"}, "license is not a text"),
    ({"problem.yaml": "name: S\ntype: interactive"}, "type interactive are not supported"),
    ({"problem.yaml": "name: S\ntype: [pass-fail, multi-pass]"}, "type multi-pass are not"),
    ({"problem.yaml": "name: S\ntype: submit-answer"}, "type submit-answer are not"),
    ({"problem.yaml": "name: S\ntype: [pass-fail, scoring]"}, "both pass-fail and scoring"),
    ({"problem.yaml": "name: S\ntype: 3"}, "type is neither"),
    ({"problem.yaml": "name: S\ngrading: {objective: min}"}, "lowest score to win"),
    ({"problem.yaml": "name: S\nvalidation: custom interactive"}, "interactive validation"),
    ({"problem.yaml": "name: S\nvalidation: custom score"}, "gives the score itself"),
    ({"problem.yaml": "name: S\nvalidation: odd"}, "validation 'odd' is unknown"),
    ({"problem.yaml": "name: S\nvalidation: [custom]"}, "are lines of text"),
    ({"problem.yaml": "name: S\nlimits: 3"}, "limits is not a mapping"),
    ({"problem.yaml": "name: S\nlimits: {memory: much}"}, "limits.memory is not a number"),
    ({"problem.yaml": "name: S\nlimits: {memory: true}"}, "limits.memory is not a number"),
    ({"problem.yaml": "name: S\nlimits: {memory: 0}"}, "limits.memory is not between"),
    ({"problem.yaml": "name: S\nlimits: {memory: 5000}"}, "limits.memory is not between"),
    ({"problem.yaml": f"name: S\nlimits: {{memory: 1{'0' * 400}}}"}, "limits.memory is not betw"),
    ({"problem.yaml": "name: S\nlimits: {time_limit: .nan}"}, "limits.time_limit is not between"),
    ({"problem.yaml": "name: S\nlimits: {time_limit: 0.0001}"}, "time_limit is not between"),
    ({"problem.yaml": "name: S\nlimits: {time_limit: 61}"}, "time_limit is not between"),
    ({".timelimit": "soon"}, ".timelimit is not a number of seconds"),
    ({".timelimit": b"\xff"}, ".timelimit is not UTF-8"),
    ({"problem.yaml": "name: ["}, "problem.yaml is not readable YAML"),
    ({"problem.yaml": b"name: \xff"}, "problem.yaml is not readable YAML"),
    ({"problem.yaml": "name: " + "[" * 5000}, "problem.yaml is not readable YAML"),
    ({"problem.yaml": "name: !!python/object/apply:os.system [id]"}, "is not readable YAML"),
    ({"problem.yaml": "name: S\na: &a {k: 1}\nb: {<<: [*a, *a]}"}, "aliases are not supported"),
    ({"problem.yaml": "- 1"}, "problem.yaml is not a mapping"),
    ({"problem.yaml": "1: x"}, "problem.yaml is not a mapping"),
    ({"problem.yaml": "#" * 70_000}, "problem.yaml is larger than"),
    ({"include/python/main.py": ""}, "compiled with every submission"),
    ({"graders/grade.py": ""}, "a grader of its own"),
    ({"static_validator/check.py": ""}, "a validator of source code"),
    ({"data/secret/2.in": "x"}, "data/secret/2.in has no answer (2.ans)"),
    ({"data/secret/2.ans": "x"}, "data/secret/2.ans has no input"),
    ({"data/secret/1.args": "-v"}, "gives a case command line arguments"),
    ({"data/secret/1.files/x": ""}, "gives a case files of its own"),
    ({"data/secret/1.yaml": ""}, "gives a case settings of its own"),
    ({"data/secret/test_group.yaml": ""}, "newer package format"),
    ({"data/testdata.yaml": "grading: custom"}, "data is graded by a program"),
    ({"data/secret/testdata.yaml": "grading: custom"}, "data/secret is graded by a program"),
    ({"data/secret/testdata.yaml": "grader_flags: always_accept"}, "(always_accept)"),
    ({"data/secret/testdata.yaml": "grader_flags: accept_if_any_accepted"}, "without all its"),
    ({"data/secret/testdata.yaml": "grader_flags: [min]"}, "grader_flags is not one line"),
    ({"data/secret/testdata.yaml": "accept_score: lots"}, "accept_score is not a number"),
    ({"data/secret/testdata.yaml": "accept_score: .inf"}, "accept_score is not between"),
    ({"data/secret/testdata.yaml": f"accept_score: 1{'0' * 400}"}, "accept_score is not between"),
    ({"/".join(["data/secret", *"abcdefgh", "1.in"]): ""}, "lies deeper than"),
    (
        {"data/secret/group": "../sample", "data/sample/1.in": "", "data/sample/1.ans": ""},
        "a whole",
    ),
]


@pytest.mark.parametrize(("files", "sentence"), REFUSED_PASS_FAIL)
def test_refused(tmp_path: Path, files: dict[str, str | bytes], sentence: str) -> None:
    root = write(tmp_path, pass_fail(**files))
    assert sentence in refusal(root)
    # None of these is a matter of comparing outputs, so the flag changes nothing.
    assert sentence in refusal(root, allow_default_comparison=True)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"problem.yaml": "name: S\nvalidation: custom"}, "validator of its own (validation: cus"),
        ({"output_validators/check.py": ""}, "of its own (output_validators)"),
        ({"output_validator/check.py": ""}, "of its own (output_validator)"),
        ({"problem.yaml": "name: S\nvalidator_flags: float_tolerance 1e-4"}, "'float_tolerance"),
        (
            {"data/secret/testdata.yaml": "output_validator_flags: float_tolerance 1e-4"},
            "data/secret asks the output validator for 'float_tolerance",
        ),
    ],
)
def test_own_validators_are_refused_unless_the_default_comparison_is_allowed(
    tmp_path: Path, files: dict[str, str | bytes], sentence: str
) -> None:
    root = write(tmp_path, pass_fail(**files))
    assert sentence in refusal(root)
    assert read_package(root, allow_default_comparison=True).tasks[0].case_count == 1


def test_a_flag_that_the_default_comparison_honours_is_no_reason_to_refuse(tmp_path: Path) -> None:
    config = "name: S\nvalidation: default\nvalidator_flags: case_sensitive\n"
    assert read_package(write(tmp_path, pass_fail(**{"problem.yaml": config}))).name == "S"


REFUSED_SCORING: list[tuple[dict[str, str | bytes], str]] = [
    ({"data/secret/b/testdata.yaml": MIN.format(score=50)}, "sum to 90, not to 100"),
    ({"data/secret/b/testdata.yaml": MIN.format(score=60.5)}, "not a whole number"),
    ({"data/secret/b/testdata.yaml": MIN.format(score=-1)}, "not a whole number"),
    ({"data/secret/a/testdata.yaml": "accept_score: 20"}, "part of its cases (sum)"),
    ({"data/secret/a/testdata.yaml": "accept_score: 40\ngrader_flags: avg"}, "(avg)"),
    ({"data/secret/a/testdata.yaml": "accept_score: 40\ngrader_flags: max"}, "(max)"),
    (
        {"data/secret/a/testdata.yaml": MIN.format(score=40).strip() + " always_accept"},
        "(always_accept)",
    ),
    (
        {"data/secret/a/testdata.yaml": MIN.format(score=40).strip() + " accept_if_any_accepted"},
        "(accept_if_any_accepted)",
    ),
    ({"data/secret/a/testdata.yaml": MIN.format(score=40) + "reject_score: 1"}, "(reject_score)"),
    ({"data/secret/testdata.yaml": "grader_flags: min"}, "data/secret combines the scores"),
    ({"data/testdata.yaml": "grader_flags: max"}, "combines the scores of its groups by max"),
    ({"data/secret/c/testdata.yaml": MIN.format(score=0)}, "data/secret/c is a group without"),
    ({"data/secret/9.in": "", "data/secret/9.ans": ""}, "data/secret/9 lies in no test group"),
    ({"data/secret/a/x/9.in": "", "data/secret/a/x/9.ans": ""}, "has groups of its own"),
]


@pytest.mark.parametrize(("files", "sentence"), REFUSED_SCORING)
def test_refused_scoring(tmp_path: Path, files: dict[str, str | bytes], sentence: str) -> None:
    assert sentence in refusal(write(tmp_path, scoring() | files))


def test_a_package_without_secret_data_is_refused(tmp_path: Path) -> None:
    files = {"problem.yaml": "name: S", "data/sample/1.in": "", "data/sample/1.ans": ""}
    assert "no test data in data/secret" in refusal(write(tmp_path, dict(files)))


def test_a_folder_that_is_none_or_has_no_problem_yaml_is_refused(tmp_path: Path) -> None:
    assert "is not a folder" in refusal(tmp_path / "absent")
    assert "has no problem.yaml" in refusal(tmp_path)


@pytest.mark.parametrize(("count", "fits"), [(99, True), (100, False)])
def test_more_than_99_cases_are_refused(tmp_path: Path, count: int, fits: bool) -> None:
    files: dict[str, str | bytes] = {"problem.yaml": "name: S"}
    for n in range(count):
        files |= {f"data/secret/{n:03d}.in": str(n), f"data/secret/{n:03d}.ans": ""}
    root = write(tmp_path, files)
    if fits:
        found = contents(read_package(root))
        assert found["0098.in"] == b"98"
    else:
        assert "has 100 cases, more than 99" in refusal(root)


def test_more_than_99_groups_are_refused(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"problem.yaml": "name: S\ntype: scoring"}
    for n in range(100):
        files |= {f"data/secret/{n:03d}/1.in": "", f"data/secret/{n:03d}/1.ans": ""}
    assert "has 100 groups, more than 99" in refusal(write(tmp_path, files))


# Links


def test_a_chain_of_flattened_links_is_followed(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        pass_fail(
            **{
                "data/secret/g/2.in": "../3.in",
                "data/secret/g/2.ans": "../1.ans",
                "data/secret/3.in": "1.in",
                "data/secret/3.ans": "of three",
            }
        ),
    )
    found = contents(read_package(root))
    assert found["0002.in"] == b"1 2\n"
    assert found["0002.out"] == b"3\n"
    assert found["0001.in"] == b"1 2\n"
    assert found["0001.out"] == b"of three"


@pytest.mark.parametrize(
    "content",
    [
        b"../secret/1.in\n",  # a link's target ends without a newline
        b"../secret/9.in",  # leads to nothing
        b"../secret/1.ans",  # another suffix
        b"/etc/hosts.in",  # absolute: never what a package's link looks like
        b"two words.in\x00.in",
        b"\xff.in",
        b"x" * 300 + b".in",
    ],
)
def test_data_that_only_looks_like_a_link_stays_data(tmp_path: Path, content: bytes) -> None:
    root = write(tmp_path, pass_fail(**{"data/secret/2.in": content, "data/secret/2.ans": ""}))
    assert contents(read_package(root))["0001.in"] == content


@pytest.mark.parametrize(
    "target", ["../../../outside.in", "../../inside.in", "../../../../../../etc/passwd.in"]
)
def test_a_flattened_link_out_of_the_data_is_refused(tmp_path: Path, target: str) -> None:
    write(tmp_path, {"outside.in": "secret of the host", "package/inside.in": "x"})
    root = write(tmp_path / "package", pass_fail(**{"data/secret/1.in": target}))
    assert "outside the package's data" in refusal(root)


def test_flattened_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    root = write(tmp_path, pass_fail(**{"data/secret/1.in": "2.in", "data/secret/2.in": "1.in"}))
    (root / "data/secret/2.ans").write_text("")
    assert "round in circles" in refusal(root)


def link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def test_a_symbolic_link_inside_the_package_is_followed(tmp_path: Path) -> None:
    root = write(tmp_path, pass_fail(**{"shared/big.txt": "4 5\n"}))
    link(root / "data/secret/1.in", "../../shared/big.txt")
    assert contents(read_package(root))["0000.in"] == b"4 5\n"


def _link_case(root: Path) -> None:
    link(root / "data/secret/1.in", "../../../outside")


def _link_absolute(root: Path) -> None:
    link(root / "data/secret/1.ans", str(root.parent / "outside"))


def _link_group(root: Path) -> None:
    (root.parent / "group").mkdir()
    (root / "data/secret/group").symlink_to("../../../group")


def _link_data(root: Path) -> None:
    (root / "data").rename(root.parent / "moved")
    (root / "data").symlink_to("../moved")


def _link_config(root: Path) -> None:
    link(root / "problem.yaml", "../outside")


def _flattened_through_a_link(root: Path) -> None:
    (root.parent / "group").mkdir()
    (root.parent / "group" / "9.in").write_text("secret of the host")
    (root / "data/elsewhere").symlink_to("../../group")
    (root / "data/secret/1.in").write_text("../elsewhere/9.in")


@pytest.mark.parametrize(
    "climb",
    [
        _link_case,
        _link_absolute,
        _link_group,
        _link_data,
        _link_config,
        _flattened_through_a_link,
    ],
)
def test_a_symbolic_link_out_of_the_package_is_refused(
    tmp_path: Path, climb: Callable[[Path], None]
) -> None:
    (tmp_path / "outside").write_text("name: secret of the host")
    root = write(tmp_path / "package", pass_fail())
    climb(root)
    assert "outside the package" in refusal(root)


def test_links_that_lead_nowhere_or_round_are_refused(tmp_path: Path) -> None:
    root = write(tmp_path, pass_fail())
    link(root / "data/secret/1.in", "nothing.in")
    assert "leads nowhere" in refusal(root)
    link(root / "data/secret/1.in", "1.in")
    assert "leads nowhere" in refusal(root)


def test_what_is_no_regular_file_is_never_opened(tmp_path: Path) -> None:
    root = write(tmp_path, pass_fail())
    (root / "data/secret/1.in").unlink()
    os.mkfifo(root / "data/secret/1.in")
    assert "data/secret/1.in is not a regular file" in refusal(root)


def test_files_and_their_total_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path, pass_fail())
    monkeypatch.setattr(package_files, "DATA_TOTAL_BYTES_MAX", 5)
    assert "larger than 5 bytes" in refusal(root)
    monkeypatch.setattr(package_files, "DATA_FILE_BYTES_MAX", 3)
    assert "data/secret/1.in is larger than 3 bytes" in refusal(root)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_problem_yaml_is_read_or_refused(tmp_path: Path, config: bytes) -> None:
    root = write(tmp_path, pass_fail(**{"problem.yaml": config}))
    # Any other exception fails the test.
    with contextlib.suppress(PackageRefused):
        read_package(root)
