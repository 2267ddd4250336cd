"""The costs of a run: what the meter counts, how a run is judged, and what the summary prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import PROJECT
from tests.plugins import cpu_meter
from tests.plugins.cost_record import ALLOWED_GROWTH, CostRecord, incomparable, judge, read_record, write_record
from tests.plugins.cpu_meter import CpuMeter, Process

ROOT, SUPERVISOR, JVM, OTHER, INIT = 10, 20, 30, 40, 1
RECORDED = CostRecord("not nightly", 2, 0.020, {"tests/a.py": 80.0, "tests/b.py": 20.0})


def table(**seconds: tuple[int, int, float]) -> dict[int, Process]:
    """Processes by name, each with its parent, its start and its seconds. A process of someone else is always there."""
    ids = {"root": ROOT, "supervisor": SUPERVISOR, "jvm": JVM}
    return {ids[name]: Process(*values) for name, values in seconds.items()} | {OTHER: Process(INIT, 0, 1_000.0)}


def test_a_process_counts_once_when_its_parent_has_reaped_it() -> None:
    meter = CpuMeter(ROOT)
    assert meter.sampled(table(root=(INIT, 0, 1.0), supervisor=(ROOT, 5, 2.0), jvm=(SUPERVISOR, 6, 10.0))) == 13
    assert meter.sampled(table(root=(INIT, 0, 1.0), supervisor=(ROOT, 5, 12.5))) == 13.5
    assert meter.sampled(table(root=(INIT, 0, 14.0))) == 14


def test_a_process_counts_after_its_parent_was_killed() -> None:
    """Then init reaps the JVM, and its time is in no sum any longer."""
    meter = CpuMeter(ROOT)
    assert meter.sampled(table(root=(INIT, 0, 1.0), supervisor=(ROOT, 5, 2.0), jvm=(SUPERVISOR, 6, 10.0))) == 13
    assert meter.sampled(table(root=(INIT, 0, 3.0), jvm=(INIT, 6, 15.0))) == 18
    assert meter.sampled(table(root=(INIT, 0, 3.0))) == 18
    assert meter.sampled(table(root=(INIT, 0, 4.0))) == 19


def test_a_process_with_the_number_of_an_earlier_one_does_not_count() -> None:
    meter = CpuMeter(ROOT)
    meter.sampled(table(root=(INIT, 0, 1.0), jvm=(ROOT, 6, 10.0)))
    assert meter.sampled(table(root=(INIT, 0, 1.0), jvm=(INIT, 7, 500.0))) == 11


def test_the_meter_counts_a_real_process_that_lost_its_parent() -> None:
    """The child begins its work when its parent has been killed."""
    work = "print('ready', flush=True); sys.stdin.readline(); sum(range(40_000_000)); print('done', flush=True)"
    child = f"import sys; {work}; sys.stdin.readline()"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]).wait()"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdin
        assert started.stdout
        assert started.stdout.readline() == b"ready\n"
        meter = CpuMeter(started.pid)  # other members of our own family may end meanwhile
        before = meter.seconds()
        started.kill()
        started.wait()
        started.stdin.write(b"go\n")
        started.stdin.flush()
        assert started.stdout.readline() == b"done\n"
        assert meter.seconds() - before > 0.1


def test_reading_the_table_finds_this_process() -> None:
    before, mine, after = os.times(), cpu_meter.read_processes([os.getpid()])[os.getpid()], os.times()
    assert mine.parent == os.getppid()
    unit = 4 / os.sysconf("SC_CLK_TCK")  # the kernel rounds each of four numbers
    assert sum(before[:4]) - unit <= mine.seconds <= sum(after[:4]) + unit, "other threads work meanwhile"


@pytest.mark.parametrize(
    ("now", "problem"),
    [
        pytest.param(RECORDED, "", id="the same"),
        pytest.param({"tests/a.py": 84.9, "tests/b.py": 20.0}, "", id="4.9 % more"),
        pytest.param({"tests/a.py": 20.0, "tests/b.py": 80.0}, "", id="another file, the same sum"),
        pytest.param({"tests/a.py": 85.1, "tests/b.py": 20.0}, "tests/a.py: 85.1 s, was 80.0 s", id="5.1 % more"),
        pytest.param({**RECORDED.files, "tests/c.py": 6.0}, "tests/c.py: 6.0 s, new", id="a new file"),
    ],
)
def test_only_the_sum_is_judged(now: CostRecord | dict[str, float], problem: str) -> None:
    run = now if isinstance(now, CostRecord) else CostRecord("not nightly", 2, 0.020, now)
    found = judge(run, RECORDED)
    assert (problem in found) if problem else found == ""
    assert not found or "make test COSTS=record" in found


@pytest.mark.parametrize("factor", [0.5, 1, 3])
def test_the_speed_of_the_machine_does_not_matter(factor: float) -> None:
    def on_that_machine(growth: float) -> CostRecord:
        files = {name: seconds * factor * growth for name, seconds in RECORDED.files.items()}
        return CostRecord("not nightly", 2, RECORDED.reference * factor, files)

    assert judge(on_that_machine(1 + ALLOWED_GROWTH - 0.001), RECORDED) == ""
    assert judge(on_that_machine(1.2), RECORDED).startswith("The tests cost 120 CPU seconds, but the record has 100.")


@pytest.mark.parametrize(
    ("markers", "workers", "reference", "reason"),
    [
        ("not nightly", 2, 0.022, ""),
        ("not nightly", 2, 0.018, ""),
        ("not nightly", 2, 0.024, "the same work needed +20% CPU seconds"),
        ("not nightly", 2, 0.015, "the same work needed -25% CPU seconds"),
        ("", 2, 0.020, "the record is of 2 workers with -m 'not nightly', not of 2 with -m ''"),
        ("not nightly", 4, 0.020, "the record is of 2 workers with -m 'not nightly', not of 4 with -m 'not nightly'"),
    ],
)
def test_runs_of_another_kind_or_speed_are_not_compared(
    markers: str, workers: int, reference: float, reason: str
) -> None:
    assert incomparable(CostRecord(markers, workers, reference, RECORDED.files), RECORDED) == reason


def run(project: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-p", "tests.plugins.costs", "-p", "no:cacheprovider"]
    environment = {"PYTHONPATH": str(PROJECT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, *options], cwd=project, capture_output=True, text=True, check=False, env=environment
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One file whose child process works, and one file that does nothing."""
    work = "import subprocess, sys\ndef test_a():\n"
    work += "    subprocess.run([sys.executable, '-c', 'sum(range(30_000_000))'], check=True)\n"
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_busy.py").write_text(work)
    (tmp_path / "tests" / "test_idle.py").write_text("def test_b(): pass\n")
    return tmp_path


