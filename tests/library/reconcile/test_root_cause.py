"""For planted differences, only causes that can be proved are reported."""

from dataclasses import replace
from datetime import timedelta

import pytest
from psycopg import sql

from tests.beds.archived import MORNING, Archived
from tests.beds.lab import with_own
from truelog.archive.table import identifier, open_catalog
from truelog.batch import partials
from truelog.batch.partial_selection import PartialRange
from truelog.log.positions import Positions
from truelog.reconcile import root_cause, row_diff
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.offset_search import Cause
from truelog.reconcile.reconcile import reconcile, refused_result
from truelog.reconcile.reconcile_result import COMPARE_ONLY, ReconcileRequest, ReconcileResult
from truelog.storage import bucket
from truelog.tables import kinds, stage

BATCH = ({0: 11, 1: 9}, {0: 23, 1: 17})
WRONG_DAY = MORNING - timedelta(days=1)
NAMED = "exactly the records click 0:[11, 23), click 1:[9, 17)"


def seventy_clicks(ground: Archived) -> None:
    """Seventy clicks on seventeen URLs in two partitions, a few in each minute."""
    for partition, number in ((0, 40), (1, 30)):
        clicks = [(f"u{(7 * i + 3 * partition) % 17}", str(1 + i % 3), i // 12 * 60) for i in range(number)]
        ground.click(partition, clicks)
    ground.stream()


pytestmark = pytest.mark.ground(filled=seventy_clicks)


def at(ground: Archived, clicks: dict[int, int]) -> Positions:
    return Positions({"click": clicks, "ticks": {0: 0}}, ground.ids)


def add(ground: Archived, begin: dict[int, int], end: dict[int, int]) -> None:
    """Add these records to the streamed table without changing the view's positions."""
    states = ground.rebuilder.states_between(ground.compiled.own, at(ground, begin), at(ground, end))
    staged = stage.stage_rows(states, ground.compiled.own, ground.lab.settings)
    kinds.add(ground.lab.connection, ground.compiled, "state", staged)


def change(ground: Archived, statement: str) -> None:
    """Change one row of the streamed table. In the statement, `{}` is the table's name."""
    table = sql.Identifier("state", ground.compiled.own.name)
    assert ground.lab.connection.execute(sql.SQL(statement).format(table, table)).rowcount == 1


def stored(ground: Archived) -> list[tuple[object, ...]]:
    """The rows, with the ids of the transactions that wrote them."""
    query = sql.SQL("SELECT xmin::text, t.* FROM {} AS t ORDER BY minute, url")
    table = sql.Identifier("state", ground.compiled.own.name)
    return ground.lab.connection.execute(query.format(table)).fetchall()


def causes(found: ReconcileResult) -> list[tuple[str, int, str]]:
    return [(each["cause"], each["rows"], each["about"]) for each in found.causes]


def test_a_lost_or_duplicated_batch_is_distinguished_from_a_change_by_hand(ground: Archived) -> None:
    begin, end = BATCH
    add(ground, begin, end)
    change(ground, "INSERT INTO {} VALUES ('2020-01-01', 'nobody', 1, now())")
    found = compare(ground.rebuilder)
    assert causes(found) == [
        (Cause.DUPLICATE, found.different, NAMED),
        (Cause.HAND, 1, "no event has the key"),
    ]
    assert {(row["rebuilt"] is None, row["cause"]) for row in found.sample} == {
        (False, "duplicate"),
        (True, "wrong value by hand"),
    }
    assert len(found.sample) == found.different + 1

    ground.lab.connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier("state", ground.compiled.own.name)))
    add(ground, {0: 0, 1: 0}, begin)
    add(ground, end, {0: 40, 1: 30})
    lost = compare(ground.rebuilder)
    assert causes(lost) == [(Cause.LOST, lost.missing + lost.different, NAMED)]


def test_a_row_that_no_batch_explains_was_changed_by_hand(ground: Archived) -> None:
    first = "WHERE ctid = (SELECT min(ctid) FROM {})"
    change(ground, f"UPDATE {{}} SET last = last + interval '1 day' {first}")
    change(ground, f"UPDATE {{}} SET spent = spent * 3 {first}")  # another row, because PostgreSQL moves an updated row
    change(ground, f"UPDATE {{}} SET spent = spent - 1, last = last + interval '1 second' {first}")
    found = compare(ground.rebuilder)
    assert sorted(causes(found)) == [
        (Cause.HAND, 1, "a sum is negative, or more than twice what the key's events add"),
        (Cause.HAND, 2, "no lost or duplicated range of records explains these rows; the archive's files are complete"),
    ]


@pytest.mark.nightly
def test_a_lost_batch_is_found_beside_a_row_that_was_raised_by_hand(ground: Archived) -> None:
    """Together, no range explains them, because a loss lowers sums only."""
    ground.lab.connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier("state", ground.compiled.own.name)))
    begin, end = BATCH
    add(ground, {0: 0, 1: 0}, begin)
    add(ground, end, {0: 40, 1: 30})
    lost = compare(ground.rebuilder)
    state, diff = sql.Identifier("state", ground.compiled.own.name), row_diff.diff_table(ground.compiled.own)
    raised = sql.SQL(
        "UPDATE {0} SET spent = spent + 1, last = last + interval '1 second' WHERE (minute, url) = "
        "(SELECT minute, url FROM {0} EXCEPT SELECT minute, url FROM {1} LIMIT 1)"
    ).format(state, diff)
    assert ground.lab.connection.execute(raised).rowcount == 1
    found = compare(ground.rebuilder)
    assert sorted(causes(found)) == [
        (Cause.LOST, lost.missing + lost.different, NAMED),
        (Cause.HAND, 1, "no lost or duplicated range of records explains these rows; the archive's files are complete"),
    ]


