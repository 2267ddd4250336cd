"""The record of nightly runs: what is recorded, when a part is too old, and what its parts run."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.deadline import deadline
from tests.house.tree import PROJECT, files, git, plant
from tests.nightly import __main__ as nightly
from tests.nightly import cases, load, record
from tests.nightly.__main__ import Part
from tests.nightly.cases import Outcome
from tests.nightly.record import FILE, RULE, Green, too_old, write
from truelog.support.process import is_alive

PARTS = {"soak": 6, "alone": 9}


def commit(project: Path, times: int = 1) -> str:
    for _ in range(times):
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        git(project, *identity, "commit", "--quiet", "--allow-empty", "--message", "a change")
    return git(project, "rev-parse", "HEAD").strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = plant(tmp_path / "project", {"a.py": "", "tests/nightly/b.py": "", ".gitignore": "build/\n"})
    git(made, "add", ".")
    commit(made)
    return made


def green(project: Path, *parts: str) -> None:
    for part in parts:
        write(project, part, Green(git(project, "rev-parse", "HEAD").strip(), "2026-11-25"))


def test_every_part_of_make_nightly_was_green_lately() -> None:
    assert too_old(PROJECT, nightly.limits(PROJECT)) == []


def test_a_part_that_was_never_green_is_as_old_as_the_rule(project: Path) -> None:
    commit(project, 10)
    plant(project, {str(RULE): ""})
    assert too_old(project, PARTS) == []
    git(project, "add", ".")
    commit(project, 7)
    assert too_old(project, PARTS) == []
    commit(project)
    assert too_old(project, PARTS) == [
        f"soak has never been green; the rule began 7 commits ago, at most 6 are allowed: run "
        f"`make nightly PARTS=soak` and commit {FILE}"
    ]


def test_each_part_grows_old_by_its_own_number(project: Path) -> None:
    green(project, *PARTS)
    commit(project, 6)
    assert too_old(project, PARTS) == []
    commit(project, 3)
    [problem] = too_old(project, PARTS)
    assert problem.startswith("soak was green 9 commits ago, at most 6 are allowed")
    commit(project)
    assert [each.split(" was ")[0] for each in too_old(project, PARTS)] == ["soak", "alone"]
    green(project, "soak")
    assert [each.split(" was ")[0] for each in too_old(project, PARTS)] == ["alone"]


def test_a_run_without_a_part_is_found(project: Path) -> None:
    green(project, *PARTS, "gone")
    assert too_old(project, PARTS) == [f"{FILE} has a part gone, which does not exist: remove it"]


def test_a_commit_outside_the_history_does_not_count(project: Path) -> None:
    git(project, "checkout", "--quiet", "-b", "other")
    commit(project)
    green(project, *PARTS)
    git(project, "checkout", "--quiet", "-")
    assert ["is not in the history" in problem for problem in too_old(project, PARTS)] == [True, True]


def test_without_the_history_the_rule_fails_and_says_why(project: Path, tmp_path: Path) -> None:
    green(project, *PARTS)
    record_text = (project / FILE).read_text()
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth", "1", project.as_uri(), str(shallow))
    exported = tmp_path / "exported"
    for folder, reason in ((shallow, "this clone is shallow"), (exported, "this tree is not a git clone")):
        (folder / FILE).parent.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(record_text)
        [problem] = too_old(folder, PARTS)
        assert problem.startswith(f"the age of the nightly runs is unknown: {reason}")


@pytest.fixture
def parts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that are green, red, and change a file."""
    commands = {"green": Part(("true",)), "red": Part(("false",)), "changing": Part(("touch", "new.py"))}
    monkeypatch.setattr(nightly, "PARTS", commands)
    monkeypatch.setattr(nightly, "PROJECT", project)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(
    ("named", "exit_code", "recorded"),
    [((), 1, {"green"}), (("green",), 0, {"green"}), (("red",), 1, set()), (("changing",), 0, set())],
)
def test_green_parts_are_recorded(project: Path, named: tuple[str, ...], exit_code: int, recorded: set[str]) -> None:
    assert nightly.main(named) == exit_code
    found = record.read(project)
    assert found.keys() == recorded
    assert {each.commit for each in found.values()} <= {git(project, "rev-parse", "HEAD").strip()}


