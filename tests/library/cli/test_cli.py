"""The command-line contract: one line of JSON on standard output, and meaningful exit codes."""

import json
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.command import truelog
from truelog import __version__
from truelog.cli.commands.streaming import tables

TRUELOG = Path(sys.executable).with_name("truelog")


def run(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in a process that knows nothing but its home."""
    environment = {"TRUELOG_HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run([TRUELOG, *words], env=environment, capture_output=True, text=True, check=False)


def test_bad_use_is_2() -> None:
    assert truelog("no-such-word").returncode == 2
    assert truelog("up", "no-such-service").returncode == 2


def test_the_version_is_printed_without_a_platform(tmp_path: Path) -> None:
    ended = run(tmp_path, "--version")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"truelog {__version__}\n", "")


def test_a_home_without_set_up_is_3_with_the_cure(tmp_path: Path) -> None:
    ended = run(tmp_path, "status", "--json")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "truelog up" in ended.stderr


@pytest.mark.parametrize("words", [[TRUELOG, "up", "s3"], [sys.executable, "-m", "runtime"]])
def test_one_command_at_a_time_sets_up_a_home(tmp_path: Path, words: list[str]) -> None:
    import runtime

    environment = {"TRUELOG_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "TRUELOG_JARS": "/nowhere"}
    with (
        runtime.exclusive(tmp_path),
        subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as second,
    ):
        assert second.stderr is not None
        said = second.stderr.readline()
        second.kill()
    assert f"another command sets up {tmp_path}" in said
    assert not (tmp_path / "settings.env").exists()


def test_status_of_stopped_services_is_1() -> None:
    import runtime

    with tempfile.TemporaryDirectory(
        prefix="truelog-"
    ) as home:  # the paths of pytest's own folders are too long for a socket
        made = runtime.set_up(Path(home), random_ports=True)
        ended = run(Path(home), "status", "--json")
    assert ended.returncode == 1
    [line] = ended.stdout.splitlines()
    answer = json.loads(line)
    assert {service["state"] for service in answer["services"]} == {"STOPPED"}
    assert {each["state"] for each in answer["streams"]} == {"UNKNOWN"}
    assert made.analyst_password.get_secret_value() not in ended.stdout


def test_brackets_in_a_reason_are_shown_unchanged() -> None:
    """Brackets are markup in the table, where an unmatched closing tag would be an error."""
    empty = {"pid": None, "memory_mb": None, "lag_events": None, "lag_seconds": None, "lag_age": None}
    empty |= {"batch_at": None}
    view = empty | {"view": "one", "state": "STALLED", "reason": "in [red]a[/nothing]"}
    application = empty | {"application": "stream", "state": "RUNNING", "reason": "Kafka [/] is away", "views": [view]}
    printed = StringIO()
    console = Console(width=200, file=printed)
    for table in tables([application]):
        console.print(table)
    shown = printed.getvalue()
    assert "in [red]a[/nothing]" in shown
    assert "lag unknown: Kafka [/] is away" in shown


@pytest.mark.parametrize("word", ["up", "down", "status"])
def test_every_command_has_help(word: str) -> None:
    ended = truelog(word, "--help")
    assert ended.returncode == 0
    assert "--json" in ended.stdout
