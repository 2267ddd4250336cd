"""Tests of backfills and the comparisons that they trigger, over HTTP. Airflow creates the runs; no task runs."""

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.types.json import Jsonb

from runtime.airflow_client import Airflow
from tests.builders.comparisons import a_reconciliation
from tests.builders.log import a_log_day
from tests.pages.backfills import (
    ANNOUNCEMENT,
    DAYS,
    FIRST,
    LAST,
    TRIGGERED,
    finish_attempt,
    newest,
    progress_of,
    store_result,
    store_verdict,
    wanted,
)
from tests.pages.fetch import fetch
from truelog.batch.recomputation import Recomputation
from truelog.storage.database import connect
from truelog.support.settings import Settings


def compared(client: Airflow, run: str) -> list[tuple[str, str]]:
    found = json.load(fetch(client, "GET", f"data/reconciliations?run={quote(run, safe='&=')}"))["reconciliations"]
    return [(each["run"], each["view"]) for each in found]


def test_a_run_is_shown_with_the_comparisons_that_it_triggered(
    planned: Settings, users: dict[str, Airflow], airflows: dict[str, Any]
) -> None:
    run = users["oncall"].trigger("recompute", day="2026-11-20", repair=False)
    assert compared(users["analyst"], run) == []
    started = users["oncall"].trigger("reconcile")
    with psycopg.connect(**airflows) as connection:
        connection.execute(TRIGGERED, {"run": run, "started": started, "extra": Jsonb({})})
    with connect(planned) as connection:
        connection.execute(
            "UPDATE truelog.reconciliation SET run = %s WHERE run = 'scheduled__31' AND view = 'page_views'", (started,)
        )
    assert compared(users["analyst"], run) == compared(users["analyst"], started) == [(started, "page_views")]
    saved = fetch(users["analyst"], "GET", f"export/reconciliations.csv?run={quote(run)}").read().decode()
    assert len(saved.splitlines()) == 2


CHOSEN = ["page_views", "click_through"]


def states(backfill: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(each["state"], list(each["views"].values())) for each in backfill["days"]]


def reports(backfill: dict[str, Any]) -> list[tuple[str | None, bool]]:
    """Each day's comparison, and whether a comparison is still expected."""
    return [(each["report"], each["awaited"]) for each in backfill["days"]]


@pytest.fixture(scope="module")
def backfill(planned: Settings, users: dict[str, Airflow]) -> int:
    """A backfill of three days that the scheduler never starts."""
    return int(users["oncall"].ask("POST", "/api/v2/backfills", wanted(views=CHOSEN, repair=False))["id"])


def test_airflow_permissions_decide_backfills(planned: Settings, users: dict[str, Airflow], backfill: int) -> None:
    may = {u: json.load(fetch(users[u], "GET", "data/backfills"))["may_backfill"] for u in ("analyst", "oncall")}
    assert may == {"analyst": False, "oncall": True}
    for act, path in (("POST", ""), ("POST", "/dry_run"), ("PUT", f"/{backfill}/cancel")):
        assert users["analyst"].request(act, f"/api/v2/backfills{path}", wanted())[0] == 403
        assert users["anonymous"].request(act, f"/api/v2/backfills{path}", wanted())[0] == 401
    assert users["oncall"].request("POST", "/api/v2/backfills", wanted())[0] == 409  # a backfill is running
    assert users["oncall"].request("POST", "/api/v2/backfills/dry_run", wanted(views=["nothing"]))[0] == 422


