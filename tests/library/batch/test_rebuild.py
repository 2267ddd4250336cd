"""A rebuild takes exactly the records that the view has counted, and checks the rows that it stages."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from psycopg import sql

from tests.library.letters import TOPIC, Letters, send
from truelog.kernel import bad_records
from truelog.kernel.exclusions import Excluded
from truelog.log.positions import Positions
from truelog.reconcile import certificate_store
from truelog.reconcile.reconcile import reconcile
from truelog.storage.database import connect
from truelog.support.errors import StagingTorn
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView


def at(letters: Letters) -> int:
    return letters.positions().at(TOPIC, 0)


def exclude(letters: Letters, *offsets: int) -> None:
    """Exclude records, as if a comparison had proved it."""
    excluded = [Excluded(TOPIC, 0, offset, "bad") for offset in offsets]
    exclusions = letters.rebuilder.exclusions(letters.positions())
    exclusions.add(excluded)
    exclusions.record_proof([each.coordinates for each in excluded], [])


def test_a_certificate_names_the_excluded_records_below_its_positions_and_the_versions(letters: Letters) -> None:
    exclude(letters, at(letters) - 1, at(letters))
    found = reconcile(letters.rebuilder.context, letters.compiled)
    assert found.certificate is not None
    made = certificate_store.find_certificate(letters.lab.settings, found.certificate)
    assert made.excluded == ((TOPIC, 0, at(letters) - 1),)
    assert made.event_versions is not None
    assert {name: each.versions for name, each in made.event_versions.items()} == {
        TOPIC: (letters.lab.types[TOPIC].version,)
    }


@pytest.mark.parametrize(
    "staging",
    [
        lambda on: on.rebuilder.stage_rows(on.positions()),
        lambda on: on.rebuilder.stage_since(on.positions(), on.ends()),
    ],
    ids=["rebuild", "since"],
)
def test_rows_that_a_rebuild_has_staged_are_not_swept(letters: Letters, staging: Callable[[Letters], Any]) -> None:
    send(letters.lab.settings, "not merged")
    with (
        connect(letters.lab.settings, autocommit=True) as mine,
        connect(letters.lab.settings, autocommit=True) as other,
    ):
        staging(replace(letters, rebuilder=replace(letters.rebuilder, connection=mine)))
        mine.execute(
            sql.SQL("INSERT INTO {} (_attempt, reason, letters, _row_hash) VALUES ('a', 'r', 1, 1)").format(
                stage.table(letters.compiled.own)
            )
        )
        stage.sweep(other, letters.compiled)
        assert staged(letters) > 0
        mine.close()
        stage.sweep(other, letters.compiled)
        assert staged(letters) == 0


def staged(letters: Letters) -> int:
    count = sql.SQL("SELECT count(*) FROM {}").format(stage.table(letters.compiled.own))
    [row] = letters.lab.connection.execute(count).fetchall()
    return int(str(row[0]))


def test_a_rebuild_whose_staged_rows_were_lost_is_refused(letters: Letters) -> None:
    rows = letters.rebuilder.stage_rows(letters.positions())
    with pytest.raises(StagingTorn):
        letters.rebuilder.merge_staged("state", replace(rows, attempts=("lost",), rows=rows.rows + 1))


def test_a_record_that_fails_is_excluded_before_the_next_attempt(
    letters: Letters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(_: object, events: Callable[[], object], without: Callable[[list[Excluded]], object]) -> object:
        assert events() == {}
        return without([Excluded(TOPIC, 0, 0, "bad")])

    monkeypatch.setattr(bad_records, "exclude_and_retry", failing)
    rebuilder, end = letters.rebuilder, letters.positions()
    assert rebuilder.exclude_and_retry(end, dict, lambda: rebuilder.excluded(end)) == [(TOPIC, 0, 0)]


def test_a_view_whose_positions_have_no_ticks_has_no_clock(letters: Letters) -> None:
    kept = replace(letters.compiled.own, view=replace(letters.compiled.view, keep="1 day"))
    rebuilder = replace(letters.rebuilder, compiled=CompiledView((kept,)))
    assert rebuilder.now(Positions({TOPIC: {0: 1}}, {TOPIC: "id"})) is None
