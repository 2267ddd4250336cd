"""A view of each kind forgets a person: what others sent stays, and the rows equal the rebuild from the erased archive.

The person is a value of a click: an amount of 7, or a follower.
"""

from uuid import uuid4

import pytest
from psycopg import sql

from tests.beds.archived import PER_URL, Archived, Click
from tests.builders.notifications import no_notifications, notifier_is_at, told_of, told_of_row
from tests.kinds_covered import without_view
from tests.library import click_searches
from tests.library.click_rules import MATCHES, PAIR, set_rule
from tests.library.click_rules import rows as matches
from tests.library.click_searches import HITS, hits, set_search
from tests.library.click_views import ABOVE, ONCE, TIMELINE
from truelog.archive.erasing.erase import ArchiveEraser
from truelog.archive.table import open_catalog
from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.subject import Subject
from truelog.forgetting.erase_view import ErasedView, erase_view
from truelog.reconcile.comparison.compare import compare

SECRET = b"secret"


def erase(ground: Archived, field: str, value: str) -> int:
    """Erase the archived clicks with this value, and return their number."""
    subjects = frozenset({Subject.of(SECRET, field, value)})
    wanted = Erasure(uuid4(), subjects, {"click": (field,)}, ground.positions.only(["click"]))
    with open_catalog(ground.lab.settings) as catalog:
        eraser = ArchiveEraser(catalog, ground.lab.types["click"], Erasures(SECRET, (wanted,)))
        erased = eraser.rewrite()
        eraser.expire()
    return erased


def stored(ground: Archived) -> str:
    """All rows of all tables of the view, as text."""
    connection, found = ground.lab.connection, list[str]()
    for each in ground.compiled.tables:
        query = sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier("state", each.name))
        found += [str(row) for (row,) in connection.execute(query).fetchall()]
    return "\n".join(found)


def rows(ground: Archived, columns: str) -> list[tuple[object, ...]]:
    view = sql.Identifier("views", ground.compiled.name)
    names = sql.SQL(", ").join(map(sql.Identifier, columns.split()))
    return ground.lab.connection.execute(sql.SQL("SELECT {} FROM {} ORDER BY 1, 2").format(names, view)).fetchall()


def require_erased(ground: Archived, changed: int) -> None:
    """The first erasure of the view changes so many rows, and a second one changes none. Nobody keeps a copy."""
    assert compare(ground.rebuilder).verdict == "DIFFERENT"
    assert erase_view(ground.rebuilder) == ErasedView(ground.compiled.name, changed, "EQUAL", "")
    assert erase_view(ground.rebuilder) == ErasedView(ground.compiled.name, 0, "EQUAL", "")
    assert compare(ground.rebuilder).verdict == "EQUAL"  # from typed columns
    kept = "SELECT FROM truelog.repair WHERE view = %s"
    assert ground.lab.connection.execute(kept, (ground.compiled.name,)).fetchone() is None


@pytest.mark.ground(view=PER_URL)
def test_sums_and_extremes_forget(ground: Archived) -> None:
    ground.click(0, [("a", "5", 1), ("a", "7", 9)])
    ground.click(1, [("b", "7", 3)])
    ground.tick(20)
    ground.stream()
    assert rows(ground, "url spent") == [("a", 12), ("b", 7)]
    assert erase(ground, "search_id", "7") == 2
    require_erased(ground, changed=2)
    assert rows(ground, "url spent") == [("a", 5)]
    ground.click(0, [("a", "7", 11)])  # after the end of the erasure, it counts again
    ground.stream()
    assert rows(ground, "url spent") == [("a", 12)]
    assert compare(ground.rebuilder).verdict == "EQUAL"


@pytest.mark.ground(view=ABOVE)
def test_a_group_is_folded_without_the_erased_inputs(ground: Archived) -> None:
    ground.click(0, [("a", "5", 1), ("a", "7", 2), ("c", "7", 3)])
    ground.click(1, [("b", "3", 4)])
    ground.stream()
    assert rows(ground, "url spent clicks") == [("a", 7, 1), ("b", 3, 1), ("c", 7, 1)]
    for key in ('{"url":"a","spent":7}', '{"url":"b","spent":3}'):
        told_of(ground.lab.connection, ground.compiled.name, key)
    notifier_is_at(ground.lab.connection, ground.compiled.name, ground.compiled.view.version, 0)
    told_of_row(ground.lab.connection, ground.compiled.name, '{"url":"a","spent":7}')
    assert erase(ground, "search_id", "7") == 2
    assert erase_view(ground.rebuilder).verdict == "EQUAL"
    assert rows(ground, "url spent clicks") == [("a", 5, 1), ("b", 3, 1)]
    assert "7" not in [part for line in stored(ground).splitlines() for part in line.strip("()").split(",")]
    ground.require_output()
    assert compare(ground.rebuilder).verdict == "EQUAL"
    told = ground.lab.connection.execute("SELECT key FROM truelog.notification_row").fetchall()
    assert told == [('{"url":"b","spent":3}',)]  # nothing about the vanished row is retracted
    ends = ground.lab.connection.execute("SELECT says FROM truelog.notification_delivery WHERE says <> 'opened'")
    assert ends.fetchall() == [("ended",)]  # a rule about rows says that it has ended
    no_notifications(ground.lab.connection)


