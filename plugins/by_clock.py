"""A cron timetable for DAGs that must not run immediately on a new platform."""

from datetime import timedelta

from airflow.sdk import CronTriggerTimetable


def by_clock(cron: str) -> CronTriggerTimetable:
    """Run at future times only. By default, Airflow also runs for a time that passed up to a tenth of a period ago.

    The DAG must have no start date.
    """
    return CronTriggerTimetable(cron, timezone="UTC", run_immediately=timedelta(0))
