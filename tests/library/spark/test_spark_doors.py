"""Spark's ports give nothing to a stranger, and tasks carry no secrets that they do not need."""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from tests.beds.archived import PER_URL, new_archive
from tests.beds.lab import Lab
from tests.laws.views import IN_STEPS
from tests.library.spark import stranger
from truelog.log import records, topics
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables.dedupe.compile import SEEN
from truelog.views.group import CHECKPOINTS, INPUTS

pytestmark = pytest.mark.own_jvm

SECRET = b"a secret that a task carries"
# A call of the function of `foreachBatch`, in the protocol of Py4J.
CALLBACK = b"c\np0\ncall\ne\n"
READ = tuple(f"_{side}" for side in (INPUTS, CHECKPOINTS, SEEN))  # ends of the names of tables that executors read


@pytest.fixture
def broadcast(spark: SparkSession) -> Iterator[int]:
    """A broadcast variable and a Python worker, as a running application has them."""
    variable = spark.sparkContext.broadcast(SECRET * 3)
    assert spark.sparkContext.range(2).map(lambda _: len(variable.value)).collect() == [len(SECRET * 3)] * 2
    yield newest_broadcast(variable)
    variable.destroy()


def test_a_stranger_gets_no_block(spark: SparkSession, broadcast: int) -> None:
    application, ports = spark.sparkContext.applicationId, stranger.listening_ports(spark)
    assert len(ports) >= 3
    blocks = [f"broadcast_{number}_piece0" for number in range(broadcast + 1)][-3:]
    stolen = [(port, each) for port in ports for each in blocks if stranger.stolen_block(port, application, each)]
    assert stolen == []


@pytest.mark.usefixtures("broadcast")
def test_spark_refuses_calls_before_it_reads_their_objects(spark: SparkSession) -> None:
    """Without authentication, the port would pass the bytes after the header to Java's ObjectInputStream."""
    for port in stranger.listening_ports(spark):
        said = stranger.exchange(port, stranger.call(b"\x00" * 20))
        assert b"StreamCorruptedException" not in said
        is_refused = b"Expected SaslMessage" in said or said.startswith(b"!")  # by Spark, or by Py4J
        assert is_refused or not said, said


@pytest.mark.usefixtures("broadcast")
def test_pythons_only_port_is_the_callback_and_asks_for_a_token(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    python = [port for port, process in stranger.listening_ports(spark).items() if "java" not in process.name()]
    assert python == [gateway._callback_server.port]
    assert stranger.exchange(python[0], CALLBACK) == b""
    assert stranger.exchange(python[0], b"A\nguessed\ne\n").startswith(b"!x")


def test_spark_calls_python_back(spark: SparkSession, tmp_path: Path) -> None:
    counted: list[int] = []
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: counted.append(batch.count()))
    writer.option("checkpointLocation", tmp_path.as_uri()).trigger(once=True).start().awaitTermination()
    assert counted == [10]


@pytest.mark.usefixtures("broadcast")
def test_only_the_owner_enters_sparks_folder(spark: SparkSession, spark_servers: Settings) -> None:
    folder = spark_servers.home / "tmp" / f"p{os.getpid()}"
    assert {path.name.partition("-")[0] for path in folder.iterdir()} >= {"blockmgr", "spark"}
    assert list(folder.glob(".*.sock"))
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder.parent, folder)] == [0o700, 0o700]
    java = [each for each in psutil.Process().children(recursive=True) if "java" in each.name()]
    assert not [file.path for each in java for file in each.open_files() if "hsperfdata" in file.path]


def test_tasks_carry_only_what_they_need(lab: Lab, platform: Settings) -> None:
    """Reads the archive and the log and stages rows, then searches the values that Spark distributed for it.

    Spark may have forgotten some of these values already, so not every permitted secret is found in each attempt.
    """
    first, found = newest_broadcast(lab.spark.sparkContext.broadcast(b"")), set[str]()
    for _ in range(3):
        ground = new_archive(lab, platform)
        ground.click(0, [("u", "1", 0)])
        ground.stream()
        found |= carried(lab.spark, platform, first)
        topics_of_log = topics.end_offsets(platform, ["click"])
        records.read(lab.spark, platform, lab.types, topics_of_log.ranges_to(topics_of_log)).count()
        found |= carried(lab.spark, platform, first)
    permitted = {"stager_password", "catalog_password", "s3_secret_key", "kafka_reader_password"}
    assert found
    assert found <= permitted


def test_the_stager_inserts_staged_rows_reads_what_a_batch_needs_and_nothing_else(
    lab: Lab, postgresql: Settings
) -> None:
    for view_name, view in {"stager_counts": replace(PER_URL, dedupe="1 hour"), "stager_steps": IN_STEPS}.items():
        table.deploy_table(lab.connection, lab.compiled(view_name, view))
    with psycopg.connect(postgresql.staging_uri(), autocommit=True) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("stager",)
        tables: list[tuple[Any, ...]] = lab.connection.execute(
            "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename), schemaname FROM pg_tables "
            "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        may, read = "SELECT has_table_privilege(%s, %s, %s)", set[str]()
        assert {schema for _, schema in tables} >= {"stage", "truelog", "state", "iceberg"}
        for name, schema in tables:
            rights = {
                right
                for right in ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "TRIGGER", "REFERENCES")
                if lab.connection.execute(may, ("stager", name, right)).fetchone() == (True,)
            }
            is_read = name.endswith(READ) and schema in ("stage", "state")
            read |= {name} if "SELECT" in rights else set()
            assert rights <= ({"SELECT"} if is_read else set()) | ({"INSERT"} if schema == "stage" else set()), name
            assert "INSERT" in rights or schema != "stage"
        assert {side for side in READ if any(name.endswith(side) for name in read)} == set(READ)
        for statement in ("CREATE TABLE stage.mine (x int)", "CREATE TEMP TABLE mine (x int)", "CREATE SCHEMA mine"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


def carried(spark: SparkSession, settings: Settings, first: int) -> set[str]:
    """The names of the secrets in the values that Spark has distributed since `first` and not yet forgotten."""
    return {name for block in blocks(spark, first) for name, value in secrets(settings) if value in block}


def secrets(settings: Settings) -> Iterable[tuple[str, bytes]]:
    for name, value in settings:
        if isinstance(value, SecretStr) and value:
            yield name, value.get_secret_value().encode()


def newest_broadcast(variable: Any) -> int:
    """The number of a broadcast variable that was just made; earlier ones have smaller numbers."""
    return int(variable._jbroadcast.id())


def blocks(spark: SparkSession, first: int) -> Iterator[bytes]:
    """Each value from number `first` on that Spark still has for its executors, without compression."""
    jvm: Any = spark._jvm
    environment = jvm.org.apache.spark.SparkEnv.get()
    codec = jvm.org.apache.spark.io.CompressionCodec.createCodec(environment.conf())
    last = newest_broadcast(spark.sparkContext.broadcast(b""))
    for number in range(first, last):
        block = jvm.org.apache.spark.storage.BlockId.apply(f"broadcast_{number}_piece0")
        found = environment.blockManager().getLocalBytes(block)
        if found.isDefined():
            yield bytes(codec.compressedInputStream(found.get().toInputStream()).readAllBytes())
            environment.blockManager().releaseLock(block, jvm.scala.Option.empty())
