"""A database that was restored from a backup and lacks erasures: the API refuses to serve rows of it."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.builders.erasures import forget_erasures, lacks, restored_from_a_dump
from tests.library.services.api.asking import Asking
from tests.library.services.api.shop_views import PRODUCTS, sell
from truelog.erasure import ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.subject import Subject, secret_check
from truelog.log.positions import Positions
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


def test_no_rows_are_served_before_what_the_api_keeps_is_without_the_person(deployed: Connection, api: Asking) -> None:
    """The step COPIES drops stored answers and earlier changes."""
    subjects, ends = (
        frozenset({Subject.of(b"secret", "visitor_id", "ann")}),
        Positions({"search": {0: 1}}, {"search": "an-id"}),
    )
    erasure = Erasure(UUID(int=7), subjects, {"search": ("visitor_id",)}, ends, secret_check(b"secret"))
    ledger.restore(deployed, erasure, Step.VIEWS, adopted=True)
    for path, asked in PATHS:
        refused = api.get(path, **asked)
        assert (refused.status_code, "run `truelog erasures adopt`" in refused.json()["detail"]) == (503, True), path
    ledger.finish(deployed, erasure, Step.COPIES)
    assert api.get(ROWS).json()["rows"]