def test_a_group_names_all_its_parts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    green_parts = {"alone/views", "alone/laws", "mutation/log/positions.py"}
    monkeypatch.setattr(nightly, "PARTS", dict.fromkeys(green_parts, Part(("true",))) | {"soak": Part(("false",))})
    monkeypatch.setattr(nightly, "PROJECT", project)
    monkeypatch.setattr(cases, "run", lambda *_: pytest.fail("a part ran as a file of cases"))
    assert nightly.main(["alone", "mutation"]) == 0
    assert record.read(project).keys() == green_parts


def test_each_folder_of_tests_runs_alone() -> None:
    commands = [part.command for name, part in nightly.PARTS.items() if name.startswith("alone/")]
    folders = {PROJECT / command[-1] for command in commands}
    assert [file for file in files(PROJECT, "tests/**/test_*.py") if not folders & set(file.parents)] == []
    assert all("--alone" in command for command in commands)


REPORT = """<testsuites><testsuite>
<testcase file="tests/test_a.py" time="1.5" /><testcase file="tests/test_a.py" time="2" />
<testcase file="tests/test_b.py" time="1" /><testcase file="tests/test_b.py" time="1"><failure /></testcase>
<testcase file="tests/test_c.py" time="1"><skipped /></testcase>
</testsuite></testsuites>"""


@pytest.mark.usefixtures("parts")
def test_each_green_file_of_the_cases_is_recorded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    green(project, "tests/test_b.py")
    before = record.read(project)["tests/test_b.py"].commit
    commit(project)
    monkeypatch.setattr(cases, "run", lambda *_: cases.outcomes(REPORT))
    assert nightly.main(["cases"]) == 1
    assert {file: each.commit for file, each in record.read(project).items()} == {
        "tests/test_a.py": git(project, "rev-parse", "HEAD").strip(),
        "tests/test_b.py": before,
    }


MARKED = """import pytest

@pytest.mark.parametrize("each", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_each(each): ...
"""


def test_each_file_with_a_nightly_test_must_run_again(project: Path) -> None:
    """A file that has never run is found too."""
    plant(
        project, {"tests/test_a.py": MARKED, "tests/browser_jobs_a.py": MARKED, "tests/test_b.py": "def test_b(): ..."}
    )
    assert cases.files(project) == ["tests/browser_jobs_a.py", "tests/test_a.py"]
    assert nightly.limits(project).keys() == {*nightly.PARTS, "tests/browser_jobs_a.py", "tests/test_a.py"}
    plant(project, {"tests/test_a.py": "import gone"})
    with pytest.raises(subprocess.CalledProcessError):
        cases.files(project)


@pytest.mark.usefixtures("parts")
def test_a_file_of_the_cases_may_be_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def run(*given: object) -> dict[str, Outcome]:
        asked.append(given)
        return cases.outcomes(REPORT)

    monkeypatch.setattr(cases, "run", run)
    nightly.main(["a.py"])
    assert asked == [(project, ["a.py"])]
    with pytest.raises(SystemExit):
        nightly.main(["gone.py"])


@pytest.mark.usefixtures("parts")
def test_a_changed_tree_is_not_recorded(project: Path) -> None:
    (project / "a.py").write_text("1\n")
    assert nightly.main(["green"]) == 0
    assert record.read(project) == {}


@pytest.mark.usefixtures("parts")
def test_a_red_part_keeps_its_earlier_record(project: Path) -> None:
    green(project, "red")
    before = record.read(project)
    assert nightly.main(["red"]) == 1
    assert record.read(project) == before


def test_busy_processes_end_with_the_block() -> None:
    with load.busy(2) as running:
        processes = [psutil.Process(each.pid) for each in running]
        assert [each.nice() for each in processes] == [psutil.Process().nice()] * 2
    assert [each.is_running() for each in processes] == [False, False]


def test_busy_processes_end_by_themselves() -> None:
    with load.busy(1, seconds=0) as [process]:
        assert process.wait(deadline(30)) == 0


def test_busy_processes_end_with_a_killed_parent() -> None:
    loaded = "with load.busy(1) as [each]:\n    print(each.pid, flush=True)\n    sys.stdin.read()"
    command = [sys.executable, "-c", f"import sys\nfrom tests.nightly import load\n{loaded}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT) as parent:
        assert parent.stdout
        process = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    with suppress(psutil.NoSuchProcess):
        process.wait(deadline(10))
    assert not is_alive(process)


@pytest.mark.parametrize(("command", "exit_code"), [(("true",), 0), (("false",), 1)])
def test_a_command_under_load_keeps_its_exit_code(command: tuple[str, ...], exit_code: int) -> None:
    assert load.main(command) == exit_code
