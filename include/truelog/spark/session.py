"""The Spark session of every Truelog application.

Under `spark-submit`, the command line has set the master and the configuration; a process started as plain Python
sets the same here. The catalog's secrets are set on the running session, because PySpark passes everything set
earlier to the JVM as arguments, which other users can read.
"""

import os

from pyspark.sql import SparkSession

from truelog.spark.submit import job_environment, submit_conf
from truelog.support.settings import Settings

_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set where spark-submit's JVM started this Python


def session(settings: Settings, name: str) -> SparkSession:
    """A session named `name`, in UTC, with the archive as the Iceberg catalog `archive`."""
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
