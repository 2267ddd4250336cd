"""The last comparison of a captured table is recorded, and says when the view may not equal the table."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.builders.changes import a_captured_table
from truelog.capture import last_comparison
from truelog.capture.comparison import DIFFERENT, EQUAL, UNKNOWN, SourceComparison
from truelog.capture.last_comparison import LastComparison, problem
from truelog.storage.database import Connection

NOW = datetime(2026, 3, 10, tzinfo=UTC)
OLD = LastComparison(since=NOW - timedelta(days=30), verdict=EQUAL, reason="", compared_at=NOW, equal_at=NOW)
CASES = {
    "equal today": (OLD, None),
    "different today": (replace(OLD, verdict=DIFFERENT, reason="2 rows missing"), "DIFFERENT: 2 rows missing"),
    "unknown today, and equal yesterday": (replace(OLD, verdict=UNKNOWN, equal_at=NOW - timedelta(days=1)), None),
    "unknown for long": (
        replace(OLD, verdict=UNKNOWN, reason="no answer", equal_at=NOW - timedelta(days=3)),
        "not found EQUAL for 2 days. Last comparison: UNKNOWN no answer",
    ),
    "no comparison for long": (
        LastComparison(since=NOW - timedelta(days=3)),
        "not found EQUAL for 2 days. Last comparison: none",
    ),
    "a snapshot of today": (LastComparison(since=NOW), None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_last_comparison_says_whether_the_view_equals_the_table(case: str) -> None:
    last, expected = CASES[case]
    assert problem(last, NOW) == expected


def test_a_later_comparison_keeps_the_time_of_the_last_equal_one(connection: Connection) -> None:
    last_comparison.record(connection, "customers", SourceComparison("customers", EQUAL, 3))
    [equal] = last_comparison.load(connection, ["customers"]).values()
    last_comparison.record(connection, "customers", SourceComparison("customers", DIFFERENT, 3, extra=2, keys=("ann",)))
    [different] = last_comparison.load(connection, ["customers"]).values()
    assert (equal.verdict, different.verdict) == (EQUAL, DIFFERENT)
    assert equal.equal_at == different.equal_at is not None
    assert different.reason == "0 rows missing, 2 extra, 0 different; "
    assert "ann" not in repr(different)
    last_comparison.record(connection, "customers", SourceComparison("customers", UNKNOWN, 0, reason="busy"))
    [unknown] = last_comparison.load(connection, ["customers"]).values()
    assert unknown == different  # UNKNOWN resolves nothing


def test_an_unknown_comparison_is_recorded_first_and_after_an_equal_one(connection: Connection) -> None:
    for verdict in (UNKNOWN, EQUAL, UNKNOWN):
        last_comparison.record(connection, "orders", SourceComparison("orders", verdict, 0))
        [found] = last_comparison.load(connection, ["orders"]).values()
        assert found.verdict == verdict


def test_a_table_that_was_captured_before_the_upgrade_has_two_days_for_its_first_comparison(
    connection: Connection,
) -> None:
    a_captured_table(connection, "towns", ago=timedelta(days=30))
    [found] = last_comparison.load(connection, ["towns"]).values()
    assert problem(found, datetime.now(UTC)) is None
    assert problem(found, datetime.now(UTC) + timedelta(days=3)) is not None
