"""The hourly comparison finds what was planted in a table that the stream and the rebuild share."""

from dataclasses import replace

import pytest

from tests.beds.archived import Archived
from tests.builders.views import merged_to
from truelog.log.positions import Positions
from truelog.reconcile.offset_search import Cause
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest

HOURLY = ReconcileRequest(repair=True, audit=True, incremental=True)


def three_clicks(ground: Archived) -> None:
    ground.click(0, [("a", "1", 1), ("a", "2", 2), ("b", "4", 3)])
    ground.stream()


pytestmark = pytest.mark.ground(filled=three_clicks)


def test_a_wrong_position_is_a_difference(ground: Archived) -> None:
    """A position says which records both sides count. The stream has not merged the record that it skips."""
    ground.click(0, [("b", "8", 4)])
    merged_to(ground.lab.connection, ground.compiled.name, Positions({"click": {0: 4}}, ground.ids))
    compared = reconcile(ground.lab.context, ground.compiled, replace(HOURLY, repair=False))
    assert (compared.verdict, [each["cause"] for each in compared.causes]) == ("DIFFERENT", [Cause.LOST])
    assert reconcile(ground.lab.context, ground.compiled, HOURLY).verdict == "EQUAL"
