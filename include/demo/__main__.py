"""`make demo`: starts the whole platform on this machine and shows it in operation, using the public commands.

1. Start everything. In a fresh home, a log day lasts a minute, so that some log days close during the demo.
2. Send 30 seconds of traffic. Kafka keeps it while Airflow starts the archive and the stream.
3. Wait until the views have read all events.
4. Show three views as readers see them (a cube, carts, a timeline), and each view's positions.
5. Recompute the closed log days with a backfill. Afterwards, Airflow proves that each view equals its rebuild.
6. Start the example shop, and show the addresses of the pages and how to sign in.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import LiteralString

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

import runtime
from demo import shop
from pages.files import TABS
from runtime.airflow_client import ENDED, Airflow, sign_in
from runtime.airflow_configuration import url
from runtime.home import add_missing
from truelog.apps.reader_positions import view_positions
from truelog.archive import reader as archive_reader
from truelog.cli.failure import explained
from truelog.control.view_tables import streamed_views
from truelog.log.positions import Positions
from truelog.log.topics import end_offsets
from truelog.reports import health
from truelog.schema.names import TICKS
from truelog.storage import db_snapshot
from truelog.support.errors import RunFailed, ServiceDown
from truelog.support.settings import Settings, default_home
from truelog.support.terminal import log_to_terminal
from truelog.support.wait import until
from truelog.traffic import generator

SHORT = {"TRUELOG_LOG_DAY_SECONDS": "60", "TRUELOG_ARCHIVE_TRIGGER_SECONDS": "5"}
RATE, SECONDS, SEED = 300, 30, 1
TOPICS = (*generator.TOPICS, TICKS)
PATIENCE = 900  # seconds for each wait; on two cores that do nothing else, none takes 200
TOP = """
    SELECT coalesce(host, '(no URL)'), page, sum(views)::bigint AS views, round(sum(bytes) / 1e6, 1)
    FROM views.page_views GROUP BY host, page ORDER BY views DESC, page LIMIT 12
"""
CARTS = "SELECT cart_id, products, items, changed_at FROM views.cart_open ORDER BY items DESC, cart_id LIMIT 5"
# The newest tweets for the reader with the longest timeline.
TIMELINE = """
    SELECT tweeted_at, coalesce(author, author_id) AS author, text FROM views.home_timeline_newest WHERE reader_id = (
        SELECT reader_id FROM views.home_timeline GROUP BY reader_id ORDER BY count(*) DESC, reader_id LIMIT 1
    ) ORDER BY tweeted_at DESC, tweet_id DESC LIMIT 5
