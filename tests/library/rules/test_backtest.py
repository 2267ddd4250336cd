"""A backtest finds what a stream finds with the same rule, and says what waits, what it cost and what it cannot do."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from psycopg import sql

from tests.beds.archived import MORNING, Archived
from tests.library.click_rules import ALONE, MATCHES, PAIR, SOURCES, definition, places, rows, set_rule
from truelog.log.positions import Positions
from truelog.patterns import files
from truelog.rules import archived
from truelog.rules.backtest import Asked, Backtest, backtest
from truelog.storage.database import names
from truelog.support.errors import ArchiveBehind, BadInput
from truelog.tables.patterns.judging import judging_of
from truelog.views.patterns import Patterns

HOUR = 3 * 3600  # when the records reach the log


def an_hour_of_clicks(ground: Archived) -> None:
    ground.click(0, [("a", "1", HOUR - 1)])
    ground.tick(HOUR)
    set_rule(ground, "pair", **PAIR)
    set_rule(ground, "alone", **ALONE)
    ground.appended = HOUR + 60
    ground.click(0, [("a", "1", HOUR + 10), ("a", "5", HOUR + 11), ("b", "1", HOUR + 12)])
    ground.click(1, [("b", "2", HOUR + 13), ("c", "1", HOUR + 50)])
    ground.tick(HOUR + 100)
    ground.stream()


SOURCE = replace(SOURCES["click"], longest={"page": "1 minute"})
SPANNED = Patterns(sources={"click": SOURCE}, most=50)  # most of the clicks are close to the end of a span

pytestmark = pytest.mark.ground(view=MATCHES, filled=an_hour_of_clicks)


def at(second: int) -> datetime:
    return MORNING + timedelta(seconds=second)


def search(ground: Archived, name: str, begin: int, end: int | None = None, **fields: object) -> Backtest:
    view = ground.compiled.view
    assert isinstance(view, Patterns)
    declared = files.read(definition(name, **fields), view.sources)
    asked = Asked(declared, at(begin), None if end is None else at(end))
    return backtest(ground.lab.context, ground.compiled, asked, lambda ended, tasks: None)


def test_a_backtest_finds_the_matches_of_a_stream_with_the_same_beginning(ground: Archived) -> None:
    found = search(ground, "pair", HOUR, **PAIR)
    streamed = [(entity, events) for rule, _, entity, _, events in rows(ground) if rule == "pair"]

    samples = [(each["entity_id"], places(each["events"])) for each in found.samples]
    assert sorted(samples) == streamed == [("a", "0:1 0:2"), ("b", "0:3 1:0")]
    assert found.days == {"2026-03-01": {"found": 2}}
    assert (found.entities, found.events, found.cost.records, found.waiting) == (3, 5, 5, 0)
    assert found.samples[0]["events"][0]["values"] == {"search_id": "1"}
    assert found.begins.plain() == {"click": {0: 1, 1: 0}}


def test_the_inputs_are_those_that_the_view_has_stored(ground: Archived) -> None:
    table = judging_of(ground.compiled.own).inputs
    columns = [name for name in table.stored_columns if name != "span_end"]
    found = archived.inputs(ground.rebuilder, Positions(), ground.positions.only(["click"])).select(*columns).collect()
    query = sql.SQL("SELECT {} FROM {}").format(names(columns), sql.Identifier("state", table.name))
    assert sorted(map(tuple, found)) == sorted(ground.lab.connection.execute(query).fetchall())
    assert len(found) == 6


@pytest.mark.ground(view=SPANNED, filled=an_hour_of_clicks)
def test_an_event_that_two_spans_read_is_counted_once(ground: Archived) -> None:
    found = search(ground, "pair", HOUR, **PAIR)
    assert (found.entities, found.events, found.matches) == (3, 5, 2)
    every = search(ground, "pair", 0, **PAIR)
    assert (every.entities, every.events, every.matches) == (3, 6, 2)


def test_from_the_beginning_of_the_log_and_until_an_earlier_time(ground: Archived) -> None:
    every = search(ground, "pair", 0, **PAIR | {"within": "1 hour"})
    assert (every.matches, every.events) == (2, 6)
    until = search(ground, "pair", 0, HOUR, **PAIR)
    assert (until.matches, until.events, until.as_dict()["ends"]) == (0, 1, {"click": {0: 1, 1: 0}})


def test_a_match_that_no_tick_has_settled_waits(ground: Archived) -> None:
    found = search(ground, "alone", HOUR, **ALONE)
    assert (found.matches, found.waiting) == (1, 1)
    assert [each["entity_id"] for each in found.samples] == ["a"]


def test_times_that_the_log_or_the_archive_does_not_know(ground: Archived) -> None:
    with pytest.raises(BadInput, match="is not before"):
        search(ground, "pair", HOUR + 100, HOUR, **PAIR)
    with pytest.raises(ArchiveBehind, match="knows the log up to"):
        search(ground, "pair", 0, HOUR + 101, **PAIR)