def test_a_backfill_shows_the_state_of_each_day_and_view(
    planned: Settings, users: dict[str, Airflow], airflows: dict[str, Any], backfill: int
) -> None:
    """The first day is done. The second has done one view and a log day of another. The third is waiting."""
    found = newest(users["analyst"])
    fields = [found[name] for name in ("id", "views", "repair", "by", "paused", "completed_at")]
    assert fields == [backfill, CHOSEN, False, "oncall", False, None]
    assert [each["day"][:10] for each in found["days"]] == [FIRST, "2026-11-02", LAST]
    assert states(found) == [("waiting", ["waiting", "waiting"])] * 3
    runs = [each["run"] for each in found["days"]]
    with psycopg.connect(**airflows) as connection:
        for run, state in zip(runs, ("success", "running"), strict=False):
            connection.execute("UPDATE dag_run SET state = %s WHERE run_id = %s", (state, run))
        job = "UPDATE task_instance SET state = %s, start_date = now() WHERE task_id = 'recompute' AND run_id = %s"
        connection.execute(job, ("skipped", runs[0]))  # no log day began on this day
        connection.execute(job, ("running", runs[1]))
        started = users["oncall"].trigger("reconcile")
        connection.execute(
            TRIGGERED, {"run": runs[0], "started": started, "extra": Jsonb({})}
        )  # as an earlier release announced it
    recomputation = progress_of(airflows, planned, runs[1])
    recomputation.plan(CHOSEN, DAYS)
    for day in DAYS:
        recomputation.finish(CHOSEN[0], day, 1)
    found = newest(users["analyst"])
    assert states(found) == [
        ("done", ["no log day", "no log day"]),
        ("running", ["done", "waiting"]),
        ("waiting", ["waiting", "waiting"]),
    ]
    assert reports(found) == [(None, True)] * 3
    store_verdict(planned, started, "page_views")
    assert reports(newest(users["analyst"])) == [(None, True)] * 3  # the comparison has not ended
    store_result(planned, started, "page_views")
    assert reports(newest(users["analyst"])) == [(started, False), (None, True), (None, True)]


def test_the_log_days_of_a_calendar_day_are_counted(
    planned: Settings, users: dict[str, Airflow], airflows: dict[str, Any], backfill: int
) -> None:
    """The second day of the test before goes on."""
    recomputation = progress_of(airflows, planned, newest(users["analyst"])["days"][1]["run"])
    recomputation.finish(CHOSEN[1], DAYS[0], 1)
    found = newest(users["analyst"])
    assert states(found)[1] == ("running", ["done", "running"])
    done = {CHOSEN[0]: [2, 2], CHOSEN[1]: [1, 2]}
    assert [day["progress"] for day in found["days"]] == [{}, done, {}]
    progress = found["progress"]
    assert (progress["done"], progress["of"], progress["share"]) == (3, 6, pytest.approx(3.5 / 6))
    assert progress["seconds_left"] is None  # no job has ended
    job = "UPDATE task_instance SET state = 'success', duration = 120, end_date = now() WHERE id = %s"
    with psycopg.connect(**airflows) as connection:
        connection.execute(job, (recomputation.attempt,))
    assert newest(users["analyst"])["progress"]["seconds_left"] == 2 * 30  # two are left, and four took 120 s
    with psycopg.connect(**airflows) as connection:
        connection.execute("UPDATE task_instance SET state = 'running' WHERE id = %s", (recomputation.attempt,))
    recomputation.refuse(CHOSEN[1])
    assert states(newest(users["analyst"]))[1] == ("running", ["done", "failed"])


