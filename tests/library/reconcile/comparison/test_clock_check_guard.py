"""When the check of the clock asks, what it records, and what it says: with a rebuilder that answers at once."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from truelog.kernel import clock, merge
from truelog.log.positions import Positions
from truelog.reconcile.comparison.clock_check import mend_clock

RIGHT, WRONG = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 9, tzinfo=UTC)
WITH_TICKS = Positions({"click": {0: 5}, "ticks": {0: 2}}, {"click": "c", "ticks": "t"})
WITHOUT = Positions({"click": {0: 5}}, {"click": "c"})


class Check:
    """A view whose stored clock and whose right clock are given. Records what the check does."""

    def __init__(self, stored: datetime | None, right: datetime | None, **view: bool) -> None:
        self.stored, self.right, self.done = stored, right, list[tuple[object, ...]]()
        declared = SimpleNamespace(**({"reads_clock": True, "batch_only": False, "reads": ("click",)} | view))
        self.compiled: Any = SimpleNamespace(view=declared)
        self.connection: Any = object()
        self.source = SimpleNamespace(ticks=lambda positions: ("ticks to", positions))

    def now(self, _: Positions) -> datetime | None:
        self.done.append(("asked",))
        return self.right


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Any:
    def check(made: Check, positions: Positions = WITH_TICKS) -> str:
        monkeypatch.setattr(merge, "stored_clock", lambda *_: made.stored)
        monkeypatch.setattr(clock, "record_wrong", lambda _, *given: made.done.append(("wrong", *given)))
        monkeypatch.setattr(clock, "replace_ticks", lambda _, *given: made.done.append(("replaced", *given)))
        return mend_clock(made, positions)  # type: ignore[arg-type]

    return check


@pytest.mark.parametrize(
    ("view", "positions"),
    [({"reads_clock": False}, WITH_TICKS), ({"batch_only": True}, WITH_TICKS), ({}, WITHOUT)],
)
def test_a_view_without_a_stored_clock_is_not_asked(checked: Any, view: dict[str, bool], positions: Positions) -> None:
    made = Check(WRONG, RIGHT, **view)
    assert (checked(made, positions), made.done) == ("", [])


@pytest.mark.parametrize("time", [RIGHT, None])
def test_a_right_clock_changes_nothing(checked: Any, time: datetime | None) -> None:
    made = Check(time, time)
    assert (checked(made), made.done) == ("", [("asked",)])


def test_a_wrong_clock_is_recorded_and_replaced(checked: Any) -> None:
    made, replaced = Check(WRONG, RIGHT), ("replaced", "t", ("ticks to", WITH_TICKS), WITH_TICKS, ("click",))
    said = checked(made)
    assert made.done == [("asked",), ("wrong", "t", WRONG), replaced]
    assert said.startswith("the stored ticks gave the clock 2026-03-09")
    assert "but it is 2026-03-01" in said


def test_a_clock_that_was_not_stored_is_not_called_wrong(checked: Any) -> None:
    made = Check(None, RIGHT)
    assert checked(made).startswith("the stored ticks gave the clock no time")
    assert [each[0] for each in made.done] == ["asked", "replaced"]
    made = Check(WRONG, None)
    assert "no time by the archive" in checked(made)
