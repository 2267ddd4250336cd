"""The applications and batch jobs on a Spark cluster with a master and two workers. One worker is killed meanwhile.

Each process of the cluster has an address of its own. The workers have no settings and no checkout of Truelog. They get
the library as an archive, as on machines of their own (`docs/production.md`).
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.beds.world import World
from tests.command import process_answer
from tests.deadline import until
from tests.scenes.applications import start
from truelog.spark.java import java_home, pyspark_home
from truelog.support.errors import ServiceDown
from truelog.support.files import write_private
from truelog.support.settings import PROJECT, Settings

MASTER, DRIVER, WORKERS = "127.0.0.2", "127.0.0.3", ("127.0.0.4", "127.0.0.5")
PORT = 27077
SECRET = "5ec2e7" * 8
ORIGIN = """
import json, sys
from truelog.spark.session import session
from truelog.support.settings import Settings

def origin(_):
    import socket, truelog
    yield truelog.__file__, socket.gethostname()

spark = session(Settings(), "origin")
found = spark.sparkContext.parallelize(range(8), 8).mapPartitions(origin).collect()
print(json.dumps(sorted({file for file, _ in found})))
spark.stop()
"""


@dataclass(frozen=True)
class Cluster:
    """The processes of the cluster, and the environment of Truelog's processes that use it."""

    workers: list["subprocess.Popen[bytes]"]
    environment: dict[str, str]

    def kill_worker(self) -> None:
        """Kill a worker with its executors, as the failure of its machine would."""
        worker = psutil.Process(self.workers[0].pid)
        victims = [*worker.children(recursive=True), worker]
        assert any("CoarseGrainedExecutorBackend" in _command(each) for each in victims)
        for each in victims:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.workers[0].wait()


def _command(process: psutil.Process) -> str:
    """Empty if the process has ended: Spark's processes start short ones."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


@pytest.fixture
def scratch() -> Iterator[str]:
    """A folder with a short name, because Spark's Python workers have sockets in it."""
    with tempfile.TemporaryDirectory(prefix="tl-") as folder:
        yield folder


@pytest.fixture
def cluster(settings: Settings, spark_home: Path, tmp_path: Path, scratch: str) -> Iterator[Cluster]:
    private, log = tmp_path / "cluster.properties", tmp_path / "cluster.log"
    write_private(private, f"spark.authenticate true\nspark.authenticate.secret {SECRET}\n")
    library = tmp_path / "truelog.tar.gz"
    with tarfile.open(library, "w:gz") as archive:
        archive.add(PROJECT / "include" / "truelog", "truelog")
    environment = {"PATH": os.environ["PATH"], "SPARK_HOME": str(spark_home), "JAVA_HOME": str(java_home(settings))}

    def launch(kind: str, address: str, *arguments: str) -> "subprocess.Popen[bytes]":
        home = tmp_path / address
        home.mkdir()
        main = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        command = [str(pyspark_home() / "bin" / "spark-class"), main, "--host", address, "--webui-port", "0"]
        own = environment | {"SPARK_LOCAL_IP": address, "SPARK_WORKER_DIR": str(home / "work")}
        with log.open("ab") as output:
            return subprocess.Popen(
                [*command, "--properties-file", str(private), *arguments],
                cwd=home,
                env=own,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    url = f"spark://{MASTER}:{PORT}"
    master = launch("Master", MASTER, "--port", str(PORT))
    workers = [launch("Worker", each, "--cores", "6", "--memory", "8g", url) for each in WORKERS]
    conf = {
        "spark.cores.max": "2",  # otherwise, the first application takes all cores
        "spark.executor.cores": "1",
        "spark.archives": f"{library}#truelog",
        "spark.executorEnv.PYTHONPATH": "./truelog",
        "spark.pyspark.python": sys.executable,
        "spark.executor.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",  # a killed executor leaves files there
    }
    given = {"MASTER": url, "DRIVER_HOST": DRIVER, "SECRET": SECRET, "CONF": json.dumps(conf)}
    until(lambda: _require_registered(log), 60, "the workers to join the cluster")
    yield Cluster(workers, {f"TRUELOG_SPARK_{name}": value for name, value in given.items()})
    for each in (*workers, master):
        each.kill()
        each.wait()


def _require_registered(log: Path) -> None:
    joined = log.read_text().count("Successfully registered with master")
    if joined < len(WORKERS):
        raise ServiceDown(f"{joined} workers have joined:\n{log.read_text()[-3000:]}")


def test_executors_import_the_library_from_its_archive(settings: Settings, cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "origin.py"
    script.write_text(ORIGIN)
    environment = os.environ | cluster.environment
    ended = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    origins = json.loads(ended.stdout.splitlines()[-1])
    assert len(origins) == len(WORKERS)
    assert all(each.endswith("/truelog/truelog/__init__.py") for each in origins)
    assert not any(each.startswith(str(PROJECT)) for each in origins)


def test_the_platform_survives_the_death_of_a_worker(world: World, cluster: Cluster, one_view: None) -> None:
    """Each event counts once, and the view equals its rebuild from raw bytes."""
    archive = start(world.settings, "archive.py", **cluster.environment, TRUELOG_ARCHIVE_TRIGGER_SECONDS="2")
    stream = start(world.settings, "stream.py", **cluster.environment)
    with world.traffic.arriving(100, 0.1):
        world.catch_up(stream)
        cluster.kill_worker()
        world.traffic.send(5_000)
        world.catch_up(stream)
    world.traffic.send(100)
    world.read_all(archive, stream, "page_views")
    world.require_total("page_views")
    day = f"{world.newest_log_day():%Y-%m-%d}"
    made = process_answer("recompute", "--day", day, "--open", "page_views", exit_code=0, **cluster.environment)
    assert [(each["view"], each["rows"] > 0) for each in made["views"]] == [("page_views", True)]
    for options in ((), ("--from-raw",)):
        [found] = process_answer("reconcile", "page_views", *options, exit_code=0, **cluster.environment)["views"]
        assert (found["verdict"], found["rows"] > 0) == ("EQUAL", True)
    assert (archive.process.poll(), stream.process.poll()) == (None, None)
