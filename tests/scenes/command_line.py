"""Runs `truelog …` in a process and reads the line of JSON that the command prints."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 180


def truelog(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).with_name("truelog")
    given = os.environ | environment
    return subprocess.run(
        [program, *words], env=given, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )


def answer(*words: str, exit_code: int = 0, **environment: str) -> Any:
    """Run the command and return the one JSON value that it prints."""
    return answer_of(truelog(*words, "--json", **environment), exit_code)


def answer_of(ended: "subprocess.CompletedProcess[str]", exit_code: int) -> Any:
    """The one JSON value that a command has printed."""
    assert ended.returncode == exit_code, ended.stderr
    [line] = ended.stdout.splitlines()
    return json.loads(line)
