"""A merge between the reads of a comparison changes nothing: rows and positions come from one database snapshot."""

import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, cast

import pytest
from psycopg import sql

from tests.library.kernel.zombie import EVENTS, at, counter, stage_events
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.reconcile.comparison import compare as comparison
from truelog.storage.database import Connection, connect
from truelog.support.errors import ArchiveBehind
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import table_hash
from truelog.tables.compiled_view import CompiledView


@pytest.fixture
def compiled(connection: Connection) -> CompiledView:
    """A view that has merged five events."""
    view = counter(f"v{uuid.uuid4().hex[:8]}")
    table.deploy_table(connection, view)
    merge.apply(connection, view, Merge(at(0), at(5), stage_events(connection, view, 5)))
    return view


@pytest.fixture
def merging(
    postgresql: Settings, connection: Connection, compiled: CompiledView, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[int]]:
    """Merge the other events on another connection, after each time that a comparison has read the positions."""
    read, merged = merge.positions, list[int]()

    def read_and_merge(reading: Connection, view: CompiledView) -> Any:
        found = read(reading, view)
        if reading is connection and not merged:
            merged.append(EVENTS)
            with connect(postgresql, autocommit=True) as streaming:
                merge.apply(streaming, view, Merge(at(5), at(EVENTS), stage_events(streaming, view, 0)))
        return found

    monkeypatch.setattr(merge, "positions", read_and_merge)
    yield merged
    assert merged == [EVENTS], "no merge ran between the reads"


def compare(connection: Connection, compiled: CompiledView, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The position and the row count of a comparison that ends before the rebuild."""
    hashed: list[table_hash.TableHash] = []
    hash_table = table_hash.hash_table

    def remember(*given: Any) -> table_hash.TableHash:
        hashed.append(hash_table(*given))
        return hashed[-1]

    def behind(*_: Any) -> None:
        raise ArchiveBehind("enough")

    class Rebuilder:
        def __init__(self) -> None:
            self.connection, self.compiled = connection, compiled

        def require_reading(self) -> None: ...

    monkeypatch.setattr(table_hash, "hash_table", remember)
    monkeypatch.setattr(comparison, "_wait_for_archive", behind)
    found = comparison.compare(cast(Any, Rebuilder()))
    return found.positions.at("page_view", 0), table_hash.count_rows(hashed[0])


@pytest.mark.usefixtures("merging")
def test_hashes_and_positions_are_of_one_moment(
    connection: Connection, compiled: CompiledView, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compare(connection, compiled, monkeypatch) == (5, 5)


@pytest.mark.usefixtures("merging")
def test_without_the_snapshot_the_hashes_are_of_a_later_moment(
    connection: Connection, compiled: CompiledView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted defect shows that the merge runs between the reads."""
    monkeypatch.setattr(comparison, "_snapshot", nullcontext)
    assert compare(connection, compiled, monkeypatch) == (5, EVENTS)


def test_copied_rows_and_their_positions_are_of_one_moment(
    postgresql: Settings, connection: Connection, compiled: CompiledView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the copy comes first, and the merge runs between the copy and the reading of the positions."""
    read = merge.positions

    def merge_and_read(reading: Connection, view: CompiledView) -> Any:
        if reading is connection:
            with connect(postgresql, autocommit=True) as streaming:
                merge.apply(streaming, view, Merge(at(5), at(EVENTS), stage_events(streaming, view, 0)))
        return read(reading, view)

    monkeypatch.setattr(merge, "positions", merge_and_read)
    positions, rows = comparison.snapshot(connection, compiled, {"": range(table_hash.BUCKETS)})
    copy = sql.Identifier("recon", f"{compiled.own.name}_streamed")
    copied = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(copy)).fetchone()
    assert (positions.at("page_view", 0), rows, copied) == (5, 5, (5,))
    assert read(connection, compiled) == at(EVENTS)