@pytest.mark.nightly
def test_a_row_with_an_event_that_adds_nothing_is_unknown(ground: Archived) -> None:
    """The loss of the event would also change only `last`."""
    ground.click(0, [("empty", "0", 0), ("empty", "2", 1)])
    ground.stream()
    change(ground, "UPDATE {} SET last = last - interval '1 second' WHERE url = 'empty'")
    about = "not searched: some of the key's events add nothing to any sum"
    assert causes(compare(ground.rebuilder)) == [(Cause.UNKNOWN, 1, about)]


def test_what_the_time_limit_leaves_out_is_unknown(ground: Archived) -> None:
    change(ground, "UPDATE {} SET spent = spent + 1 WHERE ctid = (SELECT min(ctid) FROM {})")
    ground.lab.settings = ground.lab.settings.model_copy(update={"cause_seconds": 0.01})
    found = compare(ground.rebuilder)
    about = "not searched further: the investigation took more than 0.01 s"
    assert (found.verdict, causes(found)) == ("DIFFERENT", [(Cause.UNKNOWN, 1, about)])


def make_a_wrong_partial(ground: Archived) -> None:
    """A partial of all records, without a URL."""
    begin, ends = at(ground, {0: 0, 1: 0}), ground.positions
    short = ground.rebuilder.states_between(ground.compiled.own, begin, ends).where("url <> 'u3'")
    tile = PartialRange(WRONG_DAY, begin, ends)
    partials.replace(ground.lab.spark, ground.lab.settings, ground.compiled.own, tile, short)


def test_a_wrong_partial_is_named(ground: Archived) -> None:
    make_a_wrong_partial(ground)
    found = compare(ground.rebuilder)
    assert found.extra > 0
    assert [(cause, rows) for cause, rows, _ in causes(found)] == [(Cause.PARTIAL, found.extra)]
    assert compare(replace(ground.rebuilder, from_raw=True)).equal


def test_a_wrong_partial_that_is_not_searched_for_replaces_no_row(
    ground: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows differ than are investigated."""
    make_a_wrong_partial(ground)
    ground.lab.settings = ground.lab.settings.model_copy(update={"repair_rows": 1_000})
    monkeypatch.setattr(root_cause, "_MAX_ROWS", 0)
    before = stored(ground)
    found = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (found.verdict, found.repaired, found.mended_days) == ("EQUAL", 0, (WRONG_DAY.isoformat(),))
    assert stored(ground) == before


def test_a_wrong_partial_beside_a_change_by_hand_replaces_no_correct_row(ground: Archived) -> None:
    ground.lab.settings = ground.lab.settings.model_copy(update={"repair_rows": 1_000})
    make_a_wrong_partial(ground)
    right = stored(ground)
    change(ground, "UPDATE {} SET spent = spent + 1 WHERE ctid = (SELECT min(ctid) FROM {} WHERE url <> 'u3')")
    found = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (found.verdict, found.different, found.extra, found.repaired) == ("DIFFERENT", 1, 0, 0)
    assert found.mended_days == (WRONG_DAY.isoformat(),)
    found = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (found.verdict, found.repaired) == ("EQUAL", 1)
    assert len({*right} - {*stored(ground)}) == 1, "only the row that was changed by hand was written again"


def test_a_missing_archive_file_and_changed_code_are_named(ground: Archived) -> None:
    settings, rebuilder = ground.lab.settings, ground.rebuilder
    other = with_own(ground.compiled, fingerprint="other")
    changed = reconcile(ground.lab.context, other)
    assert (changed.verdict, [cause for cause, *_ in causes(changed)]) == ("UNKNOWN", [Cause.CODE])

    with open_catalog(settings) as catalog:
        archive = catalog.load_table(identifier("click"))
        archive.delete("partition = 1")
    found = compare(rebuilder)
    assert causes(found) == [
        (Cause.FILE, found.extra + found.different, "click 1: the files contain 0 records, but 30 were committed")
    ]
    kept = reconcile(ground.lab.context, ground.compiled).id
    query = "SELECT causes -> 0 ->> 'cause' FROM truelog.reconciliation WHERE id = %s"
    assert ground.lab.connection.execute(query, (kept,)).fetchone() == ("missing archive file",)

    [file] = [task.file.file_path for task in archive.refresh().scan("partition = 0").plan_files()]
    bucket.s3_client(settings).delete_object(
        Bucket=settings.s3_bucket, Key=file.removeprefix(f"s3://{settings.s3_bucket}/")
    )
    unread = refused_result(settings, ground.compiled, COMPARE_ONLY, reason=OSError("no such object"))
    assert f"{file} is missing from the bucket" in causes(unread)[0][2]
    assert refused_result(settings, ground.compiled, COMPARE_ONLY, reason="the file is broken").causes == ()
