"""Run interval: the log days of a batch run, and whether they are closed.

An Airflow run has a calendar interval. A log day is a range of offsets, named after its start time. A run covers
the log days that begin within its interval. A manual run specifies either a date, which selects that date's log days,
or a time, which selects the log day that contains the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from truelog.archive import log_day
from truelog.archive.table import archived_positions
from truelog.control import event_registry
from truelog.storage.database import connect
from truelog.support.errors import BadInput
from truelog.support.settings import Settings

_DATE = len("2026-11-01")
_TICK = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LISTED = 5  # days in an error message


@dataclass(frozen=True)
class RunInterval:
    """The log days that begin in [begin, end). `unfinished` includes open days, as far as they are archived."""

    begin: datetime
    end: datetime
    unfinished: bool = False

    @staticmethod
    def of_run(params: Mapping[str, Any], begins: datetime | None, now: datetime, day: int) -> "RunInterval":
        """The interval that a run's form requests, or else the calendar day that starts at `begins`.

        `day` is the length of a log day in seconds. The interval ends no later than the current log day.

        Raises:
            BadInput: the form contains no day and the run has no interval, or the day has not begun.
        """
        begin, end = _requested(params, begins, now, timedelta(seconds=day))
        current_end = log_day.as_datetime(log_day.day_of(now, day) + day)
        if begin >= current_end:
            raise BadInput(f"{begin:%Y-%m-%d %H:%M:%S} has not begun yet: give a past day")
        return RunInterval(begin, min(end, current_end), bool(params.get("open")))

    def closes(self, day: int) -> datetime:
        """The time that the log must reach before the last of these days is closed."""
        return log_day.as_datetime(log_day.day_of(self.end - _TICK, day) + day)

    def as_dict(self) -> dict[str, Any]:
        """The format in which one task passes the interval to another task."""
        return {"begin": self.begin.isoformat(), "end": self.end.isoformat(), "unfinished": self.unfinished}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "RunInterval":
        return RunInterval(
            datetime.fromisoformat(values["begin"]), datetime.fromisoformat(values["end"]), values["unfinished"]
        )


def parse_moment(text: str) -> datetime:
    """Parse a date, or a date and a time, as UTC unless the text has an offset."""
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def archived_days(settings: Settings, interval: RunInterval) -> list[datetime]:
    """The log days in the interval that the archive has recorded; there are none from before the archive began."""
    with connect(settings) as connection:
        rows = connection.execute(
            "SELECT DISTINCT to_timestamp(day) AS begins FROM truelog.log_day "
            "WHERE to_timestamp(day) >= %s AND to_timestamp(day) < %s ORDER BY begins",
            (interval.begin, interval.end),
        ).fetchall()
    return [day for (day,) in rows if isinstance(day, datetime)]


def describe_missing(settings: Settings, interval: RunInterval) -> str:
    """Why a run of this interval has nothing to do, and which days another run can take."""
    known = archived_days(settings, RunInterval(_EPOCH, datetime.now(UTC)))[-_LISTED:]
    if not known:
        return "the archive has no log day yet; the first one begins with the first archived record"
    first, last, *newest = (f"{day:%Y-%m-%d %H:%M:%S}" for day in (interval.begin, interval.end, *known))
    return f"no log day of the chosen event types begins from {first} to {last}; the newest days: {', '.join(newest)}"


def topics_behind(settings: Settings, until: datetime) -> list[str]:
    """The topics whose archive has not reached the log day that begins at `until`.

    Empty if all earlier days are closed.
    """
    archived = archived_positions(settings, event_registry.event_types(settings))
    with connect(settings) as connection:
        known = log_day.load_days(connection, archived.ids)
    number = log_day.day_of(until, settings.log_day_seconds)
    return [topic for topic in archived.offsets if known.begin(number, archived.only([topic])) is None]


def _requested(
    params: Mapping[str, Any], begins: datetime | None, now: datetime, day: timedelta
) -> tuple[datetime, datetime]:
    if text := params["day"]:
        moment = parse_moment(text)
        if len(text) == _DATE:
            return moment, moment + timedelta(days=1)
    elif params.get("open"):
        moment = now
    elif begins:
        return begins, begins + timedelta(days=1)
    else:
        also = ", or set `open` for the current log day" if "open" in params else ""
        raise BadInput(f"a manual run needs a day: set `day`{also}")
    begin = log_day.as_datetime(log_day.day_of(moment, int(day.total_seconds())))
    return begin, begin + day
