"""Figures: what can be counted of a log day of an event type, in one query over the archive, kept with its bounds.

The day is exactly the range of offsets that the archive recorded for it. Counts of different keys are estimates within
some hundredths: exact ones would hold every key of a day in memory.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from datetime import datetime, timedelta
from typing import Any

from pyiceberg.catalog import Catalog

from truelog.archive.analyst import archived, open_engine
from truelog.archive.archive_table import open_catalog
from truelog.batch.run_interval import RunInterval
from truelog.schema.event import EventType
from truelog.schema.quality import EVENTS, HISTORY, KEYS, LATE, MALFORMED, MISSING, Figure, figure
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

MetricValues = Mapping[str, float | None]


def measure_day(settings: Settings, types: Iterable[EventType], span: RunInterval) -> list[tuple[str, datetime]]:
    """Keep the figures of each log day in the span; which days of which event types these are, the oldest first.

    Days that were measured before are measured again, and their bounds found anew from the days before them.
    """
    measured = []
    with connect(settings, autocommit=True) as connection, open_catalog(settings) as catalog:
        for event_type in types:
            counted = count_day(catalog, event_type, span)
            for day in _days(connection, event_type, span):
                history = _before(connection, event_type, day, settings.log_day_seconds)
                values = counted.get(day) or _of_nothing(event_type)
                _keep(
                    connection,
                    event_type,
                    day,
                    [figure(event_type.quality, name, value, history[name]) for name, value in values.items()],
                )
                measured.append((event_type.name, day))
    return measured


def count_day(catalog: Catalog, event_type: EventType, span: RunInterval) -> dict[datetime, MetricValues]:
    """The values of each log day that holds records; erased ones are none."""
    wanted = f"log_day >= '{span.begin.isoformat()}' AND log_day < '{span.end.isoformat()}'"
    figures = _figures(event_type)
    with open_engine() as connection:
        connection.register("records", archived(catalog, event_type, wanted))
        query = f"SELECT log_day, {', '.join(figures.values())} FROM records "  # noqa: S608  names that are declared
        found = connection.execute(f"{query} WHERE {wanted} AND NOT erased GROUP BY log_day").fetchall()
    return {day: dict(zip(figures, values, strict=True)) for day, *values in found}


def _figures(event_type: EventType) -> dict[str, str]:
    """Each as SQL; NULL where there was nothing to tell it by."""
    of_events = "FILTER (WHERE invalid IS NULL)"
    late = f"epoch_us(broker_time) - epoch_us(event_time) > {event_type.quality.lateness_seconds * 1_000_000}"
    found = {EVENTS: f"count(*) {of_events}", MALFORMED: "avg((invalid IS NOT NULL)::int)"}
    if event_type.topic.key:
        found[KEYS] = f"nullif(approx_count_distinct({event_type.topic.key}) {of_events}, 0)"
    found[LATE] = f"avg(({late})::int) {of_events}"
    optional = (field.name for field in event_type.fields if not field.required)
    return found | {f"{MISSING}{name}": f'avg(("{name}" IS NULL)::int) {of_events}' for name in optional}


def _of_nothing(event_type: EventType) -> MetricValues:
    """A log day that holds no record has figures as well: that there were none."""
    return dict.fromkeys(_figures(event_type)) | {EVENTS: 0}


def _days(connection: Connection, event_type: EventType, span: RunInterval) -> list[datetime]:
    """None before the topic began: days without an event type say nothing of what is usual."""
    rows: list[Any] = connection.execute(
        "SELECT DISTINCT to_timestamp(day) AS begins FROM truelog.log_day "
        "WHERE topic = %s AND to_timestamp(day) >= %s AND to_timestamp(day) < %s ORDER BY begins",
        (event_type.name, span.begin, span.end),
    ).fetchall()
    return [day for (day,) in rows]


def _before(connection: Connection, event_type: EventType, day: datetime, seconds: int) -> Mapping[str, list[float]]:
    """Each figure on the log days before."""
    rows: list[Any] = connection.execute(
        "SELECT name, value FROM truelog.figure WHERE event = %s AND day < %s AND day >= %s AND value IS NOT NULL",
        (event_type.name, day, day - timedelta(seconds=HISTORY * seconds)),
    ).fetchall()
    by_name: dict[str, list[float]] = defaultdict(list)
    for name, value in rows:
        by_name[name].append(value)
    return by_name


def _keep(connection: Connection, event_type: EventType, day: datetime, figures: Iterable[Figure]) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM truelog.figure WHERE (event, day) = (%s, %s)", (event_type.name, day))
        cursor.executemany(
            "INSERT INTO truelog.figure (event, day, name, value, usual, least, most, unjudged) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            [(event_type.name, day, *astuple(each)) for each in figures],
        )
