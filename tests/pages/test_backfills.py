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


FIRST, LAST = "2026-11-01", "2026-11-03"
CHOSEN = ["page_views", "click_through"]


def wanted(reprocess: str = "completed", **conf: Any) -> dict[str, Any]:
    """As the page asks Airflow for it."""
    days = {"from_date": f"{FIRST}T00:00:00Z", "to_date": f"{LAST}T00:00:00Z", "max_active_runs": 2}
    return days | {"dag_id": "recompute", "reprocess_behavior": reprocess, "dag_run_conf": conf}


def newest(client: Airflow) -> dict[str, Any]:
    found: dict[str, Any] = json.load(fetch(client, "GET", "data/backfills"))["backfills"][0]
    return found


def states(backfill: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(each["state"], list(each["views"].values())) for each in backfill["days"]]


@pytest.fixture(scope="module")
def asked(planned: Settings, users: dict[str, Airflow]) -> int:
    """A backfill of three days, which the scheduler never begins."""
    return int(users["oncall"].ask("POST", "/api/v2/backfills", wanted(views=CHOSEN, repair=False))["id"])


def test_who_backfills_is_airflows_to_say(planned: Settings, users: dict[str, Airflow], asked: int) -> None:
    may = {u: json.load(fetch(users[u], "GET", "data/backfills"))["may_backfill"] for u in ("analyst", "oncall")}
    assert may == {"analyst": False, "oncall": True}
    for act, path in (("POST", ""), ("POST", "/dry_run"), ("PUT", f"/{asked}/cancel")):
        assert users["analyst"].request(act, f"/api/v2/backfills{path}", wanted())[0] == 403
        assert users["nobody"].request(act, f"/api/v2/backfills{path}", wanted())[0] == 401
    assert users["oncall"].request("POST", "/api/v2/backfills", wanted())[0] == 409  # one is under way
    assert users["oncall"].request("POST", "/api/v2/backfills/dry_run", wanted(views=["nothing"]))[0] == 422


def test_a_backfill_is_told_by_days_and_views(users: dict[str, Airflow], airflows: dict[str, Any], asked: int) -> None:
    """The three days are done, under way and to come; of the second one, the first view is done."""
    found = newest(users["analyst"])
    told = [found[name] for name in ("id", "views", "repair", "by", "paused", "completed_at")]
    assert told == [asked, CHOSEN, False, "oncall", False, None]
    assert [each["day"][:10] for each in found["days"]] == [FIRST, "2026-11-02", LAST]
    assert states(found) == [("waiting", ["waiting", "waiting"])] * 3
    runs = [each["run"] for each in found["days"]]
    with psycopg.connect(**airflows) as connection:
        for run, state in zip(runs, ("success", "running"), strict=False):
            connection.execute("UPDATE dag_run SET state = %s WHERE run_id = %s", (state, run))
        job = "UPDATE task_instance SET state = %s, map_index = %s WHERE task_id = 'recompute' AND run_id = %s"
        connection.execute(job, ("skipped", -1, runs[0]))  # no log day began on it
        connection.execute(job, ("success", 0, runs[1]))
        connection.execute(STARTED, {"run": runs[0], "started": users["oncall"].trigger("reconcile")})
    found = newest(users["analyst"])
    assert states(found) == [
        ("done", ["no log day", "no log day"]),
        ("running", ["done", "waiting"]),
        ("waiting", ["waiting", "waiting"]),
    ]
    assert [each["compared"] for each in found["days"]] == [True, False, False]


def test_days_that_were_done_are_left_out_or_taken_over(users: dict[str, Airflow], asked: int) -> None:
    """What a cancelled backfill did not begin has failed; the next one of the same days may take what was done."""
    oncall = users["oncall"]
    oncall.ask("PUT", f"/api/v2/backfills/{asked}/cancel")
    assert [state for state, _ in states(newest(oncall))] == ["done", "running", "failed"]
    assert states(newest(oncall))[2] == ("failed", ["not done", "not done"])
    left = oncall.ask("POST", "/api/v2/backfills", wanted("none"))["id"]
    assert [state for state, _ in states(newest(oncall))] == ["was done", "under way", "was done"]
    oncall.ask("PUT", f"/api/v2/backfills/{left}/cancel")
    again = oncall.ask("POST", "/api/v2/backfills", wanted("failed"))["id"]
    found = json.load(fetch(oncall, "GET", "data/backfills"))["backfills"]
    assert [[state for state, _ in states(each)] for each in found] == [
        ["was done", "under way", "waiting"],
        ["was done", "under way", "was done"],
        ["done", "running", "taken over"],
    ]
    oncall.ask("PUT", f"/api/v2/backfills/{again}/cancel")
