"""Backfills as a user starts them, and what Airflow's scheduler and the jobs write about their runs."""

import json
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from runtime.airflow_client import Airflow
from runtime.airflow_configuration import own_database
from tests.builders.comparisons import a_reconciliation
from tests.pages.fetch import fetch
from truelog.batch.recomputation import Recomputation
from truelog.storage.database import connect
from truelog.support.settings import Settings

# What the scheduler writes after a run has announced its partials.
TRIGGERED = """
WITH announced AS (
    INSERT INTO asset_event (asset_id, extra, source_task_id, source_dag_id, source_run_id, timestamp)
    SELECT id, %(extra)s, 'announce', 'recompute', %(run)s, now()
    FROM asset WHERE name LIKE 'view\\_page%%' RETURNING id
)
INSERT INTO dagrun_asset_event (dag_run_id, event_id)
SELECT dag_run.id, announced.id FROM dag_run, announced WHERE dag_run.run_id = %(started)s
"""
FIRST, LAST = "2026-11-01", "2026-11-03"
DAYS = [datetime(2026, 11, 2, hour, tzinfo=UTC) for hour in (0, 12)]  # log days of the second calendar day


def wanted(reprocess: str = "completed", **conf: Any) -> dict[str, Any]:
    """The request body that the page sends to Airflow."""
    days = {"from_date": f"{FIRST}T00:00:00Z", "to_date": f"{LAST}T00:00:00Z", "max_active_runs": 2}
    return days | {"dag_id": "recompute", "reprocess_behavior": reprocess, "dag_run_conf": conf}


def newest(client: Airflow) -> dict[str, Any]:
    found: dict[str, Any] = json.load(fetch(client, "GET", "data/backfills"))["backfills"][0]
    return found


def store_result(settings: Settings, started: str, view: str) -> None:
    """Write a result as `reconcile` does, and end its run as the scheduler does."""
    store_verdict(settings, started, view)
    with psycopg.connect(**own_database(settings).database()) as connection:
        connection.execute(OVER, {"run": started})


def store_verdict(settings: Settings, started: str, view: str) -> None:
    """Write a result as `reconcile` does."""
    with connect(settings) as connection:
        a_reconciliation(connection, view, run=started, positions=Jsonb({"page_view": {"0": 1}}))


# The tasks of a finished run.
TASKS = """
UPDATE task_instance SET state = 'success', start_date = now(), try_number = try_number + 1
WHERE dag_id = 'recompute' AND run_id = %(run)s
"""
OVER = """
UPDATE dag_run SET state = 'success', start_date = coalesce(start_date, now()), end_date = now() WHERE run_id = %(run)s
"""
COMPLETE = "UPDATE backfill SET completed_at = now() WHERE completed_at IS NULL"
JOB = "SELECT id::text FROM task_instance WHERE task_id = 'recompute' AND run_id = %(run)s"
ANNOUNCEMENT = "SELECT id::text FROM task_instance WHERE task_id = 'announce' AND run_id = %(run)s"


def finish_attempt(airflow: dict[str, Any], settings: Settings, client: Airflow, run: str, view: str) -> str:
    """Finish the attempt, and return the `reconcile` run that the attempt triggers. That run has no result yet."""
    started = client.trigger("reconcile")
    with psycopg.connect(**airflow) as connection:
        connection.execute(TASKS, {"run": run})
        connection.execute(OVER, {"run": run})
        connection.execute(COMPLETE)
        [(attempt,)] = connection.execute(ANNOUNCEMENT, {"run": run}).fetchall()
        extra = Jsonb({"repair": True, "attempt": attempt})
        connection.execute(TRIGGERED, {"run": run, "started": started, "extra": extra})
    recomputation = progress_of(airflow, settings, run)
    recomputation.plan([view], [DAYS[0]])
    recomputation.finish(view, DAYS[0], 1)
    return started


def progress_of(airflow: dict[str, Any], settings: Settings, run: str) -> Recomputation:
    """The progress that the job's newest try records."""
    with psycopg.connect(**airflow) as connection:
        [(job,)] = connection.execute(JOB, {"run": run}).fetchall()
    return Recomputation(settings, job, run)
