"""The Spark session of every Truelog application.

Only what is public goes to the builder: PySpark hands it to the JVM as arguments, which every user of the machine can
list. The catalog's secrets are set on the running session.
"""

import os
import sys

from pyspark.sql import SparkSession

from runtime.java import java_home
from truelog.settings import Settings

# A query stopped inside foreachBatch matches a recursive regex over the traceback: the default stack overflows.
_JAVA_OPTIONS = "-Xss16m -Duser.timezone=UTC -XX:+UseParallelGC"


def session(settings: Settings, name: str) -> SparkSession:
    """A session named `name`, in UTC, with the archive as the Iceberg catalog `archive`."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(java_home(settings))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(settings.spark_master)
    for key, value in _public(settings).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for key, value in settings.spark_catalog().items():
        spark.conf.set(key, value)
    return spark


def _public(settings: Settings) -> dict[str, str]:
    jars = [str(jar) for jar in settings.jars("spark")]
    return {
        "spark.jars": ",".join(jars),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",  # it asks nobody for a password
        "spark.speculation": "false",  # a second attempt would load its rows beside the first one's
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.adaptive.enabled": "false",  # re-planning costs a small batch more than it saves
        "spark.scheduler.mode": "FAIR",
        "spark.sql.debug.maxToStringFields": "100000",  # a fingerprint is taken of the whole plan
    }
