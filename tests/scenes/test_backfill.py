"""History recomputed by an Airflow backfill, which compares and repairs views that differ from the log."""

import json
import logging
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from pydantic import SecretStr

from tests.beds.world import World, known
from tests.chosen_views import copy_views
from tests.deadline import until
from tests.library.services.api.asking import asking
from tests.scenes.airflow_client import Airflow, orchestrated, sign_in
from tests.scenes.applications import start
from tests.scenes.marked import VIEW, marked, p99
from tests.scenes.traffic import messages_in_the_log, valid_event
from tests.servers import AIRFLOW, Environment
from tests.speed import record_speed
from truelog.archive import analyst
from truelog.archive import reader as archive_reader
from truelog.archive.audit_evidence import run_audit
from truelog.archive.table import archived_positions, open_catalog
from truelog.batch.recomputation import DayState
from truelog.log import topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.schema.loading.events import load_events
from truelog.services.ticks import service as ticks
from truelog.support import timestamps
from truelog.support.errors import ServiceDown
from truelog.support.settings import PROJECT, Settings
from truelog.views import catalogue

pytestmark = pytest.mark.nightly

log = logging.getLogger("truelog.scene")

CHOSEN = ("page_audience", "page_views")
BATCH_ONLY = "also_bought"
# The backfill recomputes each log day that has closed by then. So short days would mean more work on a slow machine.
DAYS, DAY_SECONDS = 2, 20
BACKFILLED = "page_views"
COMPARE = {"views": [BACKFILLED], "repair": False}
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
FIRST, LAST = MIDNIGHT - timedelta(days=1), MIDNIGHT


