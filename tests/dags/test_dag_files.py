"""A process that has loaded DAG files ends at a segmentation fault."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.deadline import deadline
from truelog.support.settings import PROJECT

FAULT = """
import os, pathlib, signal, sys
from tests.dags.dag_files import load_dags
load_dags(pathlib.Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_segmentation_fault_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from airflow.sdk import DAG\n\nDAG('a')\n")
    command = [sys.executable, "-c", FAULT, str(tmp_path)]
    ended = subprocess.run(command, cwd=PROJECT, check=False, capture_output=True, timeout=deadline(60))
    assert ended.returncode == -signal.SIGSEGV, ended.stderr
