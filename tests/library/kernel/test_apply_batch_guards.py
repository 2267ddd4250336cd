"""When a batch asks the guard about the log, and what it merges after each answer. Without Spark.

The view is past the end of these batches, so nothing is staged. A merge shows by its leader epochs.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.deadline import deadline
from tests.library.kernel.zombie import at, counter
from truelog.kernel import merge
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.kernel.merge import Merge
from truelog.log.leader_epochs import Epochs
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support import faults
from truelog.support.errors import LeaderChanged, LogCut, TruelogError
from truelog.support.faults import FaultInjectedError
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView

EARLIER, TAKEN, NOW = ({("page_view", 0): epoch} for epoch in (2, 3, 4))
HERE = at(5)


@dataclass
class Guard:
    """Records what it is asked, and fails where it should."""

    cut: TruelogError | None = None
    changed: TruelogError | None = None
    asked: list[tuple[object, ...]] = field(default_factory=list)

    def before(self, _: Connection, compiled: CompiledView, begin: Positions, taken: Epochs | None) -> Epochs:
        self.asked.append(("before", begin, taken))
        if self.cut:
            raise self.cut
        return NOW

    def after(self, taken: Epochs, read: Positions) -> None:
        self.asked.append(("after", taken, read))
        if self.changed:
            raise self.changed


@pytest.fixture
def view(connection: Connection) -> CompiledView:
    compiled = counter(f"v{uuid.uuid4().hex[:8]}")
    table.deploy_table(connection, compiled)
    merge.apply(connection, compiled, Merge(at(0), HERE, stage.NO_ROWS, epochs=EARLIER))
    return compiled


Apply = Callable[..., Positions]


@pytest.fixture
def apply(postgresql: Settings, connection: Connection, view: CompiledView) -> Apply:
    def applied(guard: Any, **more: Any) -> Positions:
        batch = EventRange({}, at(0), at(3), epochs=TAKEN, **more)
        return BatchApplier(postgresql, guard=guard).apply(connection, view, batch, HERE)

    return applied


def test_a_batch_is_guarded_before_and_after_it_is_read(
    connection: Connection, view: CompiledView, apply: Apply
) -> None:
    guard = Guard()
    assert apply(guard) == HERE
    assert guard.asked == [("before", HERE, TAKEN), ("after", NOW, HERE)]
    assert merge.leader_epochs(connection, view) == NOW
    query = "SELECT merges, preparing FROM truelog.merge_tally WHERE view = %s"
    [(merges, seconds)] = connection.execute(query, (view.name,)).fetchall()
    assert merges == 2
    assert 0 <= float(str(seconds)) < deadline(60)


def test_a_batch_that_is_proved_for_all_views_is_not_asked_about_again(
    connection: Connection, view: CompiledView, apply: Apply
) -> None:
    guard = Guard(changed=LeaderChanged("page_view 0"))
    apply(guard, is_proved=True)
    assert guard.asked == [("before", HERE, TAKEN)]
    assert merge.leader_epochs(connection, view) == NOW


@pytest.mark.parametrize("guard", [Guard(cut=LogCut("the log was cut", [])), Guard(changed=LeaderChanged("another"))])
def test_nothing_is_merged_of_a_batch_that_the_guard_refuses(
    connection: Connection, view: CompiledView, apply: Apply, guard: Guard
) -> None:
    with pytest.raises((LogCut, LeaderChanged)):
        apply(guard)
    assert merge.leader_epochs(connection, view) == EARLIER


def test_the_point_after_staging_is_before_the_second_question(
    apply: Apply, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tests kill a process there."""
    guard = Guard()
    monkeypatch.setenv("TRUELOG_FAULT_FIRED", str(tmp_path / "fired"))
    monkeypatch.setattr(faults, "_armed", "merge.staged:1:raise")
    monkeypatch.setattr(faults, "_reached", 0)
    with pytest.raises(FaultInjectedError):
        apply(guard)
    assert guard.asked == [("before", HERE, TAKEN)]
