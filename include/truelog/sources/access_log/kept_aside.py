"""The lines that imports have not sent: files that only their owner can read, because the lines have IP addresses."""

import fcntl
from pathlib import Path
from typing import BinaryIO

from truelog.support.settings import Settings

SUFFIX = ".malformed"


def folder(settings: Settings) -> Path:
    """The folder of these files, which may not exist. Each machine that imports has its own."""
    return settings.home / "imports"


def take(file: BinaryIO, *, wait: bool) -> None:
    """Take a file until it is closed. An import takes the file that it writes, so that no erasure replaces it.

    Raises:
        BlockingIOError: another process has it, and `wait` is false.
    """
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
