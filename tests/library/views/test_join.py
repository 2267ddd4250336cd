"""A Join is refused if a match cannot be subtracted, has no plain meaning, or names what does not exist."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from truelog import Join, Latest, Match, Sum, Totals, View, latest
from truelog.support.errors import BadDeclaration


def _searches(search: DataFrame) -> DataFrame:
    found = latest("event_time", query=F.substring("query", 1, 100), shown=F.size("results"), results="results")
    return search.select(F.col("event_id").alias("search_id"), found.alias("last"))


def _clicks(click: DataFrame) -> DataFrame:
    return click.select("search_id", "visitor_id", latest("event_time").alias("last"))


SEARCHES = View(reads=("search",), transform=_searches, key=("search_id",), measures={"last": Latest()})
CLICKS = View(reads=("click",), transform=_clicks, key=("search_id", "visitor_id"), measures={"last": Latest()})
CLICKED = Match(
    ("searches", "clicks"),
    on=(("searches.search_id", "clicks.search_id"),),
    where=(("searches.shown", ">", 1),),
    key={"query": "searches.query"},
)


def joined(match: Match = CLICKED, **given: Any) -> Join:
    return Join(
        **{"sides": {"searches": SEARCHES, "clicks": CLICKS}, "key": ("query",), "counts": {"n": match}} | given
    )


def test_a_join_reads_what_its_sides_read_and_owns_their_tables(lab: Lab) -> None:
    compiled = lab.compiled("clicked", joined())
    assert compiled.view.topics == ("search", "click")
    assert compiled.own.stored_columns == {"query": 'text COLLATE "C"', "n": "bigint"}
    assert [each.side for each in compiled.sources] == ["searches", "clicks"]
    assert compiled.columns["click"] >= {"search_id", "visitor_id"}
    other = lab.compiled("clicked", joined(replace(CLICKED, where=())))
    assert compiled.fingerprint != other.fingerprint


SUMMED = replace(CLICKS, transform=lambda click: click, measures={"n": Sum()})
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Match(("clicks", "clicks"), key={"a": "clicks.visitor_id"}), "names a table twice"),
    (lambda: replace(CLICKED, on=()), "does not connect 'clicks'"),
    (lambda: replace(CLICKED, key={"query": "visits.query"}), "is not a column of the tables"),
    (lambda: replace(CLICKED, key={"query": "query"}), "is not a column of the tables"),
    (lambda: replace(CLICKED, where=(("searches.shown", "!=", 1),)), "is not one of the operators"),
    (lambda: joined(sides={"searches": SEARCHES, "clicks": SUMMED}), "needs one `Latest` measure"),
    (lambda: replace(CLICKED, owned=(("clicks.visitor_id", "searches.query"),)), "which are not in `on`"),
    (lambda: joined(replace(CLICKED, owned=CLICKED.on)), "must be in the key of the side 'searches'"),
    (lambda: joined(keep="7 days"), "has no `keep`"),
    (lambda: joined(sides={"searches": replace(SEARCHES, allowed_lateness="1 hour")}), "has `allowed_lateness`"),
    (lambda: joined(key=("other",)), "where the key columns"),
]


@pytest.mark.parametrize(("declare", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_declaration_without_a_plain_meaning_is_refused(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(BadDeclaration, match=message):
        declare()


UNKNOWN = Totals(key=("query",), counts={"n": Match(("later",), key={"query": "later.query"})})
UNCOMPILED: list[tuple[Join, str]] = [
    (joined(replace(CLICKED, key={"query": "searches.text"})), "no column 'text'"),
    (joined(replace(CLICKED, where=(("searches.query", "<", 3),))), "is compared with a whole number"),
    (joined(replace(CLICKED, on=(("searches.shown", "clicks.search_id"),))), "have different types"),
    (joined(replace(CLICKED, key={"query": "searches.results"})), "can contain every value of searches.results"),
    (joined(totals={"early": UNKNOWN}), "a match uses later"),
]


@pytest.mark.parametrize(("join", "message"), UNCOMPILED, ids=[message for _, message in UNCOMPILED])
def test_a_match_that_does_not_fit_its_tables_is_refused(lab: Lab, join: Join, message: str) -> None:
    with pytest.raises(BadDeclaration, match=message):
        lab.compiled("clicked", join)


@pytest.mark.parametrize("index", [("n", "visits"), "to_tsvector('english', {visits})"])
def test_an_index_of_columns_that_do_not_exist_is_refused(lab: Lab, index: Any) -> None:
    assert lab.compiled("clicked", joined(indexes=(("query", "n"), "to_tsvector('english', {query})")))
    with pytest.raises(BadDeclaration, match="an index names visits: no such column"):
        lab.compiled("clicked", joined(indexes=(index,)))
