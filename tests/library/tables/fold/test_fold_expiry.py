"""A Group with `keep`: the inputs, checkpoints and rows of a group expire in one merge."""

from dataclasses import replace

import pytest
from psycopg import sql

from tests.beds.archived import Archived
from tests.library.tables.fold.spent import IN_STEPS
from truelog.reconcile.comparison.compare import compare

HOUR = 3600


def two_minutes(ground: Archived) -> None:
    ground.click(0, [("a", "1", 0), ("a", "2", 1), ("a", "4", 50 * 60), ("a", "8", 50 * 60)])
    ground.stream()


pytestmark = pytest.mark.ground(view=replace(IN_STEPS, keep="1 hour"), filled=two_minutes)


def rows(ground: Archived) -> list[tuple[object, ...]]:
    """By table: how many rows it has, and how many of the first minute."""
    found = list[tuple[object, ...]]()
    for each in ground.compiled.tables:
        query = sql.SQL("SELECT count(*), count(*) FILTER (WHERE date_part('minute', minute) = 0) FROM {}")
        found += ground.lab.connection.execute(query.format(sql.Identifier("state", each.name))).fetchall()
    return found


def require_equal(ground: Archived) -> None:
    assert compare(ground.rebuilder).verdict == "EQUAL"
    assert compare(replace(ground.rebuilder, from_raw=True)).verdict == "EQUAL"


def test_a_group_expires_with_all_its_inputs(ground: Archived) -> None:
    assert rows(ground) == [(2, 1), (4, 2), (2, 1)]
    ground.tick(HOUR + 120)
    ground.stream()
    assert rows(ground) == [(1, 0), (2, 0), (1, 0)]
    require_equal(ground)


def test_an_event_of_an_expired_group_changes_nothing(ground: Archived) -> None:
    ground.tick(HOUR + 120)
    ground.stream()
    ground.click(1, [("a", "16", 2), ("a", "32", 50 * 60)])
    ground.stream()
    assert rows(ground) == [(1, 0), (3, 0), (1, 0)]
    query = sql.SQL("SELECT spent FROM {}").format(sql.Identifier("views", ground.compiled.name))
    assert ground.lab.connection.execute(query).fetchall() == [(44,)]
    require_equal(ground)
