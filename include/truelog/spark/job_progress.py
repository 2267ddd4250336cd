"""Job progress: reports how many tasks of Spark's jobs have ended, while a block runs them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.5


@contextmanager
def watched(spark: SparkSession, report: Callable[[int, int], None]) -> Iterator[None]:
    """Call `report` with the tasks that have ended, and with all tasks that are known, until the block ends."""
    ended, seen = Event(), dict[int, tuple[int, int]]()

    def look() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(_LOOK_SECONDS):
            for stage in tracker.getActiveStageIds():
                if found := tracker.getStageInfo(stage):
                    seen[stage] = (found.numCompletedTasks, found.numTasks)
            report(sum(done for done, _ in seen.values()), sum(tasks for _, tasks in seen.values()))

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