"""

console = Console()


def main() -> None:
    log_to_terminal()
    began = time.monotonic()
    settings = _home()
    _run("up")  # 1
    _run("generate", "--rate", str(RATE), "--seconds", str(SECONDS), "--seed", str(SEED))  # 2
    ends = end_offsets(settings, generator.TOPICS)
    _wait("Airflow to start the applications", lambda: _require_running(settings))  # 3
    _wait("the views to catch up with the log", lambda: _require_caught_up(settings, ends))
    _show_cube(settings)  # 4
    _show("the fullest open carts (views.cart_open)", settings, CARTS)
    _show("what one reader sees of the people followed (views.home_timeline_newest)", settings, TIMELINE)
    _run("positions")
    _backfill(settings)  # 5
    _run("certificates")
    _run("status")  # 6
    address = shop.start(settings)
    _say("\n".join(["Pages to open:", *(f"  {url(settings)}/plugin/truelog/truelog/{page}" for page in TABS)]))
    _say(f"A shop to try (examples/shop), whose events are in the views about a second later:\n  {address}")
    _say(f"Done in {time.monotonic() - began:.0f} s. `make down` stops everything; `make demo` starts it again.")


def _home() -> Settings:
    home = default_home()
    with runtime.exclusive(home):
        runtime.set_up(home)
        if not (home / "kafka").exists():  # the day length of an existing log must not change
            add_missing(home, SHORT)
        shop.allow(home)
    return Settings(home=home)


def _say(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]", highlight=False)


def _run(*words: str) -> None:
    """Run a public command and show its output."""
    _say(f"$ truelog {' '.join(words)}")
    subprocess.run([Path(sys.executable).with_name("truelog"), *words], check=False)


def _wait(what: str, condition: Callable[[], None]) -> None:
    _say(f"waiting for {what}")
    console.print(f"after {until(condition, PATIENCE, what):.0f} s", highlight=False)


def _require_running(settings: Settings) -> None:
    waiting = [
        f"{each.application} is {each.state}" for each in health.application_health(settings) if each.batch_at is None
    ]
    if waiting:
        raise ServiceDown(", ".join(waiting))


def _require_caught_up(settings: Settings, ends: Positions) -> None:
    with db_snapshot.read_snapshot(settings) as connection:
        positions = view_positions(connection, streamed_views(settings, connection))
    behind = [
        view
        for view, at in positions.items()
        if not at.version or not at.positions.covers(ends.only(at.positions.offsets))
    ]
    if behind:
        raise ServiceDown(f"still behind: {', '.join(behind)}")


def _show_cube(settings: Settings) -> None:
    _say("views.page_views has one row per minute, host, page and browser; this table adds them up by page")
    with db_snapshot.read_snapshot(settings) as connection:
        rows = connection.execute(TOP).fetchall()
    most = max((int(str(row[2])) for row in rows), default=1)
    table = Table("host", "page", "views", "MB", "")
    for host, page, views, megabytes in rows:
        count = int(str(views))
        bar = ProgressBar(total=most, completed=count, width=30)
        table.add_row(str(host), str(page or ""), f"{count:,}", str(megabytes), bar)
    console.print(table)


def _show(what: str, settings: Settings, query: LiteralString) -> None:
    _say(what)
    with db_snapshot.read_snapshot(settings) as connection:
        found = connection.execute(query)
        table = Table(*(column.name for column in found.description or ()))
        for row in found.fetchall():
            table.add_row(*(f"{each:%H:%M:%S}" if isinstance(each, datetime) else str(each) for each in row))
    console.print(table)


def _backfill(settings: Settings) -> None:
    """Backfill through the Airflow REST API, as the button in the UI does. This triggers the `reconcile` DAG."""
    _wait("log days to close", lambda: _require_closed(settings))
    days = archive_reader.closed_days(settings, TOPICS)
    first, last = (datetime(day.year, day.month, day.day, tzinfo=UTC) for day in (days[0], days[-1]))
    _say(f"Airflow is backfilling `recompute` from {first:%Y-%m-%d} to {last:%Y-%m-%d}: {len(days)} closed log days")
    oncall, requested_at = sign_in(settings, "oncall"), datetime.now(UTC)
    oncall.wait_for_clock("recompute", PATIENCE)
    backfill = oncall.backfill("recompute", first, last, reprocess="completed")
    oncall.wait_for_backfill("recompute", backfill, runs=1 + (last - first) // timedelta(days=1), seconds=PATIENCE)
    _wait("`reconcile`, which the new partials trigger", lambda: _require_reconciled(oncall, requested_at))


def _require_closed(settings: Settings) -> None:
    if not archive_reader.closed_days(settings, TOPICS):
        raise ServiceDown("the archive has not reached the end of the first log day")


def _require_reconciled(oncall: Airflow, since: datetime) -> None:
    runs = [r for r in oncall.runs("reconcile") if datetime.fromisoformat(r["run_after"]) > since]
    ended = [run for run in runs if run["state"] in ENDED]
    if not ended:
        raise ServiceDown(f"its runs: {', '.join(run['state'] for run in runs) or 'none yet'}")
    if ended[0]["state"] == "failed":
        raise RunFailed(f"{ended[0]['dag_run_id']} failed: the run's page in Airflow shows the failed checks")
    console.print(f"{ended[0]['dag_run_id']}: every view equals its rebuild from the recomputed days", highlight=False)


if __name__ == "__main__":
    with explained():
        main()
