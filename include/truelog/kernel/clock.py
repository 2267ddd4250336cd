"""The log's clock: the time at given positions.

A tick carries a time and the end offsets of all partitions, which were read after the time was taken. A tick counts for
a view at positions V if the tick is below V and V has reached the tick's end offsets. The clock at V is the latest time
of all ticks up to the last tick that counts. The clock depends on V alone and never goes back. The stream and a rebuild
therefore agree on which rows are old, and time passes even on a quiet log.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from psycopg import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support.durations import seconds
from truelog.views.compiled_view import CompiledView

TOPIC = "ticks"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_CLOCK_AT = """
    SELECT max(time) FROM truelog.tick WHERE topic_id = %(id)s AND "offset" <= (
        SELECT "offset" FROM truelog.tick
        WHERE topic_id = %(id)s AND "offset" < %(offset)s AND NOT EXISTS (
            SELECT FROM jsonb_each(ends) AS t(topic, partitions), jsonb_each_text(partitions) AS e(partition, reached)
            WHERE topic = ANY(%(reads)s)
              AND reached::bigint > coalesce((%(positions)s::jsonb -> topic ->> partition)::bigint, 0)
        ) ORDER BY "offset" DESC LIMIT 1
    )
"""


def store_ticks(connection: Connection, topic_id: str, ticks: DataFrame) -> None:
    """Store decoded ticks; storing a tick twice changes nothing."""
    rows = ticks.select("offset", F.col("occurred_at").cast("string"), "ends").collect()
    with connection.cursor() as cursor:
        cursor.executemany(
            'INSERT INTO truelog.tick (topic_id, "offset", time, ends) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING',
            [(topic_id, *row) for row in rows],
        )


def at(connection: Connection, positions: Positions, reads: Iterable[str]) -> datetime | None:
    """The clock at `positions` for a view that reads these topics; None before the first tick that counts."""
    row = connection.execute(
        _CLOCK_AT,
        {
            "id": positions.ids.get(TOPIC, ""),
            "offset": positions.at(TOPIC, 0),
            "reads": list(reads),
            "positions": positions.as_json(),
        },
    ).fetchone()
    time = row[0] if row else None
    assert time is None or isinstance(time, datetime)  # noqa: S101
    return time


def at_from_ticks(ticks: DataFrame, positions: Positions, reads: Iterable[str]) -> datetime | None:
    """The same clock as in `at`, computed from all ticks below `positions` without a database."""
    vector = "map<string,map<string,bigint>>"
    reached = F.from_json(F.lit(positions.as_json()), vector)

    def is_reached(ends: Column) -> Column:
        topic = ends["key"]
        offsets = F.try_element_at(reached, topic)
        all_partitions = F.forall(
            F.map_entries(ends["value"]),
            lambda end: end["value"] <= F.coalesce(F.try_element_at(offsets, end["key"]), F.lit(0)),
        )
        return ~topic.isin(*reads) | all_partitions

    counting = ticks.where(F.forall(F.map_entries(F.from_json("ends", vector)), is_reached))
    last = counting.agg(F.max("offset")).collect()[0][0]
    micros = ticks.where(F.col("offset") <= F.lit(last)).agg(F.unix_micros(F.max("occurred_at"))).collect()[0][0]
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def cutoff(connection: Connection, compiled: CompiledView, positions: Positions) -> datetime | None:
    """The expiry limit at `positions`: older rows have expired. None if there is no `keep` or no clock yet."""
    if compiled.view.keep is None:
        return None
    return cutoff_at(compiled, at(connection, positions, compiled.view.reads))


def cutoff_at(compiled: CompiledView, now: datetime | None) -> datetime | None:
    """The expiry limit when the clock is at `now`: older rows have expired. None if there is no `keep` or no time."""
    if compiled.view.keep is None or now is None:
        return None
    return now - timedelta(seconds=seconds(compiled.view.keep))


def drop_expired_rows(connection: Connection, compiled: CompiledView, schema: str, positions: Positions) -> None:
    """Delete a table's rows that have expired under the view's `keep`, by the clock at `positions`."""
    limit = cutoff(connection, compiled, positions)
    if limit is not None and compiled.age_column is not None:
        table, age = sql.Identifier(schema, compiled.table), sql.Identifier(compiled.age_column)
        connection.execute(sql.SQL("DELETE FROM {} WHERE {} < %s").format(table, age), (limit,))


def without_expired(connection: Connection, compiled: CompiledView, rows: DataFrame, positions: Positions) -> DataFrame:
    """Drop a frame's expired rows, by the clock at `positions`."""
    return rows_since(compiled, rows, cutoff(connection, compiled, positions))


def rows_since(compiled: CompiledView, rows: DataFrame, limit: datetime | None) -> DataFrame:
    """The rows of a frame that are not older than `limit`."""
    if limit is None or compiled.age_column is None:
        return rows
    return rows.where(F.coalesce(F.col(compiled.age_column) >= F.lit(limit), F.lit(True)))