@pytest.mark.ground(view=ONCE)
def test_a_copy_of_an_erased_event_counts(ground: Archived) -> None:
    ground.append(0, [Click("x", 1, "a", "7"), Click("x", 2, "a", "3"), Click("y", 3, "a", "2")])
    ground.stream()
    assert rows(ground, "url spent") == [("a", 9)]
    assert erase(ground, "search_id", "7") == 1
    assert erase_view(ground.rebuilder).verdict == "EQUAL"
    assert rows(ground, "url spent") == [("a", 5)]
    ground.append(0, [Click("x", 5, "a", "8")])  # a copy of the event that counts now
    ground.stream()
    assert rows(ground, "url spent") == [("a", 5)]
    assert compare(ground.rebuilder).verdict == "EQUAL"


@pytest.mark.ground(view=TIMELINE)
def test_a_join_keeps_what_others_see(ground: Archived) -> None:
    clicks = [("follow:ann:bob", "1", 1), ("follow:cid:bob", "1", 2), ("tweet:t1:bob", "1", 3)]
    ground.click(0, clicks)
    ground.stream()
    assert rows(ground, "reader tweet") == [("ann", "t1"), ("cid", "t1")]
    assert erase(ground, "url", "follow:ann:bob") == 1
    assert erase_view(ground.rebuilder).verdict == "EQUAL"
    assert rows(ground, "reader tweet") == [("cid", "t1")]
    assert "ann" not in stored(ground)
    ground.require_output()
    ground.click(0, [("tweet:t2:bob", "1", 5)])
    ground.stream()
    assert rows(ground, "reader tweet") == [("cid", "t1"), ("cid", "t2")]
    assert compare(ground.rebuilder).verdict == "EQUAL"


@pytest.mark.ground(view=MATCHES)
def test_a_match_of_an_erased_event_disappears(ground: Archived) -> None:
    set_rule(ground, "pair", **PAIR)
    ground.click(0, [("a", "1", 10_801), ("a", "ann", 10_802), ("a", "5", 10_803)])
    ground.click(1, [("b", "1", 10_801), ("b", "ann", 10_802)])
    ground.stream()
    assert [row[-1] for row in matches(ground)] == ["0:0 0:1", "1:0 1:1"]
    assert erase(ground, "search_id", "ann") == 2
    assert erase_view(ground.rebuilder).verdict == "EQUAL"
    assert [row[-1] for row in matches(ground)] == ["0:0 0:2"]
    assert "ann" not in stored(ground)
    ground.require_output()
    ground.click(1, [("b", "5", 10_804)])
    ground.stream()
    assert [row[-1] for row in matches(ground)] == ["0:0 0:2", "1:0 1:2"]
    assert compare(ground.rebuilder).verdict == "EQUAL"


@pytest.mark.ground(view=HITS)
def test_a_hit_of_an_erased_text_disappears(ground: Archived) -> None:
    set_search(ground, "outage", "down")
    click_searches.click(ground, "ann is down", "bob is down")
    assert hits(ground) == [("outage", 1, "0:0"), ("outage", 1, "0:1")]
    assert erase(ground, "url", "ann is down") == 1
    assert erase_view(ground.rebuilder).verdict == "EQUAL"
    assert hits(ground) == [("outage", 1, "0:1")]
    assert "ann" not in stored(ground)
    ground.require_output()
    click_searches.click(ground, "cid is down")
    assert hits(ground) == [("outage", 1, "0:1"), ("outage", 1, "0:2")]
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_each_kind_of_table_has_a_case() -> None:
    marks = [mark for each in globals().values() for mark in getattr(each, "pytestmark", ())]
    assert without_view(mark.kwargs["view"] for mark in marks if mark.name == "ground") == []
