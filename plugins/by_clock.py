"""The cron timetable of a DAG that must not run at once on a new platform."""

from datetime import timedelta

from airflow.sdk import CronTriggerTimetable


def by_clock(cron: str) -> CronTriggerTimetable:
    """Runs at future times only. Airflow's default would also run a time that passed up to a tenth of a period ago.

    The DAG must have no start date.
    """
    return CronTriggerTimetable(cron, timezone="UTC", run_immediately=timedelta(0))
