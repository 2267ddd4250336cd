"""Starts the session of a batch job in a thread. Java needs two seconds, in which the job imports and loads."""

from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import SparkSession

from truelog.spark.priority import yield_to_streams
from truelog.spark.session import session
from truelog.storage.database import connect
from truelog.support.settings import Settings


def begin_session(settings: Settings, name: str, records: int | None = None) -> Future[SparkSession]:
    """The session of a batch job, as soon as it has started.

    This process and its session work at a lower priority than the streams from now on.
    `records` is the largest number of records that the job may read; by default, the views' records in the database.
    """
    quick = is_quick(settings) if records is None else records <= settings.quick_records
    yield_to_streams()  # threads that begin later have the priority of this one
    return ThreadPoolExecutor(1, "spark").submit(session, settings, name, quick=quick, batch=True)


def is_quick(settings: Settings) -> bool:
    """Whether the views have read so few records that a batch job ends before Java's second compiler pays off."""
    return records_read(settings) <= settings.quick_records


def records_read(settings: Settings) -> int:
    """How many records the views have read, each record once."""
    with connect(settings) as connection:
        found = connection.execute(
            "SELECT coalesce(sum(read), 0) FROM "
            "(SELECT max(next_offset) AS read FROM truelog.position GROUP BY topic, partition) AS each_partition"
        ).fetchone()
    assert found is not None  # noqa: S101
    return int(str(found[0]))