def test_a_waiting_day_names_what_it_waits_for(
    users: dict[str, Airflow], airflows: dict[str, Any], backfill: int
) -> None:
    """The job of the second day has the only slot of the pool."""
    _, second, third = (each["run"] for each in newest(users["analyst"])["days"])

    def waits() -> list[Any]:
        return [each["waits"] for each in newest(users["analyst"])["days"]]

    holder = {"dag": "recompute", "run": second, "by": "oncall"}
    assert waits() == [None, None, {"reason": "until another run of its DAG ends", **holder}]
    begin = "UPDATE dag_run SET state = %s WHERE run_id = %s"
    queue = "UPDATE task_instance SET state = %s WHERE task_id = 'recompute' AND run_id = %s"
    with psycopg.connect(**airflows) as connection:
        connection.execute(begin, ("running", third))
        connection.execute(queue, ("scheduled", third))
    assert waits() == [None, None, {"reason": "for a slot of the pool recompute", **holder}]
    with psycopg.connect(**airflows) as connection:
        connection.execute(queue, ("queued", second))  # a queued task has its slot
    assert waits() == [None, None, {"reason": "for a slot of the pool recompute", **holder}]
    with psycopg.connect(**airflows) as connection:
        connection.execute(queue, ("running", second))
        connection.execute("UPDATE slot_pool SET slots = 2 WHERE pool = 'recompute'")
    assert waits() == [None, None, None]
    with psycopg.connect(**airflows) as connection:
        connection.execute("UPDATE slot_pool SET slots = 1 WHERE pool = 'recompute'")
        connection.execute(queue, (None, third))
        connection.execute(begin, ("queued", third))


def test_comparisons_name_the_person_who_started_them(planned: Settings, users: dict[str, Airflow]) -> None:
    started = users["oncall"].trigger("reconcile")
    store_verdict(planned, started, "page_views")
    path = f"data/reconciliations?run={quote(started, safe='')}"
    found = json.load(fetch(users["analyst"], "GET", path))
    assert found["starters"] == {started: {"kind": "manual", "by": "oncall"}}
    assert [(each["by"], each["waits"]) for each in found["runs"]] == [("oncall", None)]


def test_finished_days_are_skipped_or_repeated(users: dict[str, Airflow], backfill: int) -> None:
    """Days that a cancelled backfill did not start have failed, even after the next backfill takes them over."""
    oncall = users["oncall"]
    oncall.ask("PUT", f"/api/v2/backfills/{backfill}/cancel")
    assert [state for state, _ in states(newest(oncall))] == ["done", "running", "failed"]
    assert states(newest(oncall))[2] == ("failed", ["not run", "not run"])
    left = oncall.ask("POST", "/api/v2/backfills", wanted("none"))["id"]
    assert [state for state, _ in states(newest(oncall))] == ["already done", "already running", "already done"]
    oncall.ask("PUT", f"/api/v2/backfills/{left}/cancel")
    again = oncall.ask("POST", "/api/v2/backfills", wanted("failed"))["id"]
    found = json.load(fetch(oncall, "GET", "data/backfills"))["backfills"]
    assert [[state for state, _ in states(each)] for each in found] == [
        ["already done", "already running", "waiting"],
        ["already done", "already running", "already done"],
        ["done", "running", "failed"],
    ]
    assert states(found[2])[2] == ("failed", ["not run", "not run"])
    oncall.ask("PUT", f"/api/v2/backfills/{again}/cancel")


def test_backfills_are_listed_in_pages(users: dict[str, Airflow], backfill: int) -> None:
    every = json.load(fetch(users["analyst"], "GET", "data/backfills"))
    rest = json.load(fetch(users["analyst"], "GET", "data/backfills?skip=1"))
    assert every["total"] == rest["total"] >= 3
    assert [each["id"] for each in every["backfills"]][1:3] == [each["id"] for each in rest["backfills"]][:2]


