"""A run of `recompute` and what it has started, over HTTP: runs are made by Airflow, and no task of them ever runs."""

import json
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from runtime.airflow_client import Airflow
from runtime.airflow_configuration import own_database
from tests.pages.test_access import fetch
from truelog.database import connect
from truelog.settings import Settings

# As the scheduler does when a run's partials were announced.
STARTED = """
WITH told AS (
    INSERT INTO asset_event (asset_id, extra, source_task_id, source_dag_id, source_run_id, timestamp)
    SELECT id, '{}', 'announce', 'recompute', %(run)s, now() FROM asset WHERE name LIKE 'view\\_page%%' RETURNING id
)
INSERT INTO dagrun_asset_event (dag_run_id, event_id)
SELECT dag_run.id, told.id FROM dag_run, told WHERE dag_run.run_id = %(started)s
"""


@pytest.fixture(scope="module")
def airflows(planned: Settings) -> dict[str, Any]:
    """How to reach Airflow's own database, which tells what a scheduler would have done."""
    return own_database(planned).database()


def compared(client: Airflow, run: str) -> list[tuple[str, str]]:
    found = json.load(fetch(client, "GET", f"data/reconciliations?run={quote(run)}"))["reconciliations"]
    return [(each["run"], each["view"]) for each in found]


def test_a_run_is_told_with_the_comparisons_that_it_started(
    planned: Settings, users: dict[str, Airflow], airflows: dict[str, Any]
) -> None:
    run = users["oncall"].trigger("recompute", day="2026-11-20", repair=False)
    assert compared(users["analyst"], run) == []
    started = users["oncall"].trigger("reconcile")
    with psycopg.connect(**airflows) as connection:
        connection.execute(STARTED, {"run": run, "started": started})
    with connect(planned) as connection:
        connection.execute(
            "UPDATE truelog.reconciliation SET run = %s WHERE run = 'scheduled__31' AND view = 'page_views'", (started,)
        )
    assert compared(users["analyst"], run) == compared(users["analyst"], started) == [(started, "page_views")]
    saved = fetch(users["analyst"], "GET", f"export/reconciliations.csv?run={quote(run)}").read().decode()
    assert len(saved.splitlines()) == 2
