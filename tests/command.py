"""Runs `truelog …` and reads what the command prints.

`truelog` runs the command in this process. A process of its own takes two seconds, most of them for imports. Use
`truelog_process` if the process matters: a fault kills it, or it stops services that it has not started. A command that
starts Spark uses the tests' session in a block of `shared_spark`, because a start takes ten CPU seconds.
"""

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.deadline import deadline
from truelog.cli import main

TIMEOUT_SECONDS = 180

Ended = subprocess.CompletedProcess[str]


def truelog(*words: str, **environment: str) -> Ended:
    """Run the command in this process. It reads the environment and the home's settings file, as a new process does."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        patched.setattr(sys, "argv", ["truelog", *words])
        patched.setattr(logging.getLogger(), "handlers", [])  # the command adds its own, as in a new process
        for name, value in environment.items():
            patched.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main.main()
    printed = (each.buffer.getvalue().decode() for each in (out, err))
    return Ended(words, int(ended.value.code or 0), *printed)


@contextmanager
def shared_spark() -> Iterator[None]:
    """Commands in this block use the file's Spark session and leave it running, and this process keeps its priority."""
    from pyspark.sql import SparkSession

    with mock.patch.object(SparkSession, "stop"), mock.patch("truelog.spark.early.yield_to_streams"):
        yield


def truelog_process(*words: str, **environment: str) -> Ended:
    """Run the command in a process of its own."""
    program = Path(sys.executable).with_name("truelog")
    given = os.environ | environment
    return subprocess.run(
        [program, *words], env=given, capture_output=True, text=True, timeout=deadline(TIMEOUT_SECONDS), check=False
    )


def answer(*words: str, exit_code: int = 0, **environment: str) -> Any:
    """Run the command in this process and return the one JSON value that it prints."""
    return _answer(truelog(*words, "--json", **environment), exit_code)


def process_answer(*words: str, exit_code: int = 0, **environment: str) -> Any:
    """Run the command in a process of its own and return the one JSON value that it prints."""
    return _answer(truelog_process(*words, "--json", **environment), exit_code)


def _answer(ended: Ended, exit_code: int) -> Any:
    assert ended.returncode == exit_code, ended.stderr
    [line] = ended.stdout.splitlines()
    return json.loads(line)
