"""When a DAG by the clock runs: at its times from now on; one that has just gone is not for a new platform."""

from datetime import timedelta

from airflow.sdk import CronTriggerTimetable


def by_clock(cron: str) -> CronTriggerTimetable:
    """Needs a DAG without a start date. Airflow's default also runs a time up to a tenth of a period ago."""
    return CronTriggerTimetable(cron, timezone="UTC", run_immediately=timedelta(0))
