"""A database that was restored from a backup and lacks erasures: the API refuses to serve rows of it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders.erasures import forget_erasures, lacks, restored_from_a_dump
from tests.library.services.api.asking import Asking
from tests.library.services.api.shop_views import PRODUCTS, sell
from truelog.storage.database import Connection

ROWS = f"/views/{PRODUCTS}/rows"
PATHS: tuple[tuple[str, dict[str, Any]], ...] = (
    (ROWS, {}),
    (ROWS, {"version": 1}),
    (ROWS, {"as_of": "2026-01-01T00:00:00Z"}),
    (f"/views/{PRODUCTS}/relations/documents", {}),
    (f"/searches/{PRODUCTS}", {"words": "shoes"}),
)


@pytest.fixture(autouse=True, scope="module")
def _filled(deployed: Connection) -> None:
    sell(deployed, red_shoes=3)


@pytest.fixture(autouse=True)
def _free(deployed: Connection) -> Iterator[None]:
    yield
    forget_erasures(deployed)


@pytest.mark.parametrize("is_read", [True, False])
def test_no_rows_are_served_while_erasures_are_missing(deployed: Connection, api: Asking, is_read: bool) -> None:
    """The ledger lacks one, or it is not known yet."""
    assert api.get(ROWS).json()["rows"]
    lacks(deployed, int(is_read))
    if not is_read:
        restored_from_a_dump(deployed)
    for path, asked in PATHS:
        refused = api.get(path, **asked)
        assert refused.status_code == 503, path
        assert "run `truelog archive adopt`" in refused.json()["detail"]
        assert "red shoes" not in refused.text
    lacks(deployed, 0)
    assert api.get(ROWS).json()["rows"]
