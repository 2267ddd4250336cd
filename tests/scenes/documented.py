"""The examples of a document: shell commands with their output, run in one shell in the order of the document."""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deadline import deadline

_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*(?:\n  .*)*)\n?((?:(?!\$ ).+\n?)*)", re.MULTILINE)  # further lines are indented
_MARK = "--- next example ---"


@dataclass(frozen=True)
class Example:
    """A command and the output that the document shows."""

    command: str
    shown: str


def examples(document: Path) -> list[Example]:
    """The commands in the console blocks of a document."""
    blocks = _BLOCK.findall(document.read_text())
    return [Example(command, shown.strip()) for block in blocks for command, shown in _COMMAND.findall(block)]


def outputs(found: list[Example], replaced: Mapping[str, str], folder: Path) -> list[str]:
    """The output of each command. `replaced` has the real values of texts in the document, such as an address."""
    script = "".join(f"{each.command}\necho\necho '{_MARK}'\n" for each in found)
    for shown, real in replaced.items():
        assert shown in script, f"no example uses {shown}"
        script = script.replace(shown, real)
    command = ["bash", "-c", script]
    run = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=deadline(120))
    assert (run.returncode, run.stderr) == (0, "")
    return [each.strip() for each in run.stdout.split(_MARK)[:-1]]


def agrees(shown: str, output: str) -> bool:
    """Whether an output is the shown output, except for places in the log and further fields of JSON objects."""
    (shown_json, shown_rest), (output_json, output_rest) = _split(shown), _split(output)
    return shown_rest == output_rest and _within(shown_json, output_json)


def _split(text: str) -> tuple[Any, str]:
    """The JSON at the beginning of a text, and what follows it."""
    if not text.startswith("{"):
        return None, text
    value, end = json.JSONDecoder().raw_decode(text)
    return value, text[end:].strip()


def _within(shown: Any, output: Any) -> bool:
    if isinstance(shown, dict) and isinstance(output, dict):
        return all(n in output and (n in ("partition", "offset") or _within(shown[n], output[n])) for n in shown)
    if isinstance(shown, list) and isinstance(output, list):
        return len(shown) == len(output) and all(map(_within, shown, output))
    return bool(shown == output)
