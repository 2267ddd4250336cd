"""Private folders for the temporary files of Spark processes.

Spark's blocks and spilled rows contain event data, and its Python workers listen on sockets in these folders. A folder
of a job is named after the process that started the job. The next job removes it if that process was killed.
"""

import atexit
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings

_SOCKET = "/.00000000-0000-0000-0000-000000000000.sock"  # the names that Spark gives to sockets
_LONGEST_SOCKET = 107  # characters, on Linux


def application_folder(settings: Settings, name: str) -> Path:
    """The application's folder, emptied: a killed application leaves Spark's jars and blocks behind."""
    folder = _root(settings) / hashlib.sha256(name.encode()).hexdigest()[:8]  # a socket's path must be short
    shutil.rmtree(folder, ignore_errors=True)
    return _private(folder)


@contextmanager
def job_folder(settings: Settings) -> Iterator[Path]:
    """A folder for a job that this process starts and waits for, removed at the end."""
    folder = _own_folder(settings)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def process_folder(settings: Settings) -> Path:
    """A folder for the Spark of this process, removed when the process exits."""
    folder = _own_folder(settings)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _own_folder(settings: Settings) -> Path:
    """This process's folder. Folders of processes that no longer exist are removed."""
    root = _root(settings)
    for each in root.iterdir():
        if each.name.startswith("p") and not psutil.pid_exists(int(each.name[1:])):
            shutil.rmtree(each, ignore_errors=True)
    return _private(root / f"p{os.getpid()}")


def _root(settings: Settings) -> Path:
    return _private(settings.home / "tmp")


def _private(folder: Path) -> Path:
    if len(str(folder)) + len(_SOCKET) > _LONGEST_SOCKET:
        raise NotSetUp(f"{folder} is too long for Spark's sockets: set TRUELOG_HOME to a shorter path")
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
