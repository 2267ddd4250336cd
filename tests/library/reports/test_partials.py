"""A recomputed day has the verdict of the version that it was recomputed for."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from psycopg.types.json import Jsonb

from tests.builders.applications import forget_application
from tests.builders.comparisons import a_reconciliation
from tests.builders.views import a_view, forget
from truelog.batch.recomputation import Recomputation
from truelog.control import view_status
from truelog.reports.partials import PartialState, partial_days
from truelog.storage.database import Connection
from truelog.support.settings import Settings

DAY = datetime(2026, 3, 1, tzinfo=UTC)
BUILT = Jsonb({"page_view": {"0": 7}})


@pytest.fixture
def view(postgresql: Settings, connection: Connection) -> Iterator[str]:
    """A view that declares version 2, while readers see version 1. One day has been recomputed."""
    name = f"v{uuid.uuid4().hex[:8]}"
    for version in (1, 2):
        a_view(connection, name, version)
    view_status.record_state(connection, "of_partials", name, 2)
    recomputation = Recomputation.by_hand(postgresql)
    recomputation.plan([name], [DAY])
    recomputation.finish(name, DAY, 1)
    yield name
    forget(connection, name)
    forget_application(connection, "of_partials")


def state(connection: Connection, view: str) -> PartialState:
    [found] = partial_days(connection, [view], DAY.date(), DAY.date())
    return found.state


def test_the_verdict_is_that_of_the_declared_version(connection: Connection, view: str) -> None:
    """`reconcile` compares the versions beside it last."""
    a_reconciliation(connection, view, "EQUAL", version=1, positions=BUILT)
    assert state(connection, view) is PartialState.RECOMPUTED
    a_reconciliation(connection, view, "DIFFERENT", version=2, positions=BUILT)
    a_reconciliation(connection, view, "EQUAL", version=1, positions=BUILT)
    assert state(connection, view) is PartialState.DIFFERENT


def test_a_version_that_was_not_built_yet_has_no_verdict(connection: Connection, view: str) -> None:
    """It equals a rebuild of nothing."""
    a_reconciliation(connection, view, "EQUAL", version=2)
    assert state(connection, view) is PartialState.RECOMPUTED
    a_reconciliation(connection, view, "DIFFERENT", version=2, positions=BUILT)
    assert state(connection, view) is PartialState.DIFFERENT


def test_a_view_whose_application_has_not_reported_it_has_the_verdict_of_the_deployed_version(
    connection: Connection, view: str
) -> None:
    view_status.forget_others(connection, "of_partials", [])
    a_reconciliation(connection, view, "EQUAL", version=2, positions=BUILT)
    a_reconciliation(connection, view, "DIFFERENT", version=1, positions=BUILT)
    assert state(connection, view) is PartialState.EQUAL  # of two versions that readers have never seen, the newer one
