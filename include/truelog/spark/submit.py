"""What every Spark process of Truelog is started with, whoever starts it: Airflow, the command line or a test.

Only what is public is here: configuration ends up in the arguments of a process, which every user of the machine can
list, and an environment is inherited by everything that the process starts.
"""

import os
import sys
from pathlib import Path

from truelog.spark.java import class_archive, java_home
from truelog.support.settings import Settings

# The connection of Airflow that names the master.
SPARK = "spark_default"

# A query stopped inside foreachBatch matches a recursive regex over the traceback: the default stack overflows.
_LOGGING = Path(__file__).with_name("spark-log4j2.properties")
_JAVA_OPTIONS = f"-Xss16m -Duser.timezone=UTC -XX:+UseParallelGC -Dlog4j2.configurationFile={_LOGGING}"
_INHERITED = ("HOME", "JAVA_TOOL_OPTIONS", "LANG", "PATH", "TMPDIR", "TRUELOG_FAULT", "TRUELOG_FAULT_FIRED")


def submit_conf(settings: Settings) -> dict[str, str]:
    """Spark's configuration but for the master."""
    return {
        "spark.jars": ",".join(str(jar) for jar in settings.jars("spark")),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.driver.extraJavaOptions": _java_options(settings),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
        "spark.python.daemon.module": "truelog.spark.python_daemon",
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # it asks the JVM four things for each column
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",  # it asks nobody for a password
        "spark.speculation": "false",  # a second attempt would load its rows beside the first one's
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.adaptive.enabled": "false",  # re-planning costs a small batch more than it saves
        "spark.scheduler.mode": "FAIR",
        "spark.sql.debug.maxToStringFields": "100000",  # a fingerprint is taken of the whole plan
    }


def _java_options(settings: Settings) -> str:
    archive = class_archive(settings)
    return f"{_JAVA_OPTIONS} -XX:SharedArchiveFile={archive}" if archive.is_file() else _JAVA_OPTIONS


def job_environment(settings: Settings) -> dict[str, str]:
    """The whole environment of a Spark process: nothing of Airflow's, no secret."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return inherited | {
        "TRUELOG_HOME": str(settings.home),
        "TRUELOG_JARS": str(settings.jars_home),
        "JAVA_HOME": str(java_home(settings)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
    }
