"""The law of outputs: their records, applied in order, give after each transaction the rows that the view then had.

It holds for every kind of table and for values that are hard to write. At most one record of a transaction has the same
key, and removed keys come first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from psycopg import sql

from tests.beds.lab import Lab, cases
from tests.laws.bench import PER_MINUTE, make_bench
from tests.laws.events import Record
from tests.laws.views import VIEWS
from tests.nightly_cases import nightly_except
from truelog import View
from truelog.kernel import merge
from truelog.storage.database import Connection
from truelog.storage.exact_json import read
from truelog.tables import kinds, stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import changes, outbox

LOGS = 80
# One view of each kind, and the values and the rules that are the hardest for an output.
CHOSEN = ("cart", "home_timeline", "in_steps", "extreme_values", "request_rates")
SHRINKING = {"cart", "home_timeline", "request_rates"}  # rows of these vanish in the generated logs

Rows = dict[str, str]
Step = list[tuple[str, str | None]]


@dataclass
class Recorder:
    """Records an output after each change of a view, and the rows that the view then had."""

    connection: Connection
    compiled: CompiledView
    states: list[Rows] = field(default_factory=list)

    def record(self) -> None:
        with self.connection.transaction():
            outbox.record_changes(self.connection, self.compiled)
        self.states.append(self.rows())

    def rows(self) -> Rows:
        found: list[Any] = self.connection.execute(changes.all_rows(self.compiled.own)).fetchall()
        return dict(found)

    def steps(self) -> list[Step]:
        query = "SELECT step, number, key, value FROM truelog.outbox WHERE view = %s ORDER BY number"
        found: list[Any] = self.connection.execute(query, (self.compiled.name,)).fetchall()
        assert [number for _, number, _, _ in found] == [*range(1, len(found) + 1)]
        steps: dict[int, Step] = {}
        for step, _, key, value in found:
            steps.setdefault(step, []).append((key, value))
        return [*steps.values()]

    def require_law(self) -> None:
        """Each step leads to the next state that the view had; a change that shows nothing makes no step."""
        expected = [state for before, state in zip([{}, *self.states], self.states, strict=False) if before != state]
        assert [dict(each) for each in applied(self.steps())] == expected
        for step in self.steps():
            keys, removed = [key for key, _ in step], [value is None for _, value in step]
            assert len(set(keys)) == len(keys)
            assert removed == sorted(removed, reverse=True)


def applied(steps: list[Step]) -> Iterator[Rows]:
    """The table after each step, as a reader of the topic builds it."""
    rows: Rows = {}
    for step in steps:
        for key, value in step:
            if value is None:
                assert rows.pop(key, None) is not None, "a tombstone of a key that readers do not have"
            else:
                rows[key] = value
        yield dict(rows)


def streamed(lab: Lab, name: str, view: View, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Stream generated logs through a published view, one transaction after another."""
    drawn: list[list[Record]] = cases(lab.types, view.reads, number=LOGS)
    recorders: list[Recorder] = []
    drop_expired: Callable[..., Any] = merge.drop_expired

    def dropped(connection: Connection, compiled: CompiledView, schema: str, end: Any, now: Any) -> None:
        """The last step of a merge before its changes are recorded."""
        drop_expired(connection, compiled, schema, end, now)
        if schema == "state":
            recorders[:] = recorders or [Recorder(connection, compiled)]
            recorders[0].record()

    monkeypatch.setattr(merge, "drop_expired", dropped)
    different = lab.compare_all(f"output_{name}", replace(view, publish=True), drawn)
    assert different.unequal == 0
    return recorders[0]


@pytest.mark.parametrize("name", nightly_except(["home_timeline", "extreme_values", "request_rates"], CHOSEN))
def test_the_records_give_each_state_that_the_view_had(lab: Lab, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = streamed(lab, name, VIEWS[name], monkeypatch)
    recorder.require_law()
    steps = recorder.steps()
    assert len(steps) > 3
    assert all(isinstance(read(value), dict) for step in steps for _, value in step if value is not None)
    assert any(value is None for step in steps for _, value in step) == (name in SHRINKING)


_ORDER = 'value IS NOT NULL, key COLLATE "C"'


def test_a_tombstone_after_the_new_row_of_its_key_breaks_the_law(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect: an update becomes a new row, and then a removal of the earlier row."""

    def split(compiled: CompiledView) -> sql.Composed:
        query = kinds.kind_of(compiled.own).changes(compiled.own)
        return sql.SQL(
            "WITH each_change AS MATERIALIZED ({}) SELECT key, value FROM each_change "
            "UNION ALL SELECT key, NULL FROM each_change WHERE value IS NOT NULL"
        ).format(query)

    assert _ORDER in outbox._RECORD
    monkeypatch.setattr(kinds, "changes", split)
    monkeypatch.setattr(outbox, "_RECORD", outbox._RECORD.replace(_ORDER, 'key COLLATE "C", value IS NULL'))
    recorder = streamed(lab, "split", VIEWS["cart"], monkeypatch)
    with pytest.raises(AssertionError):
        recorder.require_law()


def test_a_view_that_does_not_publish_pays_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge executes the statements that it would execute without outputs, on tables without triggers."""
    bench, executed = make_bench(lab, PER_MINUTE), list[str]()
    execute = lab.connection.execute

    def recorded(query: Any, *parameters: Any, **options: Any) -> Any:
        executed.append(query if isinstance(query, str) else query.as_string(None))
        return execute(query, *parameters, **options)

    with monkeypatch.context() as watched:
        watched.setattr(lab.connection, "execute", recorded)
        bench.apply(0, 5)
    assert any("truelog.merge_tally" in each for each in executed)
    assert [each for each in executed if "output" in each or "outbox" in each or stage.CHANGES in each] == []
    triggers = sql.SQL("SELECT tgname FROM pg_trigger WHERE tgrelid = {}::regclass")
    table = sql.Literal(f"state.{bench.compiled.own.name}")
    assert lab.connection.execute(triggers.format(table)).fetchall() == []
