"""The days of DAGs about log days. Where these are short, a backfill may include today, as far as it has come.

Airflow leaves an interval that is not over out of a backfill. That is right where a log day takes the whole of it;
where log days are seconds, for a test or a demo, most of those of today are closed.
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
    """Days of the calendar; to a backfill, today ends a moment ago. It may be backfilled again, by reprocessing it."""

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """A backfill asks with `catchup`; the scheduler, of a DAG that does not catch up, without."""
        found = super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )
        if found is None or found.data_interval is None or not restriction.catchup:
            return found
        day, moment = found.data_interval, utcnow() - timedelta(seconds=1)
        return DagRunInfo.interval(day.start, moment) if day.start < moment < day.end else found


def log_days(settings: Settings) -> Any:
    """Daily, each run about the log days that begin in its interval."""
    kind = sdk.CronDataIntervalTimetable if settings.log_day_seconds >= 86_400 else DaysSoFar
    return kind("0 0 * * *", timezone="UTC")


class TimetablesPlugin(AirflowPlugin):
    """A timetable that is not Airflow's own has to be made known."""

    name = "truelog_timetables"
    timetables = [DaysSoFar]  # noqa: RUF012  the base class says so
