"""Servers and a JVM that stay warm between test runs. `make platform` starts them, and Ctrl-C stops them.

A test run finds them by a file in `.truelog`. Only one run at a time uses them, because the topics are those of one
environment, and the JVM has one Spark context. Another run, and a run with xdist, starts its own.
"""

import fcntl
import itertools
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

import psutil

from tests.house.tree import PROJECT
from tests.servers import AIRFLOW, STORES, Environment, SharedServers, isolated
from truelog.support.files import write_private
from truelog.support.settings import Settings

FILE = PROJECT / ".truelog" / "test-platform.json"
_USE = """Ready after {seconds:.0f} s. `.venv/bin/python -m pytest FILE` now uses these servers and this JVM: one run at
a time, without -n. After a change of the runtime, a migration or an event type, start again. Ctrl-C ends it."""


@dataclass(frozen=True)
class Platform:
    """What another process needs to use the servers and the JVM."""

    pid: int
    home: str
    jvm_port: int
    jvm_secret: str


class WarmServers(SharedServers):
    """The servers of `make platform`. They continue to run after this process."""

    def __init__(self, platform: Platform, lock: int) -> None:
        Environment.__init__(self, Settings(home=Path(platform.home)))
        self._platform = platform
        self._lock = lock
        self._names = (f"run{os.getpid()}file{number}" for number in itertools.count())
        self._provided = {*STORES, AIRFLOW}

    def attach_jvm(self) -> None:
        """Make PySpark use the warm JVM. A run that was killed has left its Spark context there."""
        from pyspark import SparkContext

        address = {
            "PYSPARK_GATEWAY_PORT": str(self._platform.jvm_port),
            "PYSPARK_GATEWAY_SECRET": self._platform.jvm_secret,
        }
        with mock.patch.dict(os.environ, address):
            SparkContext._ensure_initialized()
        assert SparkContext._jvm
        left = SparkContext._jvm.SparkSession.getDefaultSession()
        if left.isDefined():
            left.get().stop()

    def end(self) -> None:
        os.close(self._lock)


def find() -> WarmServers | None:
    """The warm servers, if they run and no other test run uses them."""
    try:
        lock = os.open(FILE, os.O_RDONLY)
    except FileNotFoundError:
        return None
    platform = Platform(**json.loads(FILE.read_text()))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    if not psutil.pid_exists(platform.pid):  # it was killed
        os.close(lock)
        return None
    return WarmServers(platform, lock)


def start(servers: SharedServers) -> None:
    from pyspark import SparkContext

    from truelog.spark.session import session

    servers.provide(*STORES, AIRFLOW)
    spark = session(servers.settings, "tests")
    spark.range(1).collect()
    spark.stop()  # each test run makes a context of its own
    assert SparkContext._gateway
    address = SparkContext._gateway.gateway_parameters
    platform = Platform(os.getpid(), str(servers.settings.home), address.port, address.auth_token)
    write_private(FILE, json.dumps(asdict(platform)))


def main() -> int:
    from tests.spark_fixtures import end_spark  # a plugin, which pytest must import before others do

    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with isolated():
        servers = SharedServers()
        os.environ["TRUELOG_HOME"] = str(servers.settings.home)
        try:
            start(servers)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark's would ask the stopped context
            sys.stdout.write(f"{_USE.format(seconds=time.monotonic() - began)}\n")
            sys.stdout.flush()
            signal.pause()
        except KeyboardInterrupt:
            sys.stdout.write("stopping\n")
        finally:
            FILE.unlink(missing_ok=True)
            end_spark()
            servers.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
