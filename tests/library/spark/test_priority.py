"""Batch work has a lower priority than the streams: its Python process, its JVM, and what these start."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from truelog.spark import priority
from truelog.spark.priority import NICENESS, batch_cores, usable_cores
from truelog.spark.submit import submit_conf
from truelog.support.settings import Settings

# What a command of `truelog` does for batch work, and a Spark job of Airflow after its submission.
_COMMAND = """
import json, os, psutil
from truelog.batch.batch_context import open_batch
from truelog.spark.early import begin_session
from truelog.support.settings import Settings

started = begin_session(Settings(), "priority", records=0)
with open_batch(Settings(), "priority", ["no_such_view"], lambda _: {}, started) as context:
    context.spark.range(2).rdd.map(str).collect()
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = [(each.name(), each.nice()) for each in processes]
print(json.dumps(found))
"""


def test_the_processes_of_a_batch_command_have_a_lower_priority(platform: Settings) -> None:
    environment = os.environ | {"TRUELOG_HOME": str(platform.home), "TRUELOG_JARS": str(platform.jars_home)}
    ended = subprocess.run(
        [sys.executable, "-P", "-c", _COMMAND], env=environment, capture_output=True, text=True, check=True
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    assert any("java" in name for name, _ in found)
    assert {niceness for _, niceness in found} == {max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0))}


def test_who_has_a_still_lower_priority_keeps_it() -> None:
    code = "import os; from truelog.spark import priority; priority.yield_to_streams(); print(os.nice(0))"
    for given, expected in ((0, NICENESS), (NICENESS + 5, NICENESS + 5)):
        command = ["nice", "-n", str(max(0, given - os.nice(0))), sys.executable, "-P", "-c", code]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        assert int(ended.stdout) == max(expected, os.nice(0))


@pytest.mark.parametrize(("cores", "used"), [(1, 1), (2, 2), (3, 2), (4, 2), (8, 4), (9, 5)])
def test_batch_work_uses_half_of_more_than_two_cores(cores: int, used: int) -> None:
    assert batch_cores(cores) == used


@pytest.mark.parametrize(("text", "cores"), [("max 100000", math.inf), ("150000 100000", 2), ("50000 100000", 1)])
def test_the_quota_of_a_container_limits_the_cores(tmp_path: Path, text: str, cores: float) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    assert usable_cores(quota) == min(usable_cores(tmp_path / "none"), cores)


@pytest.mark.parametrize(("cores", "limit"), [(2, None), (8, "-XX:ActiveProcessorCount=4")])
def test_java_of_batch_work_knows_its_cores_and_that_of_a_stream_does_not(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, cores: int, limit: str | None
) -> None:
    monkeypatch.setattr(priority, "usable_cores", lambda: cores)

    def limits(*, batch: bool) -> list[str]:
        options = submit_conf(settings, settings.home, batch=batch)["spark.driver.extraJavaOptions"].split()
        return [each for each in options if "ActiveProcessorCount" in each]

    assert limits(batch=False) == []
    assert limits(batch=True) == ([limit] if limit else [])
