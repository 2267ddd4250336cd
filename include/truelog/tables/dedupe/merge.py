"""Removes the copies from the events of a batch (`truelog.tables.dedupe.compile`).

A batch of the stream has few events, and the ids of earlier ones are in the side table `seen`. Before the batch's
events are transformed:

1. the executors stage them for `seen`, with their log times
2. PostgreSQL finds the copies of staged events and of events in `seen`
3. these events are left out; if they are many, the executors load their coordinates, so that the driver does not

The merge decides whether `seen` was current: it applies only if the view is where the batch begins, and if no repair
has changed a row since then.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from psycopg import sql
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from truelog.log.records import EventFrames
from truelog.log.topics import PartitionKey
from truelog.schema.names import COORDINATES
from truelog.storage.database import Connection, names
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.dedupe import compile as copies
from truelog.tables.dedupe.compile import LOG_TIME, SEEN
from truelog.tables.stage import StagedRows
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.table import Table

_SCHEMA = StructType(
    [StructField(*each) for each in zip(COORDINATES, (StringType(), IntegerType(), LongType()), strict=True)]
)

_FEW = 1_000  # copies whose coordinates may be a part of the query's plan

Partitions = Collection[PartitionKey]


@contextmanager
def removed(
    connection: Connection, compiled: CompiledView, plans: BatchPlans, events: EventFrames, partitions: Partitions
) -> Iterator[tuple[Mapping[str, StagedRows], EventFrames]]:
    """The rows that a batch stages for `seen`, and its events without copies. Its events are in these partitions."""
    seen = seen_of(compiled)
    if seen is None:
        yield {}, events
        return
    timed = plans.timed(events, _log_times(connection, seen, partitions))
    staged = plans.stage(seen, partial(seen.totals_of, timed))  # 1
    query = _copies(seen, staged)
    with connection.transaction(), stage.by_index(connection):
        found: list[Any] = connection.execute(sql.SQL("{} LIMIT {}").format(query, _FEW + 1)).fetchall()  # 2
    if len(found) <= _FEW:  # unless a whole file was sent again
        with plans.without(events, found) as distinct:
            yield {SEEN: staged}, distinct
        return
    loaded = plans.load([query], _SCHEMA).persist()  # 3
    try:
        yield (
            {SEEN: staged},
            {t: each.join(F.broadcast(loaded), list(COORDINATES), "left_anti") for t, each in events.items()},
        )
    finally:
        loaded.unpersist()


def create(connection: Connection, compiled: CompiledView) -> None:
    """Let the executors look for earlier events."""
    seen = seen_of(compiled)
    if seen is not None:
        stage.grant(connection, seen)


def forget(connection: Connection, compiled: CompiledView, schema: str, partitions: Partitions) -> None:
    """Delete the rows of `seen` in these partitions whose events no longer have copies."""
    seen = seen_of(compiled)
    if seen is None:
        return
    delete = sql.SQL(
        "WITH p AS MATERIALIZED ({}) DELETE FROM {} AS t USING p "
        "WHERE (t.topic, t.partition) = (p.topic, p.partition) AND t.{time} < p.{time} - {}"
    )
    state = sql.Identifier(schema, seen.name)
    connection.execute(delete.format(_last(state, partitions), state, _interval(seen), time=sql.Identifier(LOG_TIME)))


def seen_of(compiled: CompiledView) -> Table | None:
    """The side table `seen`, of a view with `dedupe`."""
    return next((each for each in compiled.tables if each.side == SEEN), None)


def _log_times(connection: Connection, seen: Table, partitions: Partitions) -> copies.LogTimes:
    """The log times of these partitions, as far as they have one."""
    rows: list[Any] = connection.execute(_last(sql.Identifier("state", seen.name), partitions)).fetchall()
    return {(topic, partition): time for topic, partition, time in rows if time is not None}


def _last(state: sql.Identifier, partitions: Partitions) -> sql.Composed:
    """The query of the last log time in each of these partitions."""
    return sql.SQL(
        "SELECT topic, partition, (SELECT {time} FROM {state} AS t "
        "WHERE (t.topic, t.partition) = (p.topic, p.partition) ORDER BY {time} DESC LIMIT 1) AS {time} "
        "FROM unnest({topics}::text[], {partitions}::int[]) AS p(topic, partition)"
    ).format(
        time=sql.Identifier(LOG_TIME),
        state=state,
        topics=sql.Literal([topic for topic, _ in partitions]),
        partitions=sql.Literal([partition for _, partition in partitions]),
    )


def _copies(seen: Table, staged: StagedRows) -> sql.Composed:
    """The query of the coordinates of the staged events that are copies.

    The latest earlier event with the same id decides, because its log time is the greatest. The key's index finds
    it, because the offset is its last column.
    """
    return sql.SQL(
        "SELECT {coordinates} FROM ("
        "SELECT *, lag({time}) OVER (PARTITION BY {id} ORDER BY {offset}) AS earlier FROM {stage} "
        "WHERE _attempt = ANY({attempts})) AS p WHERE {time} - {horizon} <= coalesce(earlier, ("
        "SELECT {time} FROM {state} AS t WHERE ({id_of_t}) = ({id_of_p}) ORDER BY {offset} DESC LIMIT 1))"
    ).format(
        coordinates=names(COORDINATES),
        time=sql.Identifier(LOG_TIME),
        id=names(seen.view.key[:-1]),
        id_of_t=names(seen.view.key[:-1], "t."),
        id_of_p=names(seen.view.key[:-1], "p."),
        offset=sql.Identifier(seen.view.key[-1]),
        stage=stage.table(seen),
        attempts=sql.Literal(list(staged.attempts)),
        horizon=_interval(seen),
        state=sql.Identifier("state", seen.name),
    )


def _interval(seen: Table) -> sql.Composed:
    return sql.SQL("make_interval(secs => {})").format(sql.Literal(seen.view.horizon))
