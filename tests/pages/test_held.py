"""After a restore, no page shows rows until the erasures since the backup are performed again.

`tests/library/erasure/test_hold.py` tests the relations of readers, from which the page *Rows* and its export read.
"""

import json
from collections.abc import Iterator

import pytest

from runtime.airflow_client import Airflow
from tests.builders.erasures import lacks
from tests.pages.fetch import fetch
from tests.pages.found_by_rules import RULE, SEARCH
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
