"""A Spark run that loads the classes for the class archive, using a stream, Python with Arrow, and an Iceberg table."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

_CATALOG = "warm"


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        _stream(spark, Path(folder))
        _table(spark, Path(folder))
    spark.stop()


def _stream(spark: SparkSession, folder: Path) -> None:
    def on_batch(batch: DataFrame, _: int) -> None:
        decoded = batch.mapInArrow(_identity, batch.schema).persist()
        added = decoded.groupBy(F.window("timestamp", "1 minute").start.alias("minute")).agg(F.sum("value").alias("n"))
        added.select(F.xxhash64("minute", "n").alias("hash")).collect()
        decoded.unpersist()

    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rate.writeStream.foreachBatch(on_batch).option("checkpointLocation", (folder / "checkpoint").as_uri())
    writer.trigger(once=True).start().awaitTermination()


def _table(spark: SparkSession, folder: Path) -> None:
    spark.conf.set(f"spark.sql.catalog.{_CATALOG}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{_CATALOG}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{_CATALOG}.warehouse", folder.as_uri())
    # The file system of checkpoints cannot read Parquet files.
    spark.conf.set(f"spark.sql.catalog.{_CATALOG}.hadoop.fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    spark.conf.set(f"spark.sql.catalog.{_CATALOG}.hadoop.fs.file.impl.disable.cache", "true")
    rows = spark.range(10).withColumn("day", F.col("id") % 2)
    rows.writeTo(f"{_CATALOG}.a.rows").partitionedBy("day").create()
    rows.writeTo(f"{_CATALOG}.a.rows").overwrite(F.col("day") == 1)
    spark.table(f"{_CATALOG}.a.rows").where("id > 3").groupBy("day").count().collect()


def _identity(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main()
