"""The process in which declaration files are loaded on trial, each in a child of its own.

It reads a task as JSON from its standard input: modules that most files import, and the files. It writes one line when
it has imported the modules, and two lines for each file: the file's name before the trial, and what is wrong after it.
A child reports what its file did. A child that reports nothing has been ended by its file.
"""

import _thread
import atexit
import base64
import ctypes
import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from select import select
from types import FrameType, ModuleType
from typing import Any, NoReturn

SECONDS = 10.0  # a file loads in milliseconds
MEMORY = 1 << 30  # bytes
_SHOWN = 0.9  # of the seconds; a file that has not loaded by then is shown where it is
_BUSY = 3  # how many times as long a file may take on a machine that is too busy to run it
HELD = f"it does not finish loading within {SECONDS:.0f} s"
BUSY = f"the machine was too busy to load it within {_BUSY * SECONDS:.0f} s"
ENDED = "it ends the process that loads it"
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_ACTS = {  # events of Python's audit, and what they are called here
    "starts a process": "os.fork os.forkpty os.posix_spawn os.spawn os.system os.exec subprocess.Popen pty.spawn",
    "uses the network": "socket.connect socket.bind socket.getaddrinfo socket.gethostbyname socket.sendto",
    "sends a signal": "os.kill os.killpg signal.pthread_kill",
    "waits for an input": "builtins.input builtins.breakpoint",
    "traces the process": "sys.settrace sys.setprofile",
    "changes the folder of the process": "os.chdir os.fchdir",
    "changes a limit of the process": "resource.setrlimit resource.prlimit",
}
_FORBIDDEN = {event: act for act, events in _ACTS.items() for event in events.split()}
_UNAUDITED = (  # functions that Python does not audit
    (threading.Thread, "start", "starts a thread"),
    (_thread, "start_new_thread", "starts a thread"),
    (atexit, "register", "does something at the end of the process"),
)


def main() -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    task = json.load(sys.stdin)
    sys.path[:] = task["path"]
    for module in task["modules"]:
        import_module(module)
    _say("")
    for path, name, content in task["files"]:
        _say(path)
        _say(_trial(path, name, base64.b64decode(content), task["seconds"]))


def _say(text: str) -> None:
    sys.stdout.write(json.dumps(text) + "\n")
    sys.stdout.flush()


def _trial(path: str, name: str, content: bytes, seconds: float) -> str:
    """What is wrong with the file, or an empty text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        faulthandler.dump_traceback_later(_SHOWN * seconds, file=os.dup(2))
        _load(writer, path, name, content)
    os.close(writer)
    try:
        return _report(reader, child, seconds)
    finally:
        for end in (os.killpg, os.kill):  # a child that has just begun has no group yet
            with suppress(ProcessLookupError):
                end(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)


def _report(reader: int, child: int, seconds: float) -> str:
    """The child's report. The time in which the child waits for a processor does not count."""
    began, text = time.monotonic(), b""

    def is_over() -> bool:
        return time.monotonic() - began >= seconds + _delay(child)

    while not is_over() and time.monotonic() - began < _BUSY * seconds:
        if select([reader], [], [], 0.1)[0]:
            if not (part := os.read(reader, 65_536)):
                return json.loads(text) if text else ENDED
            text += part
    return HELD if is_over() else BUSY


def _delay(child: int) -> float:
    """How many seconds the child was ready to run and got no processor."""
    try:
        return int(Path(f"/proc/{child}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _load(writer: int, path: str, name: str, content: bytes) -> NoReturn:
    """In the child: load the file and report. An exception is not reported, because the later load expects it."""

    def report(wrong: str) -> NoReturn:
        os.write(writer, json.dumps(wrong).encode())
        os._exit(0)

    def audit(event: str, _: tuple[Any, ...]) -> None:
        if event in _FORBIDDEN and (doer := _doer(path)):
            report(f"{doer} {_FORBIDDEN[event]}")

    def watched(function: Callable[..., Any], act: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            return report(f"{doer} {act}") if (doer := _doer(path)) else function(*arguments, **named)

        return call

    _enclose()
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = path
    before = _traits()
    sys.addaudithook(audit)
    for owner, function, act in _UNAUDITED:
        setattr(owner, function, watched(getattr(owner, function), act))
    try:
        exec(compile(content, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 — that is the trial
    except MemoryError:
        report(f"it needs more than {MEMORY >> 30} GiB of memory")
    except (Exception, SystemExit):
        report("")
    except BaseException as error:
        report(f"it raises {type(error).__name__}")
    after = _traits()
    report(next((f"it changes {trait} of the process" for trait in before if after[trait] != before[trait]), ""))


def _doer(path: str) -> str:
    """Who does this: the file, or a helper in its folder. Empty if a library does it while it is imported.

    Some libraries look for what the machine can do.
    """
    folder = Path(path).resolve().parent
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = frame.f_code.co_filename
        if name == "<frozen importlib._bootstrap>":
            return ""
        if name != path and folder in (helper := Path(name).resolve()).parents:
            return f"it imports {helper.relative_to(folder)}, which"
        frame = frame.f_back
    return "it"


def _enclose() -> None:
    """Give the child a group of its own and limits. Only the files of its report and its traceback stay open."""
    os.setsid()
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 — until the child ends
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _traits() -> dict[str, object]:
    """What a file must leave as it is, because the whole process depends on it."""
    return {
        "the signals": [signal.getsignal(each) for each in sorted(signal.valid_signals())],
        "the alarm": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "the output": (sys.stdout, sys.stderr, *map(_is_open, (1, 2))),
        "the way to end": os._exit,
    }


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
