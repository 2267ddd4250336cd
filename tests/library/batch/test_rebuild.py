"""A rebuild takes exactly the records that the view has counted, and checks the rows that it stages."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from psycopg import sql

from tests.library.reconcile.test_repair import TOPIC, Ground, ground, send  # noqa: F401 — a fixture
from truelog.kernel import bad_records, merge
from truelog.kernel.merge import Excluded
from truelog.log.positions import Positions
from truelog.reconcile import certificate_store
from truelog.reconcile.reconcile import reconcile
from truelog.storage.database import connect
from truelog.support.errors import StagingTorn
from truelog.tables import stage


def at(ground: Ground) -> int:  # noqa: F811
    return ground.positions().at(TOPIC, 0)


def exclude(ground: Ground, *offsets: int) -> None:  # noqa: F811
    merge.exclude(ground.lab.connection, ground.compiled, [Excluded(TOPIC, 0, offset, "bad") for offset in offsets])


def test_a_certificate_names_the_excluded_records_below_its_positions_and_the_versions(ground: Ground) -> None:  # noqa: F811
    exclude(ground, at(ground) - 1, at(ground))
    found = reconcile(ground.rebuilder.context, ground.compiled)
    assert found.certificate is not None
    made = certificate_store.find_certificate(ground.lab.settings, found.certificate)
    assert made.excluded == ((TOPIC, 0, at(ground) - 1),)
    assert made.event_versions is not None
    assert {name: each.versions for name, each in made.event_versions.items()} == {
        TOPIC: (ground.lab.types[TOPIC].version,)
    }


@pytest.mark.parametrize(
    "staging",
    [
        lambda on: on.rebuilder.stage_rows(on.positions()),
        lambda on: on.rebuilder.stage_since(on.positions(), on.ends()),
    ],
    ids=["rebuild", "since"],
)
def test_rows_that_a_rebuild_has_staged_are_not_swept(ground: Ground, staging: Callable[[Ground], Any]) -> None:  # noqa: F811
    send(ground.lab.settings, "not merged")
    with connect(ground.lab.settings, autocommit=True) as mine, connect(ground.lab.settings, autocommit=True) as other:
        staging(replace(ground, rebuilder=replace(ground.rebuilder, connection=mine)))
        mine.execute(
            sql.SQL("INSERT INTO {} (attempt, reason, letters, row_hash) VALUES ('a', 'r', 1, 1)").format(
                stage.table(ground.compiled)
            )
        )
        stage.sweep(other, ground.compiled)
        assert staged(ground) > 0
        mine.close()
        stage.sweep(other, ground.compiled)
        assert staged(ground) == 0


def staged(ground: Ground) -> int:  # noqa: F811
    count = sql.SQL("SELECT count(*) FROM {}").format(stage.table(ground.compiled))
    [row] = ground.lab.connection.execute(count).fetchall()
    return int(str(row[0]))


def test_a_rebuild_whose_staged_rows_were_lost_is_refused(ground: Ground) -> None:  # noqa: F811
    rows = ground.rebuilder.stage_rows(ground.positions())
    with pytest.raises(StagingTorn):
        ground.rebuilder.merge_staged("state", replace(rows, attempts=("lost",), rows=rows.rows + 1))


def test_a_record_that_fails_is_excluded_before_the_next_attempt(
    ground: Ground,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(_: object, events: Callable[[], object], without: Callable[[list[Excluded]], object]) -> object:
        assert events() == {}
        return without([Excluded(TOPIC, 0, 0, "bad")])

    monkeypatch.setattr(bad_records, "exclude_and_retry", failing)
    rebuilder, end = ground.rebuilder, ground.positions()
    assert rebuilder.exclude_and_retry(dict, lambda: rebuilder.excluded(end)) == [(TOPIC, 0, 0)]


def test_a_view_whose_positions_have_no_ticks_has_no_clock(ground: Ground) -> None:  # noqa: F811
    kept = replace(ground.compiled, view=replace(ground.compiled.view, keep="1 day"))
    replace(ground.rebuilder, compiled=kept).store_ticks(Positions({TOPIC: {0: 1}}, {TOPIC: "id"}))
