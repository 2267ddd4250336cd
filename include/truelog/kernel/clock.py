"""The clock of the log: what time it is at some positions.

A tick carries a time and the end offsets of all partitions, read after taking the time. The clock of a view at V is
the greatest time up to the last tick that lies below V and whose offsets V has reached: a function of V alone that
never goes back, so stream and rebuild agree on what has grown old, and time passes on a quiet log.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from psycopg import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support.durations import seconds
from truelog.views.compiled_view import Compiled

TOPIC = "ticks"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_AT = """
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
    """Keep ticks, decoded; remembering one twice changes nothing."""
    rows = ticks.select("offset", F.col("occurred_at").cast("string"), "ends").collect()
    with connection.cursor() as cursor:
        cursor.executemany(
            'INSERT INTO truelog.tick (topic_id, "offset", time, ends) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING',
            [(topic_id, *row) for row in rows],
        )


def at(connection: Connection, positions: Positions, reads: Iterable[str]) -> datetime | None:
    """The clock at `positions` of a view that reads these topics; None before the first tick counts."""
    found = connection.execute(
        _AT,
        {
            "id": positions.ids.get(TOPIC, ""),
            "offset": positions.at(TOPIC, 0),
            "reads": list(reads),
            "positions": positions.as_json(),
        },
    ).fetchone()
    time = found[0] if found else None
    assert time is None or isinstance(time, datetime)  # noqa: S101
    return time


def at_from_ticks(ticks: DataFrame, positions: Positions, reads: Iterable[str]) -> datetime | None:
    """The same, from all ticks below `positions` themselves: where there is no database that remembers them."""
    vector = "map<string,map<string,bigint>>"
    reached = F.from_json(F.lit(positions.as_json()), vector)

    def has_come(ends: Column) -> Column:
        topic = ends["key"]
        here = F.try_element_at(reached, topic)
        to_all = F.forall(
            F.map_entries(ends["value"]),
            lambda end: end["value"] <= F.coalesce(F.try_element_at(here, end["key"]), F.lit(0)),
        )
        return ~topic.isin(*reads) | to_all

    counting = ticks.where(F.forall(F.map_entries(F.from_json("ends", vector)), has_come))
    last = counting.agg(F.max("offset")).collect()[0][0]
    found = ticks.where(F.col("offset") <= F.lit(last)).agg(F.unix_micros(F.max("occurred_at"))).collect()[0][0]
    return None if found is None else _EPOCH + timedelta(microseconds=found)


def cutoff(connection: Connection, compiled: Compiled, positions: Positions) -> datetime | None:
    """Where the view has `keep`: rows older than this have left at `positions`. None where none has."""
    if compiled.view.keep is None:
        return None
    return cutoff_at(compiled, at(connection, positions, compiled.view.reads))


def cutoff_at(compiled: Compiled, now: datetime | None) -> datetime | None:
    """Where the view has `keep`: rows older than this have left by then. None where none has."""
    if compiled.view.keep is None or now is None:
        return None
    return now - timedelta(seconds=seconds(compiled.view.keep))


def drop_expired(connection: Connection, compiled: Compiled, schema: str, positions: Positions) -> None:
    """Let the rows of a table leave that are older than the view keeps them, by the clock at `positions`."""
    limit = cutoff(connection, compiled, positions)
    if limit is not None and compiled.age_column is not None:
        table, age = sql.Identifier(schema, compiled.table), sql.Identifier(compiled.age_column)
        connection.execute(sql.SQL("DELETE FROM {} WHERE {} < %s").format(table, age), (limit,))


def without_expired(connection: Connection, compiled: Compiled, rows: DataFrame, positions: Positions) -> DataFrame:
    """The same for rows in Spark."""
    return rows_since(compiled, rows, cutoff(connection, compiled, positions))


def rows_since(compiled: Compiled, rows: DataFrame, limit: datetime | None) -> DataFrame:
    """The rows that are not older."""
    if limit is None or compiled.age_column is None:
        return rows
    return rows.where(F.coalesce(F.col(compiled.age_column) >= F.lit(limit), F.lit(True)))
