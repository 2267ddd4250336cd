"""Measures the quality metrics of an event type's log days with one archive query and stores them with their bounds.

A log day is exactly the offset range that the archive recorded for the day. Distinct key counts are estimates that are
accurate within a few percent, because exact counts would need all of a day's keys in memory.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from datetime import datetime, timedelta
from typing import Any

from pyiceberg.catalog import Catalog

from truelog.archive.analyst import open_dataset, open_engine
from truelog.archive.schema import column_of
from truelog.archive.table import open_catalog
from truelog.batch.run_interval import RunInterval
from truelog.schema.event import EventType
from truelog.schema.quality import EVENTS, HISTORY, KEYS, LATE, MALFORMED, MISSING, QualityMetric, quality_metric
from truelog.schema.record_validation import TOMBSTONE
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

MetricValues = Mapping[str, float | None]


def measure_days(settings: Settings, types: Iterable[EventType], span: RunInterval) -> list[tuple[str, datetime]]:
    """Measure each log day in the span, and return event types and days, oldest first.

    A day that was already measured gets new values, and new bounds from the preceding days.
    """
    measured = []
    with connect(settings, autocommit=True) as connection, open_catalog(settings) as catalog:
        for event_type in types:
            measurements = _measure(catalog, event_type, span)
            for day in _days(connection, event_type, span):
                history = _history(connection, event_type, day, settings.log_day_seconds)
                values = measurements.get(day) or _empty_day(event_type)
                metrics = [
                    quality_metric(event_type.quality, name, value, history[name]) for name, value in values.items()
                ]
                _store(connection, event_type, day, metrics)
                measured.append((event_type.name, day))
    return measured


def _measure(catalog: Catalog, event_type: EventType, span: RunInterval) -> dict[datetime, MetricValues]:
    """The values of each log day that contains records; erased records do not count."""
    condition = f"log_day >= '{span.begin.isoformat()}' AND log_day < '{span.end.isoformat()}'"
    metrics = _expressions(event_type)
    with open_engine() as connection:
        connection.register("records", open_dataset(catalog, event_type, condition))
        query = f"SELECT log_day, {', '.join(metrics.values())} FROM records "  # noqa: S608  declared names
        rows = connection.execute(f"{query} WHERE {condition} AND NOT erased GROUP BY log_day").fetchall()
    return {day: dict(zip(metrics, values, strict=True)) for day, *values in rows}


def _expressions(event_type: EventType) -> dict[str, str]:
    """The SQL expression for each metric, which is NULL if no records determine the metric."""
    valid = "FILTER (WHERE invalid IS NULL)"
    # The tombstones of a captured table are not events.
    events = f"FILTER (WHERE invalid IS DISTINCT FROM '{TOMBSTONE}')" if event_type.topic.source else ""
    late = f"epoch_us(broker_time) - epoch_us(event_time) > {event_type.quality.lateness_seconds * 1_000_000}"
    metrics = {EVENTS: f"count(*) {valid}", MALFORMED: f"avg((invalid IS NOT NULL)::int) {events}"}
    if event_type.topic.key:
        metrics[KEYS] = f'nullif(approx_count_distinct("{column_of(event_type.topic.key)}") {valid}, 0)'
    metrics[LATE] = f"avg(({late})::int) {valid}"
    return metrics | {
        f"{MISSING}{name}": f'avg(("{column_of(name)}" IS NULL)::int) {valid}' for name in event_type.nullable
    }


def _empty_day(event_type: EventType) -> MetricValues:
    """The values of a log day without records: zero events, and no value for the other metrics."""
    return dict.fromkeys(_expressions(event_type)) | {EVENTS: 0}


def _days(connection: Connection, event_type: EventType, span: RunInterval) -> list[datetime]:
    """The recorded log days. They exclude days before the topic existed, which do not show what is usual."""
    rows: list[Any] = connection.execute(
        "SELECT DISTINCT to_timestamp(day) AS begins FROM truelog.log_day "
        "WHERE topic = %s AND to_timestamp(day) >= %s AND to_timestamp(day) < %s ORDER BY begins",
        (event_type.name, span.begin, span.end),
    ).fetchall()
    return [day for (day,) in rows]


def _history(connection: Connection, event_type: EventType, day: datetime, seconds: int) -> Mapping[str, list[float]]:
    """The values of each metric on the preceding log days."""
    rows: list[Any] = connection.execute(
        "SELECT name, value FROM truelog.figure WHERE event = %s AND day < %s AND day >= %s AND value IS NOT NULL",
        (event_type.name, day, day - timedelta(seconds=HISTORY * seconds)),
    ).fetchall()
    by_name: dict[str, list[float]] = defaultdict(list)
    for name, value in rows:
        by_name[name].append(value)
    return by_name


def _store(connection: Connection, event_type: EventType, day: datetime, metrics: Iterable[QualityMetric]) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM truelog.figure WHERE (event, day) = (%s, %s)", (event_type.name, day))
        cursor.executemany(
            "INSERT INTO truelog.figure (event, day, name, value, usual, least, most, unjudged) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            [(event_type.name, day, *astuple(each)) for each in metrics],
        )
