"""The outbox of a view, without Spark: its steps, their numbers, and where an output begins and ends."""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

import psycopg
import pytest
from psycopg import sql

from tests.beds.lab import with_own
from tests.library.kernel.zombie import at, counter
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.log.positions import Range
from truelog.storage.database import Connection, connect
from truelog.storage.locks import Locks
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import changes, outbox

Row = tuple[int, int, str, int | None]  # number, last number of its step, event id, and what its row counts


def declared(name: str, *, publish: bool, version: int = 1) -> CompiledView:
    own = counter(name, version).own
    return with_own(CompiledView((own,)), view=replace(own.view, publish=publish))


@dataclass
class Output:
    """A view that publishes its rows: a count for each event id."""

    connection: Connection
    compiled: CompiledView

    def change(self, *records: Range, **counts: int | None) -> None:
        """Set, or with None remove, the counts of some event ids in one transaction."""
        with self.connection.transaction():
            self.store(**counts)
            outbox.record_changes(self.connection, self.compiled, records)

    def store(self, **counts: int | None) -> None:
        state = sql.Identifier("state", self.compiled.own.name)
        for event, count in counts.items():
            self.connection.execute(sql.SQL("DELETE FROM {} WHERE event_id = %s").format(state), (event,))
            if count is not None:
                self.connection.execute(sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(state), (event, count))

    def rows(self) -> list[Row]:
        query = "SELECT number, step, key, value FROM truelog.outbox WHERE (view, version) = (%s, 1) ORDER BY number"
        found = self.connection.execute(query, (self.compiled.name,)).fetchall()
        return [
            (number, step, json.loads(key)["event_id"], None if value is None else json.loads(value)["n"])
            for number, step, key, value in found
        ]

    def steps(self) -> list[tuple[object, ...]]:
        """The records and the positions of each step."""
        query = "SELECT last, records, positions FROM truelog.output_step WHERE (view, version) = (%s, 1) ORDER BY last"
        return self.connection.execute(query, (self.compiled.name,)).fetchall()

    def state(self) -> tuple[object, ...]:
        """The last number, the first number since the beginning, and whether the output has begun."""
        query = (
            "SELECT number, first, beginning IS NOT NULL, trouble FROM truelog.output WHERE (view, version) = (%s, 1)"
        )
        [found] = self.connection.execute(query.encode(), (self.compiled.name,)).fetchall()
        return found

    def settle(self, *, publish: bool) -> None:
        with self.connection.transaction():
            outbox.settle(self.connection, declared(self.compiled.name, publish=publish))


@pytest.fixture
def output(connection: Connection) -> Output:
    compiled = declared(f"v{uuid.uuid4().hex[:8]}", publish=True)
    for each in (compiled, declared(compiled.name, publish=True, version=2)):
        table.deploy_table(connection, each)
    merge.apply(connection, compiled, Merge(at(0), at(1), stage.NO_ROWS))
    return Output(connection, compiled)


def test_each_transaction_is_a_step_with_the_next_numbers(output: Output) -> None:
    assert (output.rows(), output.state()) == ([], (0, 1, True, ""))
    output.change(Range("page_view", 0, 0, 1), b=1, a=2)
    output.change(a=3)
    assert output.rows() == [(1, 2, "a", 2), (2, 2, "b", 1), (3, 3, "a", 3)]
    reached = {"page_view": {"0": 1}}
    assert output.steps() == [(2, '[["page_view", 0, 0, 1]]', reached), (3, None, reached)]
    assert output.state() == (3, 1, True, "")


def test_texts_of_any_kind_are_compared_as_they_are(output: Output) -> None:
    """The statement is prepared with parameters, in which a percent sign or a quote must not mean anything."""
    odd = ["100 %", "%s %(view)s %%", "it's", 'a "b"', "a\\b", "{}", "\u2028 \U0001f40c", "", " "]
    output.change(Range("page_view", 0, 3, 4), **dict.fromkeys(odd, 1))
    output.change(**dict.fromkeys(odd, 1))  # each row is deleted and stored again
    assert sorted(event for _, _, event, _ in output.rows()) == sorted(odd)
    assert [records for _, records, _ in output.steps()] == ['[["page_view", 0, 3, 4]]']
    output.change(**{odd[0]: None, odd[1]: 2})
    assert [(event, count) for _, _, event, count in output.rows()[len(odd) :]] == [(odd[0], None), (odd[1], 2)]


def test_a_measure_may_have_a_percent_sign_in_its_sql(output: Output) -> None:
    output.change(a=7)
    row = sql.SQL("SELECT key, ({}::bigint % 4)::text AS value FROM ({}) AS shown WHERE key LIKE '%a%'")
    shown = row.format(sql.Literal(7), changes.all_rows(output.compiled.own))
    with output.connection.transaction():
        outbox._record(output.connection, output.compiled, shown)
    assert output.connection.execute(
        "SELECT value FROM truelog.outbox WHERE (view, version, number) = (%s, 1, 2)", (output.compiled.name,)
    ).fetchall() == [("3",)]


