"""The Spark session of every Truelog application.

If `spark-submit` started the process, the command line has set the master and the configuration. A process started as
plain Python sets both here. The catalog secrets are set on the running session, because PySpark passes all earlier
settings to the JVM as arguments, which other users can read.
"""

import os

from pyspark.sql import SparkSession

from truelog.spark.submit import job_environment, submit_conf
from truelog.support.settings import Settings

_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set if the spark-submit JVM started this Python process


def session(settings: Settings, name: str) -> SparkSession:
    """A session named `name` in UTC, with the archive as the `archive` Iceberg catalog."""
    builder = SparkSession.builder.appName(name)
    if _SUBMITTED not in os.environ:
        os.environ.update(job_environment(settings))
        builder = builder.master(settings.spark_master)
        for key, value in submit_conf(settings).items():
            builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    for key, value in settings.spark_catalog().items():
        spark.conf.set(key, value)
    return spark