def test_the_grid_shows_what_followed_each_recompute(planned: Settings, users: dict[str, Airflow]) -> None:
    """In a month without other backfills: a day that was compared after its recompute, and days that were not."""
    days = {name: datetime(2026, 9, number, tzinfo=UTC) for number, name in enumerate(("old", "new", "half"), 1)}
    for name in ("old", "new", "half"):
        recomputation = Recomputation.by_hand(planned)
        recomputation.plan(["page_audience"], [days[name], days[name].replace(hour=12)])
        recomputation.finish("page_audience", days[name], 1)
        if name != "half":
            recomputation.finish("page_audience", days[name].replace(hour=12), 1)
        if name == "old":
            store_verdict(planned, "manual__grid", "page_audience")
    with connect(planned, autocommit=True) as connection:
        for hour in (0, 12):
            a_log_day(connection, "page_view", days["new"].timestamp() + hour * 3600, topic_id="grid")
    found = json.load(fetch(users["analyst"], "GET", "data/partials?since=2026-08-31&until=2026-09-05"))
    states = {(each["view"], each["day"]): each["state"] for each in found["days"]}
    assert states == {
        ("page_audience", "2026-09-01"): "EQUAL",
        ("page_audience", "2026-09-02"): "RECOMPUTED",
        ("page_audience", "2026-09-03"): "UNFINISHED",
    }
    assert found["log_days"] == ["2026-09-02"]
    assert "adds up the partials" in found["costs"]["page_audience"]
    assert "broken" not in found["costs"]
    assert fetch(users["analyst"], "GET", "data/partials?since=2026-01-01&until=2026-12-31").status == 400


def test_a_day_that_changed_after_its_comparison_is_told_apart(planned: Settings, users: dict[str, Airflow]) -> None:
    day = datetime(2026, 8, 1, tzinfo=UTC)
    recomputation = Recomputation.by_hand(planned)
    for view in ("page_audience", "click_through"):
        recomputation.plan([view], [day])
        recomputation.finish(view, day, 1)
    with connect(planned, autocommit=True) as connection:
        for view, verdicts in (
            ("page_audience", ("EQUAL", "DIFFERENT")),
            ("click_through", ("DIFFERENT", "DIFFERENT")),
        ):
            for verdict in verdicts:
                a_reconciliation(connection, view, verdict, positions=Jsonb({"page_view": {"0": 1}}))
    found = json.load(fetch(users["analyst"], "GET", "data/partials?since=2026-08-01&until=2026-08-01"))
    assert {each["view"]: each["state"] for each in found["days"]} == {
        "page_audience": "CHANGED",
        "click_through": "DIFFERENT",
    }


DAY = "2026-10-20"


def backfill_one_day(client: Airflow, *views: str) -> str:
    """Start a backfill of the named views, by default all, and return its run. No task has started."""
    conf: dict[str, Any] = {"views": views} if views else {}
    body = wanted(**conf) | {"from_date": f"{DAY}T00:00:00Z", "to_date": f"{DAY}T00:00:00Z"}
    client.ask("POST", "/api/v2/backfills", body)
    return str(newest(client)["days"][0]["run"])


def newest_two(client: Airflow) -> tuple[dict[str, Any], dict[str, Any]]:
    second, first, *_ = json.load(fetch(client, "GET", "data/backfills"))["backfills"]
    return first, second


def test_two_backfills_of_a_day_show_their_own_results(
    planned: Settings, users: dict[str, Airflow], airflows: dict[str, Any]
) -> None:
    """Airflow repeats the same run. In the second backfill, another view takes the first view's map index."""
    oncall = users["oncall"]
    run = backfill_one_day(oncall, "page_views")
    first_comparison = finish_attempt(airflows, planned, oncall, run, "page_views")
    store_result(planned, first_comparison, "page_views")
    assert (states(newest(oncall)), reports(newest(oncall))) == ([("done", ["done"])], [(first_comparison, False)])

    assert backfill_one_day(oncall, "click_through") == run
    first, second = newest_two(oncall)
    assert (first["views"], states(first)) == (["page_views"], [("done", ["done"])])
    assert reports(first) == [(first_comparison, False)]
    assert (second["views"], states(second)) == (["click_through"], [("waiting", ["waiting"])])
    assert reports(second) == [(None, True)]

    second_comparison = finish_attempt(airflows, planned, oncall, run, "click_through")
    assert [reports(each) for each in newest_two(oncall)] == [[(first_comparison, False)], [(None, True)]]
    store_result(planned, second_comparison, "click_through")
    first, second = newest_two(oncall)
    assert [reports(each) for each in (first, second)] == [[(first_comparison, False)], [(second_comparison, False)]]
    assert [states(each) for each in (first, second)] == [[("done", ["done"])]] * 2
    assert compared(oncall, first_comparison) == [(first_comparison, "page_views")]


