"""Partials that lack expired rows are not used at earlier positions: after a restore, and for a fallback."""

import pytest
from psycopg import sql

from tests.beds.archived import MORNING, Archived
from truelog.batch import partials
from truelog.batch.answer import build_answer
from truelog.batch.partial_selection import PartialRange
from truelog.log.positions import Positions
from truelog.reconcile.comparison.compare import compare


def restored(ground: Archived) -> None:
    """A database and an archive from a backup. Upkeep has dropped the rows of partials since then."""
    ground.click(0, [("a", "1", 10), ("b", "2", 90)])
    ground.tick(100)
    ground.stream()
    begin, end = Positions({}, ground.ids), ground.positions
    own, spark, settings = ground.compiled.own, ground.lab.spark, ground.lab.settings
    states = ground.rebuilder.states_between(own, begin, end)
    partials.replace(spark, settings, own, PartialRange(MORNING, begin, end), states)
    partials.drop_before(spark, settings, own, MORNING.replace(hour=1))
    left = partials.load_partials(settings, own)
    kept = left.read(spark, left.ranges)
    assert kept is not None
    assert kept.count() == 0


pytestmark = pytest.mark.ground(filled=restored)


def rows(ground: Archived, schema: str) -> list[tuple[object, ...]]:
    query = sql.SQL("SELECT url, spent FROM {} ORDER BY 1").format(sql.Identifier(schema, ground.compiled.own.name))
    return ground.lab.connection.execute(query).fetchall()


def test_a_restored_view_equals_its_rebuild(ground: Archived) -> None:
    assert rows(ground, "state") == [("a", 1), ("b", 2)]
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_a_fallback_has_the_rows_of_its_own_time(ground: Archived) -> None:
    assert build_answer(ground.rebuilder, lambda _: True) == ground.positions
    assert rows(ground, "batch") == [("a", 1), ("b", 2)]
