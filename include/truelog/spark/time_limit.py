"""A time limit for the Spark jobs of one thread."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_REPEAT_SECONDS = 0.5  # a job that the thread starts after the limit is cancelled as well


@contextmanager
def time_limit(spark: SparkSession, seconds: float) -> Iterator[threading.Event]:
    """Cancel the jobs that this thread runs in the block after so many seconds. The event says that the time is up."""
    context, tag = spark.sparkContext, f"limit-{uuid.uuid4().hex}"
    up, left = threading.Event(), threading.Event()

    def cancel() -> None:
        if left.wait(seconds):
            return
        up.set()
        while True:
            context.cancelJobsWithTag(tag)
            if left.wait(_REPEAT_SECONDS):
                return

    watch = threading.Thread(target=cancel, name=tag, daemon=True)
    context.addJobTag(tag)
    watch.start()
    try:
        yield up
    finally:
        left.set()
        context.removeJobTag(tag)
        watch.join()
