"""Spark applications as processes: started, killed at named points of their protocol, suspended and resumed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg

from tests.deadline import deadline, until
from truelog.control.lease import LEASE_LOST
from truelog.support.errors import ServiceDown
from truelog.support.settings import PROJECT, Settings

STARTED: list["Application"] = []


@dataclass
class Application:
    """A running entry point of `spark_apps/`, in a process group of its own."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    fired: Path
    armed: bool = False
    kept: bool = field(default=False)  # survives the test that started it

    def die(self) -> None:
        """Kill the process group, as a machine failure would."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, seconds: float = 60) -> int:
        """Terminate the application, and wait until its current batch has ended."""
        os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait(timeout=deadline(seconds))

    @contextmanager
    def suspended(self) -> Iterator[None]:
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            self.resume()

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def wait_fault(self, seconds: float = 90) -> None:
        """Wait until the fault fires. The test fails if the application ends first or the wait times out."""
        self.wait(self.fired.exists, seconds, "its fault to fire")

    def wait_kill(self) -> None:
        """Wait until the fault kills the application. The test fails if the application ends in another way."""
        self.wait_fault()
        ended = self.wait_death()
        assert ended == -signal.SIGKILL, f"{self.name} ended ({ended}), but its fault should kill it:\n{self.tail()}"

    def require_refused(self) -> None:
        """Require that the application ends because a successor holds its lease."""
        ended = self.wait_death()
        assert ended == LEASE_LOST, f"{self.name} ended ({ended}), but not because of its lease:\n{self.tail()}"

    def wait_death(self, seconds: float = 30) -> int:
        return self.process.wait(timeout=deadline(seconds))

    def wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        def met() -> None:
            with suppress(psycopg.OperationalError):  # a scene may have killed the database
                if condition():
                    return
            if self.process.poll() is not None:
                raise AssertionError(
                    f"{self.name} ended ({self.process.returncode}), waiting for {what}:\n{self.tail()}"
                )
            raise ServiceDown(f"{self.name}: {what} did not happen:\n{self.tail()}")

        try:
            until(met, seconds, f"{self.name}: {what}")
        except ServiceDown as late:
            raise ServiceDown(f"{late}\n{self.stacks()}") from late

    def stacks(self) -> str:
        """What each thread of the application and of its Java process does now, as they write it to the log."""
        begin = self.log.stat().st_size
        os.kill(self.process.pid, signal.SIGUSR2)
        for child in psutil.Process(self.process.pid).children():
            if "java" in child.name():
                os.kill(child.pid, signal.SIGQUIT)

        def written() -> str:
            return self.log.read_bytes()[begin:].decode(errors="replace")

        def ended() -> None:
            if "JNI global refs" not in written():  # the end of what Java writes
                raise ServiceDown("the stacks are not complete")

        with suppress(ServiceDown):
            until(ended, 5, f"{self.name}: its stacks")
        return written()

    def tail(self) -> str:
        return "\n".join(self.log.read_text().splitlines()[-40:])


def start(
    settings: Settings, script: str, *arguments: str, fault: str | None = None, **environment: str
) -> Application:
    """Start an entry point; `fault` is `POINT:N:kill` or `POINT:N:stop` and fires on reaching POINT the N-th time."""
    folder = settings.home / "applications"
    folder.mkdir(mode=0o700, exist_ok=True)
    stem = f"{Path(script).stem}-{len(list(folder.iterdir()))}"
    log, fired = folder / f"{stem}.log", folder / f"{stem}.fired"
    given = {"TRUELOG_FAULT": fault, "TRUELOG_FAULT_FIRED": str(fired)} if fault else {}
    command = [sys.executable, script if script.startswith("/") else str(PROJECT / "spark_apps" / script), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=os.environ | given | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    STARTED.append(Application(stem, process, log, fired, armed=fault is not None))
    return STARTED[-1]


def unfired(applications: Iterable[Application]) -> list[str]:
    """The applications whose fault did not fire. Scenes with such applications proved nothing."""
    return [each.name for each in applications if each.armed and not each.fired.exists()]
