"""After a restore, no page shows rows until the erasures since the backup are performed again.

Neither does one show archived records, if the catalog is behind the bucket.

`tests/library/erasure/test_hold.py` tests the relations of readers, from which the page *Rows* and its export read.
"""

import json
from collections.abc import Iterator

import pytest

from runtime.airflow_client import Airflow
from tests.builders.erasures import lacks
from tests.library import restored_catalog
from tests.library.archive_files import TOPIC, append_value
from tests.pages.fetch import fetch
from tests.pages.found_by_rules import RULE, SEARCH
from truelog.archive.commit import Append, commit
from truelog.archive.table import ensure_table, open_catalog
from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.log import topics
from truelog.schema.loading.events import load_events
from truelog.storage.database import connect
from truelog.support.settings import Settings

OF_ROWS = (
    "export/differing.csv?id=59",
    "export/differing.json?id=59",
    "data/reconciliation?id=59",
    "data/analytics?view=page_views&by=host",
    "export/analytics.csv?view=page_views&by=host",
    f"data/pattern?name={RULE}",
    f"data/search?name={SEARCH}",
)
OF_RECORDS = (
    f"data/records?topic={TOPIC}",
    f"data/record?topic={TOPIC}&partition=0&offset=0",
    "data/analytics/events?view=page_views",
    "data/dead-letters",
)


@pytest.fixture
def restored(pages: Settings, ruled: Settings) -> Iterator[None]:
    """The database of the pages lacks an erasure."""
    with connect(pages, autocommit=True) as connection:
        lacks(connection, 1)
        yield
        lacks(connection, 0)


@pytest.mark.usefixtures("ruled")
@pytest.mark.parametrize("path", OF_ROWS)
def test_each_page_of_rows_answers_otherwise(users: dict[str, Airflow], path: str) -> None:
    assert fetch(users["oncall"], "GET", path).status == 200


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("path", OF_ROWS)
def test_each_page_of_rows_names_the_cure(users: dict[str, Airflow], path: str) -> None:
    found = fetch(users["oncall"], "GET", path)
    assert found.status in (409, 503)
    assert "`truelog archive adopt`" in json.load(found)["detail"]


@pytest.fixture(scope="module")
def behind(archived: Settings, rejected: Settings) -> None:
    """The catalog lacks the last archived page view and the archived dead letters."""
    letters = topics.end_offsets(rejected, [DEAD_LETTER])
    topic_id, ends = letters.ids[DEAD_LETTER], letters.offsets[DEAD_LETTER]
    begin = dict.fromkeys(ends, 0)
    with open_catalog(rejected) as catalog:
        ensure_table(catalog, load_events()[DEAD_LETTER], topic_id, begin)
        with restored_catalog.restored(archived):
            append_value(archived, 3, b"{}")
            commit(catalog, Append(DEAD_LETTER, topic_id, begin, ends, begin, ()))


@pytest.mark.usefixtures("archived", "rejected")
@pytest.mark.parametrize("path", OF_RECORDS)
def test_each_page_of_records_answers_otherwise(users: dict[str, Airflow], path: str) -> None:
    assert fetch(users["oncall"], "GET", path).status == 200


@pytest.mark.usefixtures("behind")
@pytest.mark.parametrize("path", OF_RECORDS)
def test_no_page_shows_records_of_an_earlier_version(users: dict[str, Airflow], path: str) -> None:
    """Kafka still has dead letters that the archive has erased."""
    found = fetch(users["oncall"], "GET", path)
    assert found.status == 503
    assert "run `truelog archive adopt`" in json.load(found)["detail"]
