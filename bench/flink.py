"""Flink SQL on the same topic, with the same cube in PostgreSQL.

PyFlink has an environment of its own, `.venv-flink`, because it and Quix Streams need different versions of packages.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.corpus import in_log
from bench.cpu import Meter, Recorder
from bench.ground import services
from bench.peers import IVY_FILE, SECONDS, Sample, after, cores, java_client, measured_row, start
from bench.row import Row
from runtime.jars import run_ivy
from tests.beat import every
from truelog.spark.java import java
from truelog.storage.database import connect
from truelog.support.settings import PROJECT, Settings

PYTHON = PROJECT / ".venv-flink" / "bin" / "python"

_ENGINE = "flink sql"
_START_SECONDS = 120.0
_LOOK_SECONDS = 0.5
_SHADED = "org.apache.flink.kafka.shaded."  # Flink's Kafka client has other package names
_TABLE = """
    CREATE SCHEMA bench;
    CREATE TABLE bench.flink_page_views (
        minute timestamp, host text, page text, browser text, views bigint NOT NULL, bytes bigint,
        PRIMARY KEY (minute, host, page, browser)
    )
"""
_COUNTED = "SELECT coalesce(sum(views), 0)::bigint FROM bench.flink_page_views"


def run(settings: Settings, job: str, warm_seconds: float) -> Row:
    """Count what is visible in PostgreSQL, twice a second."""
    with connect(settings) as connection:
        connection.execute(_TABLE)
    with running(settings, Path(__file__).with_name("flink_cube.py")) as process:
        used = services(settings)
        recorder = Recorder(Meter({name: used[name] for name in ("broker", "postgresql")} | {_ENGINE: process.pid}))
        recorder.start()
        try:
            samples = _samples(settings, process, warm_seconds + SECONDS)
        finally:
            recorder.stop()
    note = "mini-batches of a second; JSON and URL functions of Flink SQL; state in memory"
    guarantees = "state exactly once, checkpoint every 5 s; upserts repeated after a failure"
    return measured_row(job, _ENGINE, (note, guarantees), [after(samples, warm_seconds)], recorder)


def _samples(settings: Settings, process: "subprocess.Popen[str]", seconds: float) -> list[Sample]:
    """The time and the page views in PostgreSQL, from the first result on."""
    samples, total = list[Sample](), in_log(settings, ["page_view"])
    with connect(settings, autocommit=True) as connection:
        for now in every(_LOOK_SECONDS, within=_START_SECONDS + seconds, what=_ENGINE):
            if process.poll() is not None:
                raise RuntimeError(f"Flink exited with {process.returncode}; its output is above")
            row = connection.execute(_COUNTED).fetchone()
            counted = int(str(row[0])) if row else 0
            if counted and (not samples or counted > samples[-1][1]):
                samples.append((now, counted))
            if samples and (now - samples[0][0] >= seconds or samples[-1][1] >= total):
                return samples
    raise AssertionError("every() raises at its limit")


@contextmanager
def running(settings: Settings, script: Path) -> Iterator["subprocess.Popen[str]"]:
    """Run a script of PyFlink during the block. It reads its parameters from standard input."""
    folder = settings.home / "flink"
    run_ivy(settings, IVY_FILE, ["flink"], folder)
    os.environ["JAVA_HOME"] = str(Path(java(settings)).resolve().parents[1])
    process = start([str(PYTHON), "-P", str(script)], _parameters(settings, folder))
    try:
        yield process
    finally:
        if process.poll() is None:  # otherwise its own error says why
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.wait()


def _parameters(settings: Settings, folder: Path) -> dict[str, Any]:
    database = settings.database()
    address = f"jdbc:postgresql://{database['host']}:{database['port']}/{database['dbname']}"
    kafka = java_client(settings)
    return {
        "kafka": kafka | {"sasl.jaas.config": f"{_SHADED}{kafka['sasl.jaas.config']}"},
        "database": {
            "url": f"{address}?reWriteBatchedInserts=true",
            "username": database["user"],
            "password": database["password"],
        },
        "jars": ";".join(each.as_uri() for each in sorted((folder / "flink").glob("*.jar"))),
        "cores": cores(),
    }
