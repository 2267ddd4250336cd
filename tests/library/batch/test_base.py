"""An incremental comparison begins from a base, and reads everything if anything about the base is in doubt."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from psycopg import sql
from pyspark.sql import functions as F

from tests.beds.archived import drop_base
from tests.library.letters import TOPIC, Letters
from truelog.archive import reader as archive_reader
from truelog.archive.table import open_catalog
from truelog.batch import base
from truelog.kernel.exclusions import Excluded
from truelog.log.positions import Range
from truelog.reconcile import certificate_store
from truelog.reconcile.certificate import Certificate
from truelog.reconcile.comparison import hashed_rebuild
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest, ReconcileResult
from truelog.storage import bucket
from truelog.support.settings import CATALOG

REASONS = [f"reason {n}" for n in range(20)]


class Compared(Letters):
    """Letters whose view is compared incrementally."""

    def compare(self, *, incremental: bool = True) -> ReconcileResult:
        return reconcile(self.rebuilder.context, self.compiled, ReconcileRequest(incremental=incremental))

    def certificate(self, result: ReconcileResult) -> Certificate:
        assert result.certificate is not None
        return certificate_store.find_certificate(self.lab.settings, result.certificate)

    def base(self) -> base.Base | None:
        return base.load(self.lab.connection, self.compiled)

    def change_a_row(self) -> None:
        query = sql.SQL("UPDATE {} SET letters = 7 WHERE reason = 'a'")
        self.lab.connection.execute(query.format(sql.Identifier("state", self.compiled.own.name)))


@pytest.fixture
def compared(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> Compared:
    context = letters.rebuilder.context
    context = replace(context, settings=context.settings.model_copy(update={"base_rows": 2}))
    made = Compared(letters.lab, letters.compiled, replace(letters.rebuilder, context=context))
    made.counts("a", "b", "a")
    return made


def test_only_records_since_the_base_are_read(compared: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    first, begin = compared.compare(), compared.positions()
    assert (first.equal, first.base) == (True, None)
    compared.counts("b", "c")
    read: list[list[Range]] = []
    original = archive_reader.read_events

    def watch(*given: object, **more: object) -> object:
        read.append(list(given[3].ranges))  # type: ignore[attr-defined]
        return original(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(archive_reader, "read_events", watch)
    second = compared.compare()
    assert (second.equal, second.base, second.reason, second.rows) == (True, first.certificate, "", 3)
    assert [each for ranges in read for each in ranges] == begin.ranges_to(compared.positions())
    stored = "SELECT base FROM truelog.reconciliation WHERE view = %s ORDER BY id"
    bases = compared.lab.connection.execute(stored, (compared.compiled.name,)).fetchall()
    assert bases == [(None,), (first.certificate,)]

    whole = compared.certificate(compared.compare(incremental=False))
    assert compared.certificate(second).buckets == whole.buckets
    assert compared.certificate(second).positions == whole.positions


def test_a_changed_old_row_is_found(compared: Compared) -> None:
    assert compared.compare().equal
    compared.change_a_row()
    compared.counts("b")
    found = compared.compare()
    assert (found.verdict, found.different, found.base) == ("DIFFERENT", 1, None)


def _change_rows(compared: Compared) -> None:
    rows = f"{CATALOG}.{base.NAMESPACE}.{compared.compiled.own.name}"
    wrong = compared.lab.spark.table(rows).withColumn("row", F.col("row").withField("letters", F.lit(9)))
    wrong.localCheckpoint().writeTo(rows).overwrite(F.lit(True))
    update = "UPDATE truelog.base SET snapshot = %s WHERE view = %s"
    snapshot = base._snapshot(compared.lab.settings, compared.compiled.own)
    compared.lab.connection.execute(update, (snapshot, compared.compiled.name))


def _change_slices(compared: Compared) -> None:
    update = "UPDATE truelog.base SET slices = '{}' WHERE view = %s"
    compared.lab.connection.execute(update, (compared.compiled.name,))


def _lose_rows(compared: Compared) -> None:
    drop_base(compared.lab.settings, compared.compiled)


def _lose_certificate(compared: Compared) -> None:
    update = "UPDATE truelog.base SET certificate = 'none-20260101' WHERE view = %s"
    compared.lab.connection.execute(update, (compared.compiled.name,))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_change_rows, "are not as they were written"),
        (_change_slices, "do not add up to certificate"),
        (_lose_rows, ""),
        (_lose_certificate, "no such certificate"),
    ],
)
def test_a_base_that_was_changed_is_found_and_made_again(
    compared: Compared, change: Callable[[Compared], None], reason: str
) -> None:
    assert compared.compare().equal
    before = compared.base()
    assert before is not None
    change(compared)
    compared.counts("a")
    found = compared.compare()
    assert (found.equal, found.base) == (True, None)
    assert found.reason.startswith("the base could not be used and is made again: ")
    assert reason in found.reason
    made = compared.base()
    assert made is not None
    assert (made.certificate, made.begun_at > before.begun_at) == (found.certificate, True)
    compared.counts("b")
    assert compared.compare().base == found.certificate


def _exclude(compared: Compared) -> None:
    """Exclude a record, as if a comparison had proved it."""
    exclusions, bad = compared.rebuilder.exclusions(compared.positions()), Excluded(TOPIC, 0, 0, "bad")
    exclusions.add([bad])
    exclusions.record_proof([bad.coordinates], [])


def _age(compared: Compared) -> None:
    compared.lab.connection.execute("UPDATE truelog.base SET begun_at = begun_at - interval '25 hours'")


@pytest.mark.parametrize("change", [_exclude, _age])
def test_a_base_that_is_no_longer_valid_is_not_used(compared: Compared, change: Callable[[Compared], None]) -> None:
    first = compared.compare()
    assert first.equal
    change(compared)
    found = compared.compare()
    assert (found.base, found.reason) == (None, "")


def test_a_base_that_another_release_of_spark_has_made_is_not_used(
    compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compared.compare().equal
    with monkeypatch.context() as patched:
        patched.setattr(hashed_rebuild, "software_versions", lambda _: {"spark": "5.0.0"})
        found = compared.compare()
    assert (found.equal, found.base, found.reason) == (True, None, "")


def test_a_base_from_before_an_erasure_is_not_used(compared: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared.compare().equal
    monkeypatch.setattr(archive_reader, "erased_below", lambda *_: {TOPIC: 1})
    found = compared.compare()
    assert (found.equal, found.base, found.reason) == (True, None, "")


def test_a_base_that_a_whole_comparison_contradicts_is_forgotten(compared: Compared) -> None:
    assert compared.compare().equal
    compared.change_a_row()
    assert compared.compare(incremental=False).verdict == "DIFFERENT"
    assert compared.base() is None


def test_a_base_is_written_only_where_that_is_less_work(compared: Compared) -> None:
    """Most slices change, so the next comparison begins from the same base and reads more records."""
    compared.counts(*REASONS)
    first = compared.compare()
    compared.counts(*REASONS[:15])
    second = compared.compare()
    compared.counts("a")
    third = compared.compare()
    assert [each.base for each in (first, second, third)] == [None, first.certificate, first.certificate]
    assert {each.verdict for each in (first, second, third)} == {"EQUAL"}


def test_a_small_view_has_no_base(compared: Compared) -> None:
    assert compared.compare(incremental=False).equal
    assert compared.base() is None
    small = compared.rebuilder.context.settings.model_copy(update={"base_rows": 3})
    context = replace(compared.rebuilder.context, settings=small)
    assert reconcile(context, compared.compiled, ReconcileRequest(incremental=True)).equal
    assert compared.base() is None


def test_a_dropped_base_leaves_no_rows(compared: Compared) -> None:
    settings, connection = compared.rebuilder.context.settings, compared.lab.connection
    assert compared.compare().equal
    with open_catalog(settings) as catalog:
        location = catalog.load_table(f"{base.NAMESPACE}.{compared.compiled.own.name}").location()
    assert any(each.endswith(".parquet") for each in bucket.object_sizes(settings, location))
    base.drop(connection, settings, compared.compiled)
    assert not bucket.object_sizes(settings, f"{location}/")
    base.drop(connection, settings, compared.compiled)
    assert compared.base() is None
    again = compared.compare()
    assert (again.equal, again.base) == (True, None)
    assert compared.base() is not None
