"""2,000 small batches of a stream leave few files. `TRUELOG_SMALL_BATCHES` sets another number."""

import logging
import os
import threading
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from tests.laws.bench import PER_MINUTE, make_bench, shaped
from truelog.kernel.apply_batch import EventRange
from truelog.streaming.spark_offsets import fresh_checkpoint

BATCHES = int(os.environ.get("TRUELOG_SMALL_BATCHES", "2000"))
_RECORDS = 10  # of a batch
_RETAINED = 100  # Spark keeps the offsets and the commits of this many batches

log = logging.getLogger("truelog.nightly")


def test_many_small_batches_leave_few_files(lab: Lab, tmp_path: Path) -> None:
    bench, checkpoint = make_bench(lab, PER_MINUTE), fresh_checkpoint(tmp_path / "scratch")
    spark_folder = lab.settings.home / "tmp" / f"p{os.getpid()}"
    counts: dict[int, tuple[int, int]] = {}  # files in the checkpoint and in Spark's folder, by batch
    ended = threading.Event()

    def on_batch(numbers: DataFrame, batch_id: int) -> None:
        begin, end = bench.at(batch_id * _RECORDS), bench.at((batch_id + 1) * _RECORDS)
        columns = {"offset": F.col("value"), "partition": F.lit(0), "topic": F.lit("page_view")}
        events = {"page_view": shaped(lab, numbers, "page_view", columns | {"event_time": F.col("timestamp")})}
        events["page_view"].persist()
        bench.applier.apply(lab.connection, bench.compiled, EventRange(events, begin, end), begin)
        events["page_view"].unpersist()
        if (batch_id + 1) % (BATCHES // 4) == 0:
            counts[batch_id + 1] = _files(checkpoint), _files(spark_folder)
            log.warning("files after %d batches: %s", batch_id + 1, counts[batch_id + 1])
        if batch_id + 1 == BATCHES:
            ended.set()

    source = lab.spark.readStream.format("rate-micro-batch").options(rowsPerBatch=_RECORDS, numPartitions=1).load()
    query = source.writeStream.foreachBatch(on_batch).option("checkpointLocation", checkpoint.as_uri()).start()
    while not ended.wait(5) and query.isActive:
        pass
    query.stop()

    assert ended.is_set(), query.exception()
    assert bench.counted() == BATCHES * _RECORDS
    assert counts[BATCHES][0] <= 5 * _RETAINED  # offsets and commits, each with a checksum, and metadata
    # Spark removes the files of a shuffle after a garbage collection.
    assert counts[BATCHES][1] <= 2 * counts[BATCHES // 4][1] + 1_000


def _files(folder: Path) -> int:
    assert folder.is_dir()
    return sum(len(files) for _, _, files in os.walk(folder))