def test_each_batch_records_its_changes_by_the_same_statement(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL then plans it once for the session. The records of the batch are parameters."""
    monkeypatch.setattr(output.connection, "prepare_threshold", 0)
    for offset in range(3):
        output.change(Range("page_view", 0, offset, offset + 1), a=offset)
    output.change(a=9)
    query = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%truelog.outbox (%'"
    assert output.connection.execute(query, prepare=False).fetchall() == [(1,)]
    assert [number for number, *_ in output.rows()] == [1, 2, 3, 4]


def test_removed_keys_come_first_and_what_did_not_change_is_left_out(output: Output) -> None:
    output.change(c=1, d=1)
    output.change(d=None, a=1, c=1)
    assert output.rows()[2:] == [(3, 4, "d", None), (4, 4, "a", 1)]
    output.change(c=1)
    assert output.state() == (4, 1, True, "")


def test_an_output_ends_and_begins_again_with_the_whole_table(output: Output) -> None:
    output.change(a=1, b=2)
    output.settle(publish=True)
    assert len(output.rows()) == 2, "it publishes already"
    output.settle(publish=False)
    assert (output.rows(), output.steps(), output.state()) == ([], [], (2, 1, False, ""))
    quiet = declared(output.compiled.name, publish=False)
    Output(output.connection, quiet).change(a=5)
    assert not changes.is_followed(output.connection, quiet.own)
    output.settle(publish=True)
    assert (output.rows(), output.state()) == ([(3, 4, "a", 5), (4, 4, "b", 2)], (4, 3, True, ""))
    output.change(a=6)
    assert output.rows()[2:] == [(5, 5, "a", 6)]


def test_the_outputs_of_other_versions_stay(output: Output) -> None:
    output.change(a=1)
    with output.connection.transaction():
        outbox.end(output.connection, output.compiled.name, 2)
    assert (output.rows(), output.state()) == ([(1, 1, "a", 1)], (1, 1, True, ""))


def test_rows_are_repeated_as_they_are(output: Output) -> None:
    output.change(a=1, b=2)
    with output.connection.transaction():
        keys = [json.dumps({"event_id": each}, separators=(",", ":")) for each in ("b", "gone")]
        assert outbox.repeat(output.connection, output.compiled, keys) == 4
    assert output.rows()[2:] == [(3, 4, "gone", None), (4, 4, "b", 2)]


def test_earlier_steps_are_passed_by_one_row(output: Output) -> None:
    output.change(a=1)
    assert outbox.pass_by(output.connection, output.compiled, 0) == 2
    assert output.rows() == [(1, 1, "a", 1), (2, 2, "a", 1)]


def test_the_output_of_an_empty_table_begins_again_when_everything_is_published(output: Output) -> None:
    output.change(a=1)
    output.change(a=None)
    before = output.rows()
    assert outbox.pass_by(output.connection, output.compiled, 1) is None
    assert output.rows() == before
    assert outbox.pass_by(output.connection, output.compiled, 2) == 2
    assert (output.rows(), output.state()) == ([], (2, 3, True, ""))


def test_what_has_changed_before_a_beginning_is_a_part_of_its_table(output: Output) -> None:
    with output.connection.transaction():
        output.store(a=1)
        outbox.begin(output.connection, output.compiled)
        outbox.record_changes(output.connection, output.compiled)
    assert (output.rows(), output.state()) == ([(1, 1, "a", 1)], (1, 1, True, ""))


def test_only_a_view_that_publishes_and_whose_output_has_begun_records_changes(output: Output) -> None:
    Output(output.connection, declared(output.compiled.name, publish=False)).change(a=1)
    assert output.rows() == []
    output.settle(publish=False)
    output.change(b=1)
    assert output.rows() == []


Act = Callable[[Output], object]
ACTS: dict[str, Act] = {
    "end": lambda output: output.settle(publish=False),
    "begin": lambda output: output.settle(publish=True),
    "pass by": lambda output: outbox.pass_by(output.connection, output.compiled, 0),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_an_output_changes_under_the_lock_of_its_version(output: Output, postgresql: Settings, act: Act) -> None:
    """A merge draws numbers and notes changes under this lock. The other version's lock does not matter."""
    if act is ACTS["begin"]:
        output.settle(publish=False)
    output.change(a=1)
    output.connection.execute("SET lock_timeout = '100ms'")
    with connect(postgresql) as merging:
        merge.lock(merging, output.compiled)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            act(output)
    with connect(postgresql) as merging:
        merge.lock(merging, declared(output.compiled.name, publish=True, version=2))
        act(output)


def test_an_output_begins_when_no_erasure_deletes_topics(output: Output, postgresql: Settings) -> None:
    output.settle(publish=False)
    output.connection.execute("SET lock_timeout = '100ms'")
    with connect(postgresql) as deleting:
        deleting.execute(f"SELECT pg_advisory_xact_lock({Locks.OUTPUTS})")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            output.settle(publish=True)
    with connect(postgresql) as beginning:
        beginning.execute(f"SELECT pg_advisory_xact_lock_shared({Locks.OUTPUTS})")
        output.settle(publish=True)
    assert output.state() == (0, 1, True, "")
