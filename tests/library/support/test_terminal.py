"""What a command writes while it waits: one changing line to a terminal, and ever rarer lines to a file."""

import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from truelog.support import wait
from truelog.support.errors import ServiceDown

COMMAND = """
import logging
from truelog.support.terminal import log_to_terminal
from truelog.support.wait import until
from truelog.support.errors import ServiceDown
left = [1, 2, 3]
def ready():
    if left:
        raise ServiceDown(f"{left.pop()} to go")
log_to_terminal()
until(ready, 10, "a store")
logging.getLogger("truelog").info("the store is ready")
"""


def test_a_terminal_shows_one_changing_line() -> None:
    ours, theirs = pty.openpty()
    ended = subprocess.run([sys.executable, "-c", COMMAND], stderr=theirs, check=True, stdout=subprocess.PIPE)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert ended.stdout == b""
    *waits, last = shown.split("\r\x1b[K")
    assert [each.rpartition(": ")[2] for each in waits if each] == ["3 to go", "2 to go", "1 to go"]
    assert last.strip().endswith("the store is ready")
    assert shown.count("\n") == 1


def test_a_file_gets_no_wall_of_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 5, 10, 20, 40 and 80 s of a wait of 100 s."""
    clock = iter(range(1_000))
    ticks: Iterator[float] = (float(each) for each in clock)
    monkeypatch.setattr("time.monotonic", lambda: next(ticks))
    monkeypatch.setattr("time.sleep", lambda _: None)

    def never() -> None:
        raise ServiceDown("it is busy")

    with caplog.at_level(logging.INFO, "truelog.wait"), pytest.raises(ServiceDown, match="not ready within 100 s"):
        wait.until(never, 100, "a store")
    assert [record.getMessage().split()[3] for record in caplog.records] == ["6", "11", "21", "41", "81"]
