"""The timetable of DAGs that process log days. If log days are short, a backfill may include today up to now.

Airflow excludes from a backfill any interval that has not ended. That is right when a log day fills the interval. In a
test or a demo, however, a log day lasts seconds, and most of today's log days are already closed.
"""

from datetime import timedelta
from typing import Any

from airflow import sdk
from airflow.plugins_manager import AirflowPlugin
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.utils.timezone import utcnow

from truelog.support.settings import Settings


class DaysSoFar(CronDataIntervalTimetable):
    """Calendar days. In a backfill, today ends one second ago; reprocess today to include later log days."""

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Shorten today in a backfill. Only a backfill sets `catchup` here, because these DAGs do not catch up."""
        info = super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )
        if info is None or info.data_interval is None or not restriction.catchup:
            return info
        day, now = info.data_interval, utcnow() - timedelta(seconds=1)
        return DagRunInfo.interval(day.start, now) if day.start < now < day.end else info


def log_days(settings: Settings) -> Any:
    """A daily timetable; each run processes the log days that begin in its interval."""
    timetable = sdk.CronDataIntervalTimetable if settings.log_day_seconds >= 86_400 else DaysSoFar
    return timetable("0 0 * * *", timezone="UTC")


class TimetablesPlugin(AirflowPlugin):
    """Registers the timetable: Airflow deserializes a custom timetable only if a plugin lists it."""

    name = "truelog_timetables"
    timetables = [DaysSoFar]  # noqa: RUF012  the base class declares it so
