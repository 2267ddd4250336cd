"""Files that hold or end the process that loads them: each is refused with what it does, and the others are loaded."""

import logging
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from truelog.schema.loading import trial, trial_process
from truelog.schema.loading.events import load_proposals

GOOD = """
from truelog import Event, Topic
TOPIC = Topic(key=None, subject=(), partitions=1, retention="1 day")
class Good(Event):
    text: str
"""
HERE = "import sys; from pathlib import Path; sys.path.insert(0, str(Path(__file__).parent)); "
SLOW = ("it does not finish loading", trial_process.BUSY)
ENDED = "it ends the process that loads it"
MISDEEDS: dict[str, tuple[str, str | tuple[str, ...]]] = {
    "loops": ("while True: pass", SLOW),
    "sleeps": ("import time; time.sleep(1e9)", SLOW),
    "leaves": ("import os; os._exit(0)", ENDED),
    "crashes": ("import ctypes; ctypes.string_at(0)", ENDED),
    "ends_its_parent": ("import ctypes, os; ctypes.CDLL(None).kill(os.getppid(), 9)", ENDED),
    "closes": ("import os; os.closerange(0, 100); os._exit(0)", ENDED),
    "interrupts": ("raise KeyboardInterrupt", "it raises KeyboardInterrupt"),
    "forks": ("import os; os.fork()", "it starts a process"),
    "runs": ("import subprocess; subprocess.run(['true'])", "it starts a process"),
    "threads": ("import os, threading; threading.Thread(target=lambda: os._exit(1)).start()", "it starts a thread"),
    "low_threads": ("import os, _thread; _thread.start_new_thread(os._exit, (1,))", "it starts a thread"),
    "connects": ("import socket; socket.create_connection(('127.0.0.1', 9))", "it uses the network"),
    "signals": ("import os; os.kill(os.getppid(), 9)", "it sends a signal"),
    "ignores": ("import signal; signal.signal(15, signal.SIG_IGN)", "it changes the signals"),
    "alarms": ("import signal; signal.alarm(1)", "it changes the alarm"),
    "asks": ("input()", "it waits for an input"),
    "hides": ("import os; os.close(1)", "it changes the output"),
    "moves": ("import os; os.chdir('/')", "it changes the folder"),
    "at_the_end": ("import atexit, os; atexit.register(os._exit, 1)", "it does something at the end"),
    "fills": ("x = bytearray(1 << 31)", "it needs more than 1 GiB"),
    "imports": (f"{HERE}import _forks", "it imports _forks.py, which starts a process"),
    "imports_package": (f"{HERE}import helpers.threads", "it imports helpers/threads.py, which starts a thread"),
    "calls": (f"{HERE}import _later; _later.run()", "it imports _later.py, which starts a process"),
}
HELPERS = {
    "_forks.py": "import os; os.fork()",
    "helpers/threads.py": "import threading; threading.Thread(target=print).start()",
    "_later.py": "import os\ndef run(): os.fork()",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(trial_process, "SECONDS", 1.0)
    monkeypatch.setattr(trial, "_verdicts", {})
    monkeypatch.setattr(trial, "_waiting", {})
    (tmp_path / "zz_good.py").write_text(GOOD)
    return tmp_path


def test_a_file_that_misbehaves_is_refused_with_what_it_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trial, "_NOTICE_SECONDS", 0.2)
    for name, text in ({f"{name}.py": text for name, (text, _) in MISDEEDS.items()} | HELPERS).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with caplog.at_level(logging.WARNING):
        types, broken = load_proposals(folder)
    assert [*types] == ["zz_good"]
    said = {name: broken[name].partition(" cannot be loaded: ")[2] for name in MISDEEDS}
    assert {name: reason for name, reason in said.items() if not reason.startswith(MISDEEDS[name][1])} == {}
    assert "waiting for sleeps.py, which is loaded on trial" in caplog.messages


