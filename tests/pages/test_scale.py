"""What each data answer reads on a large platform: 50 views, 200 partitions, 10,000 reconciliations, 10,000 dead
letters and 100,000 matches of a rule.

Queries and rows are bounded. The summary of the tests shows the times. Pages read the lag samples of ten minutes.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from psycopg import sql

from runtime import airflow
from tests.builders.scale import a_large_platform
from tests.pages.cost import counted
from tests.pages.found_by_rules import RULE, SEARCH, found_by_rules
from tests.pages.hostile_bytes import reject_all, store_letters
from tests.pages.plausible import at_version_1
from tests.servers import SharedServers, copy_database, drop_database
from tests.speed import record_speed
from truelog.exports import query as row_query
from truelog.exports.query import Condition, RowQuery
from truelog.reports import record as record_report
from truelog.reports.record import Place
from truelog.storage import db_snapshot
from truelog.storage.database import connect
from truelog.support.settings import PROJECT, Settings
from truelog.views.catalogue import VIEWS

pytestmark = pytest.mark.nightly

NAME = "pages_large"
COPIES, HTTP_ROUNDS = 50, 4
TODAY = datetime.now(UTC).date()
LETTERS, ARCHIVED = 10_000, 9_000
# Each answer over HTTP, with the largest number of queries and of rows that it may read from PostgreSQL. Dead letters
# and records also read the archive and the log. Answers of explanations, which a job stores, and exports are left out.
HTTP: dict[str, tuple[int, int]] = {
    "data/vitals": (28, 500),
    "data/streams": (28, 300),
    "data/flow": (32, 500),
    "data/views": (12, 300),
    "data/view?name=v1": (25, 450),
    "data/rows?name=v1": (11, 100),
    "data/rows?name=v1&where=host%3Dh1&order=views": (11, 100),
    "data/cubes": (4, 120),
    "data/analytics?view=v1&by=host&hours=720": (18, 1_100),  # a course has a row for each step and line
    "data/reconciliations": (10, 220),  # with who started the runs, from Airflow's own database
    "data/reconciliations?verdict=DIFFERENT&text=v&order=different": (10, 220),
    "data/reconciliations?run=scheduled__7": (16, 220),
    "data/reconciliation?id=5000": (9, 120),
    "data/certificates": (9, 120),
    "data/certificates?view=v1": (10, 200),
    f"data/partials?since={TODAY - timedelta(days=90)}&until={TODAY}": (6, 5_000),
    "data/backfills": (120, 500),  # Airflow's own database may have a page of backfills, each with its days
    "data/lag?reader=v1": (9, 600),
    "data/freshness": (9, 120),
    "data/alerts": (16, 120),
    "data/timeline?hours=744": (6, 250),
    "data/operations": (6, 120),
    "data/quality": (7, 120),
    "data/skipped": (7, 120),
    "data/explain?view=v1&where=host%3Dh1": (8, 120),
    "data/rights": (0, 0),
    "data/rules": (25, 550),
    "data/rules?match=_7": (19, 60),
    f"data/pattern?name={RULE}": (19, 130),
    f"data/search?name={SEARCH}": (19, 100),
    "data/dead-letters?hours=100000": (40, 60),
    "data/dead-letters?hours=100000&type=page_view&text=e&order=reason&skip=5000": (40, 60),
    "data/records?topic=dead_letter": (21, 40),
    "data/record?topic=dead_letter&partition=0&offset=5000": (30, 100),
}
LONG = ("data/rules", *(path for path in HTTP if path.startswith("data/dead-letters")))  # lists of 100 entries and more


@pytest.fixture(scope="module")
def large(servers: SharedServers, postgresql: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("large") / "views"
    folder.mkdir()
    for number in range(1, COPIES + 1):
        at_version_1(Path(shutil.copy(VIEWS / "page_views.py", folder / f"v{number}.py")))
    copy_database(postgresql, servers.settings.database_name, NAME)
    settings = postgresql.model_copy(update={"database_name": NAME, "views_folder": folder})
    with connect(settings, autocommit=True) as connection, found_by_rules(connection, folder):
        a_large_platform(connection)
        yield settings
    drop_database(postgresql, NAME)


@pytest.fixture(scope="module")
def rejected_often(large: Settings, pages: Settings, kafka: Settings) -> None:
    """Dead letters in the log, most of them archived, too."""
    settings = pages.model_copy(update={"database_name": NAME})
    values = [b'{"type": "page_view", "event_id": "e%d", "url": "%b"}' % (n, b"x" * 200) for n in range(LETTERS)]
    store_letters(settings, reject_all(values), archived=ARCHIVED)


def test_the_readers_of_a_record_are_found_with_few_queries(large: Settings) -> None:
    """The page of a record also reads the archive, so it is not among the answers over HTTP."""
    with counted() as cost:
        found = record_report.record_readers(large, Place("page_view", 199, 5))
    assert len(found) == COPIES
    assert 0 < cost["queries"] <= 6
    assert cost["rows"] <= 3 * COPIES


def test_each_answer_over_http_reads_little(large: Settings, pages: Settings, rejected_often: None) -> None:
    """`pages` sets up Airflow's own database, which some answers read, too."""
    command = [sys.executable, "-m", "tests.pages.asgi_answers", str(HTTP_ROUNDS + 1), *HTTP]
    ours = {"TRUELOG_DATABASE_NAME": NAME, "TRUELOG_VIEWS_FOLDER": str(large.views_folder)}
    ended = subprocess.run(
        command, cwd=PROJECT, env=airflow.environment(pages) | ours, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"path"')]
    for each in found:  # the first round loads the files of the views
        record_speed(f"slowest of {HTTP_ROUNDS} answers of {each['path']}", 1_000 * max(each["seconds"][1:]), "ms")
    assert {each["path"]: each["status"] for each in found} == dict.fromkeys(HTTP, 200)
    assert [each["path"] for each in found if each["path"] in LONG and each["bytes"] < 10_000] == []
    cost = {each["path"]: (each.get("queries", 0), each.get("rows", 0)) for each in found}
    assert {path for path, (queries, _) in cost.items() if not queries} <= {"data/rights"}
    assert {path: read for path, read in cost.items() if read[0] > HTTP[path][0] or read[1] > HTTP[path][1]} == {}


def test_a_row_is_found_by_an_index(large: Settings) -> None:
    conditions = [Condition.parse(each) for each in ("minute=2026-01-01", "host=h1", "page=/1", "browser=b")]
    with db_snapshot.read_snapshot(large) as connection:
        for query in (RowQuery("v1", conditions), RowQuery("v1", order="minute")):
            statement = row_query.select(connection, replace(query, limit=50), sql.SQL("{}"))
            plan = " ".join(str(line) for (line,) in connection.execute(sql.SQL("EXPLAIN ") + statement))
            assert "Index" in plan
            assert "Seq Scan" not in plan
