"""Runs `truelog …` in this process and reads what the command prints.

A process of its own takes two seconds, most of them for imports. `tests/scenes/command_line.py` starts one.
"""

import io
import logging
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest

from tests.scenes.command_line import answer_of
from truelog.cli import main


def truelog(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        patched.setattr(sys, "argv", ["truelog", *words])
        patched.setattr(logging.getLogger(), "handlers", [])  # the command adds its own, as in a new process
        for name, value in environment.items():
            patched.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main.main()
    printed = (each.buffer.getvalue().decode() for each in (out, err))
    return subprocess.CompletedProcess(words, int(ended.value.code or 0), *printed)


def answer(*words: str, exit_code: int = 0, **environment: str) -> Any:
    """Run the command and return the one JSON value that it prints."""
    return answer_of(truelog(*words, "--json", **environment), exit_code)