def test_a_file_has_one_trial_until_it_or_what_it_may_import_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = folder / "_helper.py"
    for path, text in {helper: "", folder / "leaves.py": MISDEEDS["leaves"][0]}.items():
        path.write_text(text)
    load_proposals(folder)
    with monkeypatch.context() as context:
        context.setattr(subprocess, "Popen", _refuse)
        context.setattr(trial, "_verdicts", {})  # as in a later process
        _, broken = load_proposals(folder)
        assert ENDED in broken["leaves"]
        helper.write_text("x = 1")
        with pytest.raises(AssertionError):
            load_proposals(folder)
    (folder / "leaves.py").write_text(GOOD)
    types, broken = load_proposals(folder)
    assert (sorted(types), broken) == (["leaves", "zz_good"], {})


def test_a_file_that_the_machine_may_have_held_is_tried_again_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "leaves.py").write_text(MISDEEDS["leaves"][0])
    (folder / "forks.py").write_text(MISDEEDS["forks"][0])
    load_proposals(folder)
    tried = list[Path]()
    real, later = trial._tried, time.time() + 3601

    def counted(files: dict[Path, bytes], *rest: object) -> object:
        tried.extend(files)
        return real(files, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(trial, "_tried", counted)
    load_proposals(folder)
    assert tried == []
    monkeypatch.setattr(time, "time", lambda: later)
    load_proposals(folder)
    assert [path.stem for path in tried] == ["leaves"]


def test_what_a_library_does_when_a_helper_imports_it_is_allowed(folder: Path) -> None:
    library, types = folder / "elsewhere", folder / "types"
    for name, text in {
        library / "a_library.py": "import subprocess; subprocess.run(['true'])",
        types / "_helper.py": f"import sys; sys.path.insert(0, {str(library)!r}); import a_library",
        types / "good.py": f"{HERE}import _helper{GOOD}",
    }.items():
        name.parent.mkdir(exist_ok=True)
        name.write_text(text)
    found, broken = load_proposals(types)
    assert ([*found], broken) == (["good"], {})


def test_a_file_that_the_machine_was_too_busy_to_load_is_tried_again_beside_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, busy = trial._tried, [True]

    def tried(files: dict[Path, bytes], *rest: object) -> Iterator[tuple[Path, str]]:
        return ((path, trial_process.BUSY) for path in files) if busy[0] else real(files, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(trial, "_tried", tried)
    _, broken = load_proposals(folder)
    assert "the machine was too busy to load it within 30 s. It is tried again" in broken["zz_good"]
    assert not trial.has_caught_up()
    busy[0], later = False, time.time() + 31
    assert not trial.has_caught_up(), "it is not due yet"
    monkeypatch.setattr(time, "time", lambda: later)
    assert trial.has_caught_up()
    assert not trial.has_caught_up()
    assert [*load_proposals(folder)[0]] == ["zz_good"]


def test_a_file_that_does_not_finish_is_shown_where_it_is(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "sleeps.py").write_text("import time\n\ntime.sleep(1e9)\n")
    with caplog.at_level(logging.WARNING):
        _, broken = load_proposals(folder)
    if trial_process.BUSY not in broken["sleeps"]:  # else the machine was too busy to run it
        # Not `caplog.text`: pytest attaches its handler to loggers of PySpark, which let it write JSON from then on.
        assert any('sleeps.py", line 3 in <module>' in each for each in caplog.messages)


@pytest.mark.parametrize(("delay", "verdict"), [(0.0, trial_process.HELD), (1e9, trial_process.BUSY)])
def test_the_machine_is_told_apart_from_the_file(
    delay: float, verdict: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trial_process, "_delay", lambda child: delay)
    assert trial_process._trial(str(tmp_path / "loops.py"), "loops", b"while True: pass", 0.1) == verdict


def test_without_a_process_for_trials_nothing_is_loaded_and_nothing_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setattr(trial_process, "__name__", "truelog.no_such_module")
        types, broken = load_proposals(folder)
        assert types == {}
        assert "it could not be tried: " in broken["zz_good"]
        assert "No module named truelog.no_such_module" in broken["zz_good"]
    types, broken = load_proposals(folder)
    assert (sorted(types), broken) == (["zz_good"], {})


def test_a_file_without_a_place_for_the_verdict_is_loaded(folder: Path) -> None:
    (folder / "__pycache__").touch()
    types, _ = load_proposals(folder)
    assert [*types] == ["zz_good"]


def _refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a trial")
