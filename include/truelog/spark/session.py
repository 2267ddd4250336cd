"""The Spark session of every Truelog application.

Under `spark-submit` the master and the configuration are the submit's; a process that was started as plain Python
brings the same itself. The catalog's secrets are set on the running session, since PySpark hands everything else to
the JVM as arguments.
"""

import os

from pyspark.sql import SparkSession

from truelog.spark.submit import job_environment, submit_conf
from truelog.support.settings import Settings

_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # spark-submit's JVM runs already, and tells its Python where


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
