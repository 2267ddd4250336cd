"""The home of a platform: its settings file, which people edit too, and the lock of the commands that set it up."""

import fcntl
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

from dotenv import dotenv_values

from truelog.support.files import write_private
from truelog.support.settings import ENVIRONMENT_FILE

_LOCK = "up.lock"

log = logging.getLogger("truelog.runtime")


@contextmanager
def exclusive(home: Path) -> Iterator[None]:
    """Hold the home while it is set up and its jars are fetched. Wait until no other process does that.

    Otherwise each of two processes could generate secrets, and the services would know those of only one.
    """
    home.mkdir(parents=True, exist_ok=True)
    with open(os.open(home / _LOCK, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("another command sets up %s, such as `truelog up`; waiting until it has ended", home)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def written_names(home: Path) -> set[str]:
    """The names in the settings file, as its reader finds them: `export` and small letters are allowed."""
    return {name.upper() for name in dotenv_values(stream=StringIO(_text(home)))}


def add_missing(home: Path, settings: Mapping[str, str]) -> None:
    """Add those settings that the settings file does not have. What it has does not change."""
    known = written_names(home)
    if missing := {name: value for name, value in settings.items() if name not in known}:
        append(home, missing)


def append(home: Path, settings: Mapping[str, str]) -> None:
    """Append settings to the settings file. They replace earlier lines with the same names."""
    text = _text(home)
    end = "" if text.endswith("\n") or not text else "\n"  # an editor may have left it out
    added = "".join(f"{name}={value}\n" for name, value in settings.items())
    write_private(home / ENVIRONMENT_FILE, f"{text}{end}{added}")


def _text(home: Path) -> str:
    file = home / ENVIRONMENT_FILE
    return file.read_text() if file.is_file() else ""