@pytest.fixture(scope="module")
def short(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Short log days, three views and the batch layer's DAGs. Airflow does not run the applications here."""
    views, dags = tmp_path_factory.mktemp("views"), tmp_path_factory.mktemp("dags")
    copy_views(views, *CHOSEN, BATCH_ONLY)
    for dag in ("recompute", "reconcile", "quality", "archive", "batch_views", "past"):
        shutil.copy(PROJECT / "dags" / f"{dag}.py", dags)
    _remove_schedule(dags / "reconcile.py")
    pace = {"tick_seconds": 2, "archive_trigger_seconds": 5.0, "api_past_rows": 100_000}
    with known(world.settings, log_day_seconds=DAY_SECONDS, views_folder=views, **pace) as settings:
        yield settings.model_copy(update={"dags_folder": dags})


def _remove_schedule(dag: Path) -> None:
    """Keep the DAG from running on the hour, when it would repair rows that a scene has planted."""
    hourly = 'by_clock("0 * * * *")'
    assert hourly in dag.read_text()
    dag.write_text(dag.read_text().replace(hourly, 'by_clock("0 0 29 2 *")'))


@pytest.fixture(scope="module")
def history(world: World, short: Settings) -> Iterator[datetime]:
    """Run the archive and the stream while log days close. The value is the time of their start."""
    began = datetime.now(UTC)
    running = [start(short, "archive.py"), start(short, str(Path(ticks.__file__))), start(short, "stream.py")]
    for each in running:
        each.kept = True
    yield began
    for each in running:
        each.die()


@pytest.fixture(scope="module")
def oncall(world: World, environment: Environment, history: datetime, short: Settings) -> Iterator[Airflow]:
    """The on-call user, signed in to Airflow on a platform with some closed days that have traffic."""
    environment.provide(AIRFLOW)
    with orchestrated(short) as settings:
        signed_in = sign_in(settings, "oncall")

        def closed() -> None:
            world.traffic.send(100)
            days = [day for day in archive_reader.closed_days(short, ["page_view"]) if day > history]
            if len(days) < DAYS:
                raise ServiceDown(f"closed days: {days}")

        def caught_up() -> None:
            if not all(world.caught_up(view) for view in CHOSEN):
                raise ServiceDown(f"positions of the views: {[world.positions(view) for view in CHOSEN]}")

        until(closed, 120, "closed log days")
        until(caught_up, 60, "the views at the end of the log")
        for dag in ("recompute", "reconcile", "quality", "archive_upkeep", "batch_views", "past"):
            signed_in.wait_for_dag(dag)
        signed_in.wait_for_clock("recompute")
        yield signed_in


def jobs(settings: Settings, script: str) -> list[psutil.Process]:
    """The processes of a Spark job: the JVM of spark-submit, and its Python process."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(word.endswith(f"spark_apps/{script}") for word in process.cmdline()):
                found.append((process.environ().get("TRUELOG_HOME"), process))
        except psutil.Error:
            continue
    return [process for home, process in found if home == str(settings.home)]


def running(settings: Settings, script: str) -> list[dict[str, Any]]:
    """The command lines and environments of both processes of a job, once the job is running."""
    seen: dict[str, dict[str, Any]] = {}

    def both() -> None:
        for process in jobs(settings, script):
            try:
                seen[process.name()] = process.as_dict(["cmdline", "environ"])
            except psutil.Error:
                continue
        if len(seen) < 2:
            raise ServiceDown(f"found only {list(seen)}")

    until(both, 150, f"both processes of {script}")
    return list(seen.values())


def partial_days(settings: Settings, view: str) -> set[datetime]:
    with open_catalog(settings) as catalog:
        table = catalog.load_table(f"partials.{view}_v2")
        headers = table.scan("covers IS NOT NULL", selected_fields=("log_day",)).to_arrow()
    return set(headers["log_day"].to_pylist())


def started_by_assets(oncall: Airflow, since: datetime) -> dict[str, Any]:
    """The newest comparison that new partials have started."""
    found: list[dict[str, Any]] = []

    def started() -> None:
        runs = oncall.runs("reconcile")
        triggered = [run for run in runs if run["run_type"] == "asset_triggered"]
        found[:] = [run for run in triggered if datetime.fromisoformat(run["run_after"]) > since]
        if not found:
            raise ServiceDown(f"runs: {[(run['run_type'], run['run_after']) for run in runs]}")

    until(started, 60, "a comparison started by assets")
    return found[0]


def outcomes(world: World, run: str) -> dict[str, tuple[Any, ...]]:
    """The verdict, counts and validation of each view."""
    rows = world.ask(
        "SELECT view, verdict, different, repaired, success, failed FROM truelog.reconciliation AS r "
        "JOIN truelog.validation AS v ON v.reconciliation = r.id WHERE r.run = %s",
        run,
    )
    return {view: tuple(rest) for view, *rest in rows}


def plant(world: World) -> tuple[Any, ...]:
    """Change a row so that it contradicts the log, and return the row's key and its wrong number."""
    [row] = world.ask(
        "UPDATE state.page_views_v2 SET views = views + 1000 WHERE ctid = "
        "(SELECT ctid FROM state.page_views_v2 ORDER BY minute, host, page, browser LIMIT 1) "
        "RETURNING minute, host, page, browser, views"
    )
    return row


def is_planted(world: World, row: tuple[Any, ...]) -> bool:
    same = " AND ".join(f"{column} IS NOT DISTINCT FROM %s" for column in ("minute", "host", "page", "browser"))
    query = f"SELECT views >= %s FROM state.page_views_v2 WHERE {same}"
    *key, views = row
    [(is_there,)] = world.ask(query, views, *key)
    return bool(is_there)


def report_of(oncall: Airflow, run: str) -> set[tuple[str, str]]:
    """The comparisons on the page that the last task's link opens."""
    links = oncall.ask("GET", f"/api/v2/dags/recompute/dagRuns/{quote(run)}/taskInstances/announce/links")
    page = links["extra_links"]["Report"].removeprefix("/plugin/truelog")
    found = oncall.ask("GET", page.replace("/truelog/", "/truelog/data/"))["reconciliations"]
    return {(each["run"], each["view"]) for each in found}


def test_a_backfill_ends_with_views_equal_to_the_log(
    world: World, oncall: Airflow, short: Settings, history: datetime
) -> None:
    """The first of two calendar days is before the log began. Meanwhile, the stream counts events as they arrive."""
    began = datetime.now(UTC)
    with world.traffic.arriving(20, 0.1), marked(short) as marks:
        backfill = oncall.backfill("recompute", FIRST, LAST, reprocess="completed", conf=COMPARE)
        found, started = running(short, "recompute.py"), time.time()
        runs = oncall.wait_for_backfill("recompute", backfill, runs=2)
        ended = time.time()
    record_speed("p99 of the stream's freshness during a backfill", p99(marks))
    assert sum(started < marks.acknowledged[host] and at < ended for host, at in marks.shown[VIEW].items()) > 0

    secrets = [value.get_secret_value() for _, value in short if isinstance(value, SecretStr)]
    for environment in (process["environ"] for process in found):
        assert environment["TRUELOG_HOME"] == str(short.home)
        assert [name for name in environment if "AIRFLOW" in name.upper()] == []
        assert [secret for secret in secrets if secret and secret in environment.values()] == []

    today = next(run for run in runs if datetime.fromisoformat(run["logical_date"]) == MIDNIGHT)
    [job] = [task for task in oncall.tasks("recompute", today["dag_run_id"]) if task["task_id"] == "recompute"]
    closed = {day for day in archive_reader.closed_days(short, ["page_view"]) if MIDNIGHT <= day < began}
    assert len(closed) >= DAYS
    assert closed <= partial_days(short, BACKFILLED)
    recorded = world.ask("SELECT view, day, state FROM truelog.recomputation WHERE attempt = %s", job["id"])
    assert {(view, state) for view, _, state in recorded} == {(BACKFILLED, DayState.DONE)}
    assert closed <= {day for _, day, _ in recorded}

    compared = started_by_assets(oncall, since=began)
    for process in running(short, "reconcile.py"):
        assert process["cmdline"][-3:] == ["--exclude-from-repair", BACKFILLED, BACKFILLED]
    oncall.wait_for_run("reconcile", compared["dag_run_id"])
    assert outcomes(world, compared["dag_run_id"]) == {BACKFILLED: ("EQUAL", 0, 0, True, [])}
    assert report_of(oncall, today["dag_run_id"]) == {(compared["dag_run_id"], BACKFILLED)}


def test_a_row_that_differs_from_the_log_fails_the_run(world: World, oncall: Airflow) -> None:
    row = plant(world)
    run = oncall.trigger("reconcile", views=["page_views"], repair=False)
    oncall.wait_for_run("reconcile", run, "failed")
    states = {task["task_id"]: task["state"] for task in oncall.tasks("reconcile", run)}
    assert states == {"choose": "success", "compare": "success", "validate": "failed", "done": "upstream_failed"}
    failed = ["the streamed table equals its rebuild", "no row differs", "its table of differences is empty"]
    assert outcomes(world, run) == {"page_views": ("DIFFERENT", 1, 0, False, failed)}
    assert is_planted(world, row)


def test_a_day_recomputed_by_hand_leads_to_a_repair(
    world: World, oncall: Airflow, short: Settings, history: datetime
) -> None:
    """New partials start a comparison of the view, and the row that differs is replaced while events arrive."""
    plant(world)  # the row of the test before, if that has run
    began = datetime.now(UTC)
    [(before,)] = world.ask("SELECT count(*) FROM truelog.repair")
    day = max(day for day in archive_reader.closed_days(short, ["page_view"]) if history < day < began)
    run = oncall.trigger("recompute", day=f"{day:%Y-%m-%d %H:%M:%S}", views=["page_views"])
    world.traffic.send(500)
    oncall.wait_for_run("recompute", run)
    made = world.ask("SELECT view, day, state FROM truelog.recomputation WHERE run = %s", run)
    assert made == [("page_views", day, DayState.DONE)]

    compared = started_by_assets(oncall, since=began)
    oncall.wait_for_run("reconcile", compared["dag_run_id"])
    repaired = world.ask("SELECT key, positions, before, after FROM truelog.repair OFFSET %s LIMIT 20", before)
    assert outcomes(world, compared["dag_run_id"]) == {"page_views": ("EQUAL", 0, 1, True, [])}, repaired
    assert world.ask("SELECT count(*) FROM truelog.repair") == [(before + 1,)]


def test_a_log_day_of_each_event_type_is_validated(
    world: World, oncall: Airflow, short: Settings, history: datetime
) -> None:
    """The page views have no referrer, but their declaration limits the share of missing referrers."""
    closed = [f"'{day}'" for day in archive_reader.closed_days(short, ["page_view"]) if day > history]
    query = f"SELECT log_day, count(*) FROM page_view WHERE invalid IS NULL AND log_day IN ({', '.join(closed)}) "
    with analyst.run_query(short, query + "GROUP BY log_day ORDER BY 2 DESC") as rows:
        day, counted = rows.fetchall()[0]
    run = oncall.trigger("quality", day=f"{day:%Y-%m-%d %H:%M:%S}")
    oncall.wait_for_run("quality", run, "failed")
    verdicts = [task for task in oncall.tasks("quality", run) if task["task_id"] == "verdict"]
    states = {task["rendered_map_index"]: task["state"] for task in verdicts}
    links = oncall.ask("GET", f"/api/v2/dags/quality/dagRuns/{quote(run)}/taskInstances/verdict/links?map_index=0")
    assert links["extra_links"]["Data Docs"].startswith("/plugin/truelog/truelog/data-docs?run=")
    assert set(links["extra_links"]) == {"Report", "Data Docs"}
    assert (states["page_view"], states["ticks"]) == ("failed", "success")
    validated = world.ask(
        "SELECT failed FROM truelog.validation WHERE (run, event, day) = (%s, 'page_view', %s)", run, day
    )
    assert "missing referrer 100 %: at most 90 %" in validated[0][0]
    found = world.ask("SELECT value FROM truelog.figure WHERE (event, name, day) = ('page_view', 'events', %s)", day)
    assert found == [(counted,)]


def buy(settings: Settings, customer: str, *products: str) -> None:
    """Check out a cart with these products, and wait until the archive contains its events."""
    common: dict[str, Any] = {
        "cart_id": f"cart of {customer}",
        "visitor_id": customer,
        "occurred_at": "2026-03-01T10:00:00Z",
    }
    events = [common | {"verb": "added", "product": each, "quantity": 1} for each in products]
    with KafkaSender(settings, ["cart_event"]) as sender:
        for number, event in enumerate([*events, common | {"verb": "checked_out"}]):
            value = json.dumps(event | {"event_id": f"{customer} {number}"}).encode()
            sender.send(OutgoingRecord("cart_event", common["cart_id"], value))
    ends = topics.end_offsets(settings, ["cart_event"])

    def archived() -> None:
        if not archived_positions(settings, ["cart_event"]).covers(ends):
            raise ServiceDown("the archive has not reached the carts")

    until(archived, 60, "the carts in the archive")


PAIRS = "SELECT customers FROM views.also_bought WHERE product = 'lamp' AND also = 'rug'"


def test_a_batch_only_view_is_built(world: World, oncall: Airflow, short: Settings) -> None:
    """No stream runs it."""
    buy(short, "ann", "lamp", "rug")
    world.poll_archive()
    oncall.wait_for_run("batch_views", oncall.trigger("batch_views"))
    assert world.ask(PAIRS) == [(1,)]
    serving = "SELECT layer, age < 600, reason LIKE 'batch-only, built at %%' FROM truelog.answer WHERE view = %s"
    assert world.ask(serving, BATCH_ONLY) == [("batch", True, True)]
    assert world.ask("SELECT FROM truelog.position WHERE view = %s", BATCH_ONLY) == []


def test_a_batch_only_view_is_proved_from_the_raw_log(world: World, oncall: Airflow, short: Settings) -> None:
    """The hand-made error is found at the positions of the build, and the view is built again."""
    buy(short, "cid", "lamp", "rug")
    world.poll_archive()
    oncall.wait_for_run("batch_views", oncall.trigger("batch_views"))
    [(built,)] = world.ask(PAIRS)
    buy(short, "bob", "lamp", "rug", "vase")
    assert world.ask(PAIRS) == [(built,)]
    table = f"batch.{BATCH_ONLY}_v{catalogue.load_view(BATCH_ONLY).version}"
    world.ask(f"UPDATE {table} SET customers = 7 WHERE product = 'lamp' AND also = 'rug' RETURNING 1")
    run = oncall.trigger("reconcile", views=[BATCH_ONLY], from_raw=True, repair=True)
    oncall.wait_for_run("reconcile", run)
    assert outcomes(world, run)[BATCH_ONLY][:3] == ("EQUAL", 0, 1)  # one row, although the log has another buyer
    assert world.ask(PAIRS) == [(built + 1,)]


def test_an_application_reads_the_past_over_http(oncall: Airflow, short: Settings) -> None:
    """The task of the DAG waits until it asks. All valid page views below the answer's positions are counted."""
    past = {"as_of": timestamps.to_text(datetime.now(UTC)), "limit": "1000"}
    ends = topics.end_offsets(short, ["page_view", "ticks"])

    def archived() -> None:
        """The archive contains a tick later than the time, and all records before it."""
        found = archived_positions(short, ["page_view", "ticks"])
        if not found.covers(ends) or found.at("ticks", 0) <= ends.at("ticks", 0):
            raise ServiceDown(f"the archive is at {found.as_json()}")

    until(archived, 60, "the archive behind the time")
    with asking(short) as api:

        def rebuilt() -> None:
            answer = api.get("/views/page_views/rows", **past)
            if answer.status_code == 202:
                raise ServiceDown(answer.text)

        until(rebuilt, 240, "the rows of the past")
        found = api.get("/views/page_views/rows", **past).json()
        rows, following = found["rows"], found["next"]
        while following:  # more rows than a page has, if the tests before took long
            page = api.get("/views/page_views/rows", **past, cursor=following).json()
            rows, following = rows + page["rows"], page["next"]
    positions, page_view = found["positions"]["page_view"], load_events()["page_view"]
    logged = messages_in_the_log(short, "page_view")
    logged = [each for each in logged if (each.offset() or 0) < positions[str(each.partition())]]
    counted = sum(valid_event(page_view, each.value()) is not None for each in logged)
    assert (found["layer"], sum(row["views"] for row in rows)) == ("batch", counted)
    assert counted > 0


def test_upkeep_leaves_the_archive_sound(oncall: Airflow, short: Settings) -> None:
    """The archive is running at the same time."""
    run = oncall.trigger("archive_upkeep", deep=True)
    oncall.wait_for_run("archive_upkeep", run)
    found = run_audit(short)
    assert (found.verdict, found.faults) == ("SOUND", ())
    assert found.records("page_view") > 0


@pytest.mark.parametrize("conf", [{"day": "yesterday"}, {"views": ["nothing"]}, {"open": "perhaps"}])
def test_invalid_parameters_are_rejected(oncall: Airflow, conf: dict[str, Any]) -> None:
    body = {"logical_date": None, "conf": conf}
    assert oncall.request("POST", "/api/v2/dags/recompute/dagRuns", body)[0] == 400
