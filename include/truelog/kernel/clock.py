"""The log's clock: the time at given positions.

A tick carries a time and the end offsets of all partitions, which were read after the time was taken. A tick counts for
a view at positions V if the tick is below V and V has reached the tick's end offsets. The clock at V is the latest time
of all ticks up to the last tick that counts. The clock depends on V alone and never goes back. The stream and a rebuild
therefore agree on which rows are old, and time passes even on a quiet log.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from truelog.log.positions import Positions
from truelog.log.valid_tick import TickRow, tick_ends
from truelog.schema.event import FUTURE_LIMIT
from truelog.schema.names import TICKS
from truelog.storage.database import Connection, read_value
from truelog.support.durations import seconds
from truelog.tables.table import Table

TOPIC = TICKS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ("offset", "unix_micros(occurred_at) AS time", "unix_micros(broker_time) AS broker_time", "ends")
_JUDGED = pa.schema([("offset", pa.int64()), ("time", pa.int64()), ("ends", pa.string()), ("counts", pa.bool_())])

_LATEST = 2_000  # the number of the latest ticks that are searched first; each further search reads 16 times as many
_FURTHER = 16
_AT_ONCE = 5_000  # ticks that are stored in one transaction

_Batches = Iterable[pa.RecordBatch]
_Judge = Callable[[DataFrame], DataFrame]
# Reads the records of `ticks` from one offset to another. If a time is given, skips records that were appended earlier.
ReadTicks = Callable[[int, int, datetime | None], DataFrame]

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


def store_ticks(
    connection: Connection, topic_id: str, ticks: DataFrame, require_unchanged: Callable[[], None] = lambda: None
) -> None:
    """Store the valid ticks of a batch; storing a tick twice changes nothing.

    `require_unchanged` is called before each commit, and raises if the topic may be another topic by now.
    """
    store_tick_rows(connection, topic_id, map(tuple, ticks.selectExpr(*_COLUMNS).toLocalIterator()), require_unchanged)


def store_tick_rows(
    connection: Connection, topic_id: str, rows: Iterable[TickRow], require_unchanged: Callable[[], None]
) -> None:
    """Like `store_ticks`, for ticks that were read without Spark.

    A view that begins on an old platform needs the ticks of a week, which are more than memory should hold.
    """
    left = iter(rows)
    while some := list(islice(left, _AT_ONCE)):  # their source may need longer than a transaction may be idle
        found = ((offset, time, tick_ends(time, broker_time, ends)) for offset, time, broker_time, ends in some)
        with connection.transaction():
            _insert(connection, topic_id, ((offset, time, ends) for offset, time, ends in found if ends is not None))
            require_unchanged()


def replace_ticks(
    connection: Connection, topic_id: str, read: ReadTicks, positions: Positions, reads: Iterable[str]
) -> None:
    """Replace the stored ticks below `positions` by the ticks that `read` finds in the same range of offsets.

    Also store the ticks that decide the clock at `positions`, which may be older.
    """
    end = positions.at(TOPIC, 0)
    first = read_value(
        connection,
        'SELECT coalesce(min("offset"), %(end)s) FROM truelog.tick WHERE topic_id = %(id)s AND "offset" < %(end)s',
        {"end": end, "id": topic_id},
    )
    begin = min(first, max(0, end - _LATEST))
    found = _judge("{}", frozenset())(read(begin, end, None)).select("offset", "time", "ends").toLocalIterator()
    rows = [
        (each.offset, each.time, Positions.from_json(each.ends))
        for each in (*found, *_deciding(read, positions, reads))
    ]
    with connection.transaction():
        connection.execute(
            'DELETE FROM truelog.tick WHERE topic_id = %s AND "offset" >= %s AND "offset" < %s', (topic_id, begin, end)
        )
        _insert(connection, topic_id, rows)


def record_wrong(connection: Connection, topic_id: str, stored: datetime) -> None:
    """Record that a stored clock was wrong, which explains the rows of other views too."""
    connection.execute(
        "INSERT INTO truelog.wrong_clock (topic_id, time) VALUES (%s, %s) "
        "ON CONFLICT (topic_id, time) DO UPDATE SET found_at = now()",
        (topic_id, stored),
    )


def last_wrong(connection: Connection, topic_id: str) -> datetime | None:
    """The latest time that a stored clock has had wrongly; None if none was wrong."""
    found = read_value(connection, "SELECT max(time) FROM truelog.wrong_clock WHERE topic_id = %s", (topic_id,))
    assert found is None or isinstance(found, datetime)  # noqa: S101
    return found


def _insert(connection: Connection, topic_id: str, ticks: Iterable[tuple[int, int, Positions]]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            'INSERT INTO truelog.tick (topic_id, "offset", time, ends) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING',
            [(topic_id, offset, _as_datetime(time), ends.as_json()) for offset, time, ends in ticks],
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


def at_from_ticks(read: ReadTicks, positions: Positions, reads: Iterable[str]) -> datetime | None:
    """The same clock as in `at`, computed from the ticks below `positions` without a database."""
    return max((_as_datetime(row.time) for row in _deciding(read, positions, reads)), default=None)


@dataclass(frozen=True)
class Tick:
    """A tick: its offset, its time and the end of each partition."""

    offset: int
    time: datetime
    ends: Positions


def last_before(read: ReadTicks, offset: int) -> Tick | None:
    """The last tick below this offset."""
    found = _last_counting(_judge("{}", frozenset()), read, offset)  # every tick counts for a view that reads nothing
    return found and Tick(found[0].offset, _as_datetime(found[0].time), Positions.from_json(found[0].ends))


def first_later(read: ReadTicks, end: int, time: datetime) -> int | None:
    """The offset of the first tick below `end` that is later than `time`."""
    begin, since = 0, max(time, _EPOCH + FUTURE_LIMIT) - FUTURE_LIMIT
    while begin < end:
        later = read(begin, end, since).where(F.col("occurred_at") > F.lit(time)).selectExpr(*_COLUMNS)
        found = later.agg(F.min_by(F.struct("*"), "offset")).collect()[0][0]
        if found is None:
            return None
        if tick_ends(found.time, found.broker_time, found.ends) is not None:
            return int(found.offset)
        begin = found.offset + 1  # the record is not a tick
    return None


def _deciding(read: ReadTicks, positions: Positions, reads: Iterable[str]) -> list[Row]:
    """The last tick that counts at `positions`, and the tick with the latest time up to it; none if no tick counts.

    The search begins at the end. It skips the earlier ticks that were appended too early to have a later time, which
    the archive knows from the broker times in its metadata. The driver gets one row of each search.
    """
    judge = _judge(positions.as_json(), frozenset(reads))
    found = _last_counting(judge, read, positions.at(TOPIC, 0))
    if found is None:
        return []
    last, latest, start = found
    [latest_time] = _most(latest.where(F.col("offset") <= last.offset), "time")
    return [last, latest_time, *_earlier(judge, read, start, latest_time.time)]


def _last_counting(judge: _Judge, read: ReadTicks, end: int) -> tuple[Row, DataFrame, int] | None:
    """The last tick below `end` that counts, the frame in which it was found, and the offset where the frame begins."""
    size = _LATEST
    while end > 0:
        start = max(0, end - size)
        latest = judge(read(start, end, None))
        if last := _most(latest.where("counts"), "offset"):
            return last[0], latest, start
        end, size = start, size * _FURTHER
    return None


def _earlier(judge: _Judge, read: ReadTicks, end: int, time: int) -> list[Row]:
    """The tick before offset `end` with the latest time, if it is later than `time`; no row if there is none."""
    if end == 0:
        return []
    since = _as_datetime(time) - FUTURE_LIMIT  # a tick's time is at most so much later than its broker time
    return _most(judge(read(0, end, since)).where(F.col("time") > time), "time")


def _most(judged: DataFrame, column: str) -> list[Row]:
    """The row in which `column` is greatest; no row if there are no rows."""
    greatest = judged.agg(F.max_by(F.struct("offset", "time", "ends"), column)).collect()[0][0]
    return [] if greatest is None else [greatest]


def _judge(positions: str, reads: frozenset[str]) -> _Judge:
    """The function that selects the valid ticks and tells whether each counts at `positions`, which are JSON."""

    def judge(batches: _Batches) -> Iterator[pa.RecordBatch]:
        reached = Positions.from_json(positions)
        for batch in batches:
            rows = []
            for offset, time, broker_time, text in zip(*batch.to_pydict().values(), strict=True):
                ends = tick_ends(time, broker_time, text)
                if ends is not None:
                    counts = reached.covers(ends.only(reads))
                    rows.append({"offset": offset, "time": time, "ends": ends.as_json(), "counts": counts})
            yield pa.RecordBatch.from_pylist(rows, _JUDGED)

    return lambda ticks: ticks.selectExpr(*_COLUMNS).mapInArrow(judge, from_arrow_schema(_JUDGED))


def _as_datetime(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def cutoff(connection: Connection, table: Table, positions: Positions) -> datetime | None:
    """The expiry limit at `positions`: older rows have expired. None if there is no `keep` or no clock yet."""
    if table.view.keep is None:
        return None
    return cutoff_at(table, at(connection, positions, table.view.reads))


def cutoff_at(table: Table, now: datetime | None) -> datetime | None:
    """The expiry limit when the clock is at `now`: older rows have expired. None if there is no `keep` or no time."""
    if table.view.keep is None or now is None:
        return None
    return now - timedelta(seconds=seconds(table.view.keep))


def drop_before(connection: Connection, table: Table, schema: str, limit: datetime | None) -> None:
    """Delete a table's rows that are older than `limit`."""
    if limit is not None and table.age_column is not None:
        target, age = sql.Identifier(schema, table.name), sql.Identifier(table.age_column)
        connection.execute(sql.SQL("DELETE FROM {} WHERE {} < %s").format(target, age), (limit,))


def rows_since(table: Table, rows: DataFrame, limit: datetime | None) -> DataFrame:
    """The rows of a frame that are not older than `limit`."""
    if limit is None or table.age_column is None:
        return rows
    return rows.where(F.coalesce(F.col(table.age_column) >= F.lit(limit), F.lit(True)))
