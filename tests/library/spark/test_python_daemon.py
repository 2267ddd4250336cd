"""Spark's Python workers have no Spark archives on their path, only users' zips, and do not garbage-collect imports."""

import gc
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from truelog.spark.java import pyspark_home
from truelog.spark.python_daemon import unless_unread, without_spark_archives
from truelog.spark.submit import job_environment
from truelog.support.settings import PROJECT, Settings

MIN_FROZEN = 50_000  # objects of PySpark, pandas and pyarrow


def inspect_worker(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    list(batches)
    archives = [place for place in sys.path if place.endswith((".jar", ".zip")) and Path(place).exists()]
    archives += [place for place, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
    collected = {"frozen": [gc.get_freeze_count()], "threshold": [gc.get_threshold()[0]]}
    yield pa.RecordBatch.from_pydict({"archives": [archives], **collected})


def test_a_worker_pays_for_no_archive_and_for_no_import(spark: SparkSession) -> None:
    shape = "archives array<string>, frozen bigint, threshold bigint"
    for _ in range(2):  # with Spark's own daemon, the cost begins with a worker's second task
        [row] = spark.range(1, numPartitions=1).mapInArrow(inspect_worker, shape).collect()
        assert row.archives == []
        assert (row.frozen > MIN_FROZEN, row.threshold > MIN_FROZEN) == (True, True)


def test_only_archives_of_spark_leave_the_path(tmp_path: Path) -> None:
    spark = ["/spark/jars/spark-core_2.13-4.1.0.jar", "/spark/lib/pyspark.zip", "/spark/lib/py4j-0.10.9.9-src.zip"]
    users = [str(tmp_path), str(zipped(tmp_path, "truelog.zip")), "/host/site-packages", "/host/graphframes.jar"]
    assert without_spark_archives([*spark, *users]) == users
    installed = [*pyspark_home().glob("python/lib/*.zip"), *pyspark_home().glob("jars/spark-core_*")]
    assert len(installed) == 3
    assert without_spark_archives(map(str, installed)) == []


def test_a_worker_that_nobody_reads_ends_without_a_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    assert unless_unread(os.write)(write, b"rows") == 1
    os.close(write)


JOB = """
import json, sys
import pyarrow as pa
from pyspark.sql import SparkSession

def places(batches):
    list(batches)
    import beside, truelog.support.errors
    yield pa.RecordBatch.from_pydict({"place": [beside.__file__, truelog.support.errors.__file__]})

spark = SparkSession.builder.getOrCreate()
rows = spark.range(1, numPartitions=1).mapInArrow(places, "place string").collect()
json.dump([row.place for row in rows], open(sys.argv[1], "w"))
spark.stop()
"""


def test_the_modules_of_tasks_are_imported_from_a_zip(tmp_path: Path) -> None:
    """A file beside a module, which is read while the module is imported, must be in the zip and be read from there."""
    path = os.pathsep.join([str(zipped(tmp_path, "truelog.zip")), sysconfig.get_paths()["purelib"]])
    script = "from truelog.spark import python_daemon as daemon; daemon.import_modules(); print(daemon.__file__)"
    command = [sys.executable, "-S", "-c", script]  # -S: no .pth file leads to this checkout
    ended = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(str(tmp_path / "truelog.zip"))


@pytest.mark.nightly
def test_a_host_without_truelog_imports_it_from_a_zip(tmp_path: Path, settings: Settings) -> None:
    """The host's Python has only the libraries. As with YARN's `--py-files`, the daemon's PYTHONPATH lists the zip."""
    archive, found, python = zipped(tmp_path, "truelog.zip"), tmp_path / "found.json", tmp_path / "python"
    (tmp_path / "job.py").write_text(JOB)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: no .pth file leads to this checkout
    python.chmod(0o755)
    options = {
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(archive), sysconfig.get_paths()["purelib"]]),
        "spark.python.daemon.module": "truelog.spark.python_daemon",
        "spark.ui.enabled": "false",
    }
    command = [str(pyspark_home() / "bin" / "spark-submit"), "--master", "local[1]"]
    command += [word for key, value in options.items() for word in ("--conf", f"{key}={value}")]
    environment = job_environment(settings, tmp_path) | {"PYSPARK_PYTHON": str(python)}
    ended = subprocess.run(
        [*command, str(tmp_path / "job.py"), str(found)], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(found.read_text()) == [f"{archive}/beside.py", f"{archive}/truelog/support/errors.py"]


def zipped(folder: Path, name: str) -> Path:
    """Make a zip of Truelog, with the files beside its modules, and one more module."""
    with ZipFile(folder / name, "w") as archive:
        archive.writestr("beside.py", "")
        for file in (PROJECT / "include" / "truelog").rglob("*"):
            if "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(PROJECT / "include"))
    return folder / name