def test_workers_report_their_files_and_the_run_is_recorded_and_judged(project: Path) -> None:
    two = ("-p", "xdist.plugin", "-n", "2", "--dist", "loadfile")
    recording = run(project, *two, "--costs", "record")
    assert recording.returncode == 0, recording.stdout
    record = read_record(project)
    assert record
    assert {name for name in record.files if name.startswith("tests/")} == {"tests/test_busy.py", "tests/test_idle.py"}
    assert record.files["tests/test_busy.py"] > 0.2 > record.files["tests/test_idle.py"]
    printed = re.findall(r"^ +[\d.]+ +([\d.]+)  tests/test_busy\.py$", recording.stdout, re.MULTILINE)
    assert [float(each) for each in printed] == [record.files["tests/test_busy.py"]]

    (project / "conftest.py").write_text("from tests.plugins import cost_record\ncost_record.COMPARABLE = 100.0\n")
    cheaper = {name: seconds / 3 for name, seconds in record.files.items()}
    write_record(project, CostRecord(record.markers, record.workers, record.reference, cheaper))
    judged = run(project, *two, "--costs", "judge")
    assert judged.returncode == 1, judged.stdout
    assert "tests/test_busy.py" in judged.stdout.partition("these files most")[2]


def test_a_wait_for_another_worker_counts_for_no_file(project: Path) -> None:
    """The second worker gets the idle file, and its meter works all the time until the first worker is ready."""
    late = "import os, time\nfrom tests.plugins import cpu_meter\ncpu_meter.SAMPLE_SECONDS = 0.0\n"
    late += "def pytest_collection_finish():\n    time.sleep(2 * (os.environ.get('PYTEST_XDIST_WORKER') == 'gw0'))\n"
    (project / "conftest.py").write_text(late)
    recording = run(project, "-p", "xdist.plugin", "-n", "2", "--dist", "loadfile", "--costs", "record")
    record = read_record(project)
    assert record, recording.stdout
    assert record.files["(starts of the workers)"] > 0.5 > record.files["tests/test_idle.py"]


def test_without_a_record_the_costs_are_not_judged(project: Path) -> None:
    judged = run(project, "--costs", "judge")
    assert judged.returncode == 0
    assert "The costs are not judged: there is no record; `make test COSTS=record` writes it." in judged.stdout


def test_a_failed_run_is_not_recorded(project: Path) -> None:
    (project / "tests" / "test_idle.py").write_text("def test_b(): assert False\n")
    failed = run(project, "--costs", "record")
    assert "neither judged nor recorded" in failed.stdout
    assert read_record(project) is None