# No job has a try, so `wait` or `plan` decides the state of all jobs.
UNDECIDED = """
UPDATE task_instance SET state = %(rest)s WHERE run_id = %(run)s;
UPDATE task_instance SET state = %(state)s, start_date = now(), try_number = try_number + 1
WHERE run_id = %(run)s AND task_id = ANY(%(tasks)s);
UPDATE dag_run SET state = %(ends)s WHERE run_id = %(run)s;
UPDATE backfill SET completed_at = now() WHERE completed_at IS NULL;
"""
NO_LOG_DAY = {"rest": "skipped", "state": "success", "tasks": ["wait", "plan"], "ends": "success"}
NOT_CLOSED = {"rest": "upstream_failed", "state": "failed", "tasks": ["wait"], "ends": "failed"}


def test_a_job_belongs_to_the_view_of_its_own_attempt(
    planned: Settings, users: dict[str, Airflow], airflows: dict[str, Any]
) -> None:
    """A job that an attempt never starts keeps the previous start, and Airflow drops the job's state."""
    oncall = users["oncall"]
    run = backfill_one_day(oncall)
    finish_attempt(airflows, planned, oncall, run, "request_rates")
    expected = [("done", {"request_rates": "done"})]
    for ends, state, view in (
        (NOT_CLOSED, "failed", "failed"),
        (NO_LOG_DAY, "done", "no log day"),
        (NO_LOG_DAY, "done", "no log day"),
    ):
        assert backfill_one_day(oncall, "page_views", "click_through") == run
        with psycopg.connect(**airflows, cursor_factory=psycopg.ClientCursor) as connection:
            connection.execute(UNDECIDED, ends | {"run": run})
        expected.insert(0, (state, {"page_views": view, "click_through": view}))
        assert outcomes(oncall, len(expected)) == expected
    assert backfill_one_day(oncall, "page_audience") == run
    oncall.ask("PUT", f"/api/v2/backfills/{newest(oncall)['id']}/cancel")
    expected.insert(0, ("failed", {"page_audience": "not run"}))
    assert outcomes(oncall, 5) == expected
    assert backfill_one_day(oncall, "page_views") == run
    assert outcomes(oncall, 5) == [("waiting", {"page_views": "waiting"}), *expected[:4]]
    oncall.ask("PUT", f"/api/v2/backfills/{newest(oncall)['id']}/cancel")


def outcomes(client: Airflow, count: int) -> list[tuple[str, dict[str, str]]]:
    """The states of the newest backfills' days, with their views."""
    found = json.load(fetch(client, "GET", "data/backfills"))["backfills"][:count]
    return [(day["state"], day["views"]) for each in found for day in each["days"]]


def test_the_link_of_an_attempt_shows_only_its_own_comparisons(
    planned: Settings, users: dict[str, Airflow], airflows: dict[str, Any]
) -> None:
    oncall, attempts = users["oncall"], {}
    for view in ("page_views", "click_through"):
        run = backfill_one_day(oncall, view)
        with psycopg.connect(**airflows) as connection:
            [(attempt,)] = connection.execute(ANNOUNCEMENT, {"run": run}).fetchall()
        started = finish_attempt(airflows, planned, oncall, run, view)
        store_result(planned, started, view)
        attempts[attempt] = [(started, view)]
    for attempt, own in attempts.items():
        assert compared(oncall, f"{run}&attempt={attempt}") == own
        saved = fetch(oncall, "GET", f"export/reconciliations.csv?run={quote(run)}&attempt={attempt}").read().decode()
        assert len(saved.splitlines()) == 2
