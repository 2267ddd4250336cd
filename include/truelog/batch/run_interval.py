"""Span: which log days a batch run is about, and whether they are over.

A run of Airflow has an interval of the calendar; a log day is a range of offsets, named by the moment it begins. A
run's days are those that begin within its interval. A run by hand names a date, which stands for the interval of that
date, or a moment, which stands for the one log day that it falls in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from truelog.archive import log_day
from truelog.archive.archive_table import archived_positions
from truelog.schema.event import load_events
from truelog.storage.database import connect
from truelog.support.errors import BadInput
from truelog.support.settings import Settings

_DATE = len("2026-11-01")
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True)
class RunInterval:
    """The log days that begin in [begin, end); `unfinished`: as far as they are archived, closed or not."""

    begin: datetime
    end: datetime
    unfinished: bool = False

    @staticmethod
    def of_run(params: Mapping[str, Any], begins: datetime | None, now: datetime, day: int) -> "RunInterval":
        """What a run is about, by its form or else by where its interval begins: the day of the calendar from there.

        `day` is the length of log days, in seconds. One that has not begun yet is nobody's: today ends with the log
        day that is under way.

        Raises:
            BadInput: nothing says which day, or that day is to come.
        """
        begin, end = _asked(params, begins, now, timedelta(seconds=day))
        under_way = log_day.as_datetime(log_day.day_of(now, day) + day)
        if begin >= under_way:
            raise BadInput(f"{begin:%Y-%m-%d %H:%M:%S} has not begun yet: give a day of the past")
        return RunInterval(begin, min(end, under_way), bool(params.get("open")))

    def closes(self, day: int) -> datetime:
        """Where the log has to arrive for the last of the days to be closed."""
        return log_day.as_datetime(log_day.day_of(self.end - _TICK, day) + day)

    def as_dict(self) -> dict[str, Any]:
        """For another task."""
        return {"begin": self.begin.isoformat(), "end": self.end.isoformat(), "unfinished": self.unfinished}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> "RunInterval":
        return RunInterval(
            datetime.fromisoformat(given["begin"]), datetime.fromisoformat(given["end"]), given["unfinished"]
        )


def parse_moment(text: str) -> datetime:
    """A date, or a date and a time, as people write them: in UTC unless they say otherwise."""
    written = datetime.fromisoformat(text)
    return written if written.tzinfo else written.replace(tzinfo=UTC)


def archived_days(settings: Settings, span: RunInterval) -> list[datetime]:
    """The log days that the archive has recorded in the span: none before it began."""
    with connect(settings) as connection:
        rows = connection.execute(
            "SELECT DISTINCT to_timestamp(day) AS begins FROM truelog.log_day "
            "WHERE to_timestamp(day) >= %s AND to_timestamp(day) < %s ORDER BY begins",
            (span.begin, span.end),
        ).fetchall()
    return [day for (day,) in rows if isinstance(day, datetime)]


def topics_behind(settings: Settings, until: datetime) -> list[str]:
    """The topics whose archive has not come to the log day that begins at `until`; empty when all days before are
    closed.
    """
    archived = archived_positions(settings, load_events())
    with connect(settings) as connection:
        known = log_day.load_days(connection, archived.ids)
    number = log_day.day_of(until, settings.log_day_seconds)
    return [topic for topic in archived.offsets if known.begin(number, archived.only([topic])) is None]


def _asked(
    params: Mapping[str, Any], begins: datetime | None, now: datetime, day: timedelta
) -> tuple[datetime, datetime]:
    if given := params["day"]:
        within = parse_moment(given)
        if len(given) == _DATE:
            return within, within + timedelta(days=1)
    elif params.get("open"):
        within = now
    elif begins:
        return begins, begins + timedelta(days=1)
    else:
        raise BadInput("a run by hand needs to know which day: give `day`, or `open` for the one that is under way")
    begin = log_day.as_datetime(log_day.day_of(within, int(day.total_seconds())))
    return begin, begin + day
