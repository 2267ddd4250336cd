"""Trials: a declaration file is loaded in a process of its own before any other process loads it.

A file may hold or end the process that loads it, by an endless loop, a connection, a signal or an exit. So no file
enters a process before its trial. The verdict is kept beside Python's compiled files, under a hash of the content, so
a file that has not changed costs nothing.
"""

import base64
import hashlib
import json
import logging
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import IO, cast

from truelog.schema import declaration_files
from truelog.schema.loading import trial_process
from truelog.support.errors import BadDeclaration

_START_SECONDS = 60.0  # until the process has imported Spark, on a busy machine
_PASSING = {  # seconds; a disk, a short memory or other processes may be guilty
    trial_process.HELD: 300.0,
    trial_process.ENDED: 300.0,
    trial_process.BUSY: 30.0,
}
_NOTICE_SECONDS = 2.0
_CURE = "Let the file declare something and do nothing else."

_verdicts: dict[str, tuple[str, float]] = {}  # what is wrong, and when it was found, by the hash of the content
_waiting: dict[Path, tuple[str, Sequence[str]]] = {}  # files that the machine was too busy to load

log = logging.getLogger("truelog.trial")


def misdeed(path: Path, content: bytes, package: str, modules: Sequence[str]) -> str:
    """What the file does beside declaring something, or an empty text. "It could not be tried" counts too.

    If its trial is due, all due files of its folder have one.
    """
    helpers = _helpers(path.parent)
    key = _key(path, content, helpers)
    if (wrong := _known(path, key)) is None:
        due = _due(path.parent, helpers) | {path: content}
        found = dict(_tried(due, package, modules))
        for each, verdict in found.items():
            _keep(each, _key(each, due[each], helpers), verdict)
        wrong = found[path]
    if wrong == trial_process.BUSY:
        _waiting[path] = package, modules
        return f"{wrong}. It is tried again every half a minute."
    _waiting.pop(path, None)
    return wrong and f"{wrong}. {_CURE}"


def has_caught_up() -> bool:
    """Whether the machine was too busy to load some file, and is not now. Files have a new trial when it is due."""
    for path, (package, modules) in list(_waiting.items()):
        try:
            misdeed(path, declaration_files.content(path), package, modules)
        except BadDeclaration:  # the file cannot be read any longer
            _waiting.pop(path, None)
        if path not in _waiting:
            return True
    return False


def _due(folder: Path, helpers: bytes) -> dict[Path, bytes]:
    """The files of the folder that had no trial, with their content."""
    due = {}
    for path in (folder / f"{name}.py" for name in declaration_files.declared_names(folder)):
        with suppress(BadDeclaration):
            content = declaration_files.content(path)
            if _known(path, _key(path, content, helpers)) is None:
                due[path] = content
    return due


def _helpers(folder: Path) -> bytes:
    """A hash of the files that declare nothing, which declarations may import: those with "_" and those in folders."""
    declared = {folder / f"{name}.py" for name in declaration_files.declared_names(folder)}
    found = sorted(path for path in folder.rglob("*.py") if path not in declared and path.is_file())
    digests = (f"{path.relative_to(folder)} {declaration_files.digest(path)}" for path in found)
    return hashlib.sha256(os.fsencode("\n".join(digests))).digest()


def _key(path: Path, content: bytes, helpers: bytes) -> str:
    python = f"{sys.implementation.cache_tag} {_rules()} {path.resolve()}"
    return hashlib.sha256(b"\0".join((os.fsencode(python), helpers, content))).hexdigest()[:32]


@cache
def _rules() -> str:
    """The rules of a trial, of this release."""
    return declaration_files.digest(Path(trial_process.__file__))


def _kept(path: Path, key: str) -> Path:
    return path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.{key}.tried"


def _known(path: Path, key: str) -> str | None:
    """What is wrong with the file, as its last trial found it, or None if it needs one."""
    if key not in _verdicts:
        with suppress(OSError, ValueError):
            kept = _kept(path, key)
            _verdicts[key] = (kept.read_text(), kept.stat().st_mtime)
    wrong, at = _verdicts.get(key, (None, 0.0))
    if wrong is None or time.time() - at > _PASSING.get(wrong, float("inf")):
        return None
    return wrong


def _keep(path: Path, key: str, wrong: str) -> None:
    """Remember the verdict, also for later processes if the folder can be written."""
    if wrong.startswith(_IMPOSSIBLE):
        return
    _verdicts[key] = (wrong, time.time())
    kept = _kept(path, key)
    with suppress(OSError):
        kept.parent.mkdir(exist_ok=True)
        for earlier in kept.parent.glob(f"{path.stem}.{sys.implementation.cache_tag}.*.tried"):
            earlier.unlink(missing_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
            file.write(wrong)
        Path(file.name).chmod(0o644)  # as Python's compiled files: another user of the machine may run a process, too
        Path(file.name).replace(kept)


_IMPOSSIBLE = "it could not be tried"


def _tried(files: Mapping[Path, bytes], package: str, modules: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """What is wrong with each file. If a file ends the process of the trials, the others go on in a new one."""
    waiting = dict(files)
    while waiting:
        with tempfile.TemporaryFile() as errors:
            verdicts = list(_process(waiting, package, modules, errors.fileno()))
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip()
            if not verdicts:
                reason = said.rpartition("\n")[2] or "no process could load it"
                verdicts = [(path, f"{_IMPOSSIBLE}: {reason}") for path in waiting]
            for path in (path for path, wrong in verdicts if wrong == trial_process.HELD):
                log.warning("%s did not finish loading. It was here:\n%s", path.name, said)
        yield from verdicts
        for path, _ in verdicts:
            del waiting[path]


def _process(
    files: Mapping[Path, bytes], package: str, modules: Sequence[str], errors: int
) -> Iterator[tuple[Path, str]]:
    """One process with the trials of these files, until one of them ends it. Nothing if it does not start."""
    encoded = [[str(path), f"{package}.{path.stem}", base64.b64encode(text).decode()] for path, text in files.items()]
    task = {"path": sys.path, "modules": modules, "seconds": trial_process.SECONDS, "files": encoded}
    command = [sys.executable, "-P", "-m", trial_process.__name__]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    with ExitStack() as opened:
        given = opened.enter_context(tempfile.TemporaryFile())  # a pipe could fill before the process reads it
        given.write(json.dumps(task).encode())
        given.seek(0)
        process = opened.enter_context(
            subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, stderr=errors, env=environment)
        )
        lines = _lines(cast("IO[bytes]", process.stdout))
        try:
            if next(lines, None) is None:
                return
            for path in files:
                if next(lines, None) is None:
                    return
                yield path, next(lines, trial_process.ENDED)
        finally:
            process.kill()


def _lines(output: IO[bytes]) -> Iterator[str]:
    """What the process writes. Ends if it ends, or if it writes nothing for too long. Says what is waited for."""
    pending, said = b"", "the process in which declarations are tried"
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        began = time.monotonic()
        while time.monotonic() - began < _START_SECONDS:
            waited = time.monotonic() - began
            ready = selector.select(_NOTICE_SECONDS if waited < _NOTICE_SECONDS else _START_SECONDS - waited)
            if not ready:
                log.warning("waiting for %s", said)
                continue
            if not (part := os.read(output.fileno(), 65_536)):
                return
            *full, pending = (pending + part).split(b"\n")
            for line in map(json.loads, full):
                said = f"{Path(line).name}, which is loaded on trial" if line else said
                yield line
            began = time.monotonic()
