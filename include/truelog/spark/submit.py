"""Configuration and environment of every Spark process, whether Airflow, the command line or a test starts it.

Neither contains secrets: the configuration becomes process arguments, which every user of the machine can list, and
child processes inherit the environment. The secret of a Spark cluster is in a private file.

Spark's ports require authentication, and its Python workers use Unix sockets instead of ports.
"""

import os
import sys
from pathlib import Path

from truelog.spark import priority, trust_store
from truelog.spark.class_archive import CLASS_PATH, class_archive, class_path, is_local, mapping
from truelog.spark.java import java_home
from truelog.support.errors import NotSetUp
from truelog.support.files import write_private
from truelog.support.settings import PROJECT, Settings

# The Airflow connection that contains the master's address.
SPARK = "spark_default"

# When a query stops inside foreachBatch, Spark matches the traceback with a recursive regex, which overflows a stack of
# the default size.
_LOGGING = Path(__file__).with_name("spark-log4j2.properties")
# Java would publish its performance data in a file in /tmp, and print its warnings before the JSON of a command, for
# example that it cannot map the class archive. By default, it would also collect all garbage in the middle of each
# start, when the classes take 21 MB.
_JAVA_OPTIONS = (
    "-Xss16m -Duser.timezone=UTC -XX:+UseParallelGC -XX:MetaspaceSize=256m -XX:-UsePerfData "
    f"-XX:+DisplayVMOutputToStderr -Xlog:disable -Xlog:all=warning:stderr -Dlog4j2.configurationFile={_LOGGING}"
)
# Java's second compiler takes a third of a short job's CPU time. The first alone reserves too little memory for
# Spark's code, and would stop compiling.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
# By default, Hadoop starts about forty programs (`chmod`, `stat`, `readlink`) for the two small files of a batch. A
# checkpoint is scratch data, so it needs no checksums.
_CHECKPOINTS = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_INHERITED = ("HOME", "JAVA_TOOL_OPTIONS", "LANG", "PATH", "TRUELOG_FAULT", "TRUELOG_FAULT_FIRED")

_CLUSTERS = ("spark://", "local-cluster[")  # masters that make no secret of their own

UMASK = 0o077  # for every Spark process


def submit_conf(settings: Settings, scratch: Path, *, quick: bool = False, batch: bool = False) -> dict[str, str]:
    """The Spark configuration, except the master. Temporary files go to the private folder `scratch`.

    A `quick` process starts faster and works more slowly: see `docs/numbers.md`. A `batch` process leaves cores to the
    streams.
    """
    return {
        "spark.authenticate": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.driver.extraJavaOptions": " ".join(
            [*_java_options(settings, quick=quick, batch=batch), f"-Djava.io.tmpdir={scratch}"]
        ),
        "spark.driver.memory": "2g",
        "spark.driver.host": settings.spark_driver_host,
        "spark.driver.bindAddress": settings.spark_driver_host,
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
        "spark.python.daemon.module": "truelog.spark.python_daemon",
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # debugging calls the JVM four times for each column
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",  # the UI has no password
        "spark.speculation": "false",  # a second attempt would stage the same rows again
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.adaptive.enabled": "false",  # re-planning a small batch costs more than it saves
        "spark.scheduler.mode": "FAIR",
        "spark.sql.debug.maxToStringFields": "100000",  # fingerprints cover the whole plan
        "spark.sql.codegen.cache.maxEntries": "2000",  # not 100: a batch of twenty views needs 550
        **_CHECKPOINTS,
        **({} if is_local(settings) else {"spark.jars": ",".join(map(str, settings.jars("spark")))}),
        **settings.spark_conf,
        CLASS_PATH: class_path(settings),
    }


def _java_options(settings: Settings, *, quick: bool, batch: bool) -> list[str]:
    options = [_JAVA_OPTIONS, *([_QUICK] if quick else []), *mapping(settings, class_archive(settings))]
    options += trust_store.java_options(settings)
    cores = priority.usable_cores()
    if batch and priority.batch_cores(cores) < cores:
        options.append(f"-XX:ActiveProcessorCount={priority.batch_cores(cores)}")
    return options


def properties_file(settings: Settings) -> Path:
    """The file with the secret of a Spark cluster, for `spark-submit --properties-file`. Local Spark ignores it.

    Raises:
        NotSetUp: the settings name a cluster, but not its secret.
    """
    file = settings.home / "spark.properties"
    if secret := settings.spark_secret.get_secret_value():
        text = f"spark.authenticate.secret {secret}\n"
    elif settings.spark_master.startswith(_CLUSTERS):
        raise NotSetUp(f"{settings.spark_master} needs the cluster's secret: set TRUELOG_SPARK_SECRET in settings.env")
    else:
        text = "# TRUELOG_SPARK_SECRET is empty\n"
    if not file.exists() or file.read_text() != text:
        write_private(file, text)
    return file


def job_environment(settings: Settings, scratch: Path) -> dict[str, str]:
    """The complete environment of a Spark process, without Airflow's variables or secrets."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return inherited | {
        "TRUELOG_HOME": str(settings.home),
        "TRUELOG_JARS": str(settings.jars_home),
        "JAVA_HOME": str(java_home(settings)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(PROJECT / "include"),  # an image has the library's files, but has not installed it
        "SPARK_LOCAL_IP": settings.spark_driver_host,
        "TMPDIR": str(scratch),
        "TZ": "UTC",
    }
