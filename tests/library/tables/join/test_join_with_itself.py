"""A Join that contains a table several times: mutual friends, against a loop in plain Python."""

import random
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.archived import new_archive
from tests.beds.lab import Lab
from truelog import Join, Latest, Match, View, latest
from truelog.reconcile.comparison.compare import compare
from truelog.storage.database import read_value
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.tables.stage import CHANGES


def _friends(click: DataFrame) -> DataFrame:
    """The clicks whose URL is "first:second", in both directions. A `search_id` of 0 ends a friendship."""
    both = F.explode(F.array(F.split("url", ":"), F.reverse(F.split("url", ":")))).alias("pair")
    last = latest("event_time", deleted=F.col("search_id") == "0").alias("last")
    return click.select(both, last).select(F.col("pair")[0].alias("a"), F.col("pair")[1].alias("b"), "last")


FRIENDS = View(reads=("click",), transform=_friends, key=("a", "b"), measures={"last": Latest()})
MUTUAL = Match(
    ("friends", "mine", "theirs"),
    aliases={"mine": "friends", "theirs": "friends"},
    on=(("mine.a", "friends.a"), ("theirs.a", "friends.b"), ("theirs.b", "mine.b")),
    key={"a": "friends.a", "b": "friends.b"},
)
VIEW = Join(sides={"friends": FRIENDS}, key=("a", "b"), counts={"mutual": MUTUAL})


def test_random_friendships_in_random_batches(lab: Lab, s3: Settings) -> None:
    draw, events = random.Random(7), list[tuple[str, str, int]]()
    ground = new_archive(lab, s3, VIEW)
    for batch in range(5):
        fresh = [
            (":".join(draw.sample("abcde", 2)), draw.choice("1110"), draw.randrange(1_000))
            for _ in range(draw.randrange(4, 9))
        ]
        events += fresh
        ground.click(batch % 2, fresh)
        ground.stream()
        query = sql.SQL("SELECT a, b, mutual FROM {} ORDER BY a, b")
        rows = lab.connection.execute(query.format(sql.Identifier("views", ground.compiled.name))).fetchall()
        assert rows == naive(events)
    assert len(rows) > 6
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_a_large_batch_looks_noted_rows_up_by_index(lab: Lab, s3: Settings) -> None:
    """Autovacuum has analyzed the table of noted rows between two batches, when it had none."""
    ground = new_archive(lab, s3, VIEW)
    ground.click(0, [("a:b", "1", 1)])
    ground.stream()
    notes = f"{next(each.name for each in ground.compiled.tables if each.side == 'friends')}{CHANGES}"
    lab.connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier("stage", notes)))
    before = read_rows(lab, notes)
    people = 100
    events = [(f"p{n}:p{(n + step) % people}", "1", 2) for n in range(people) for step in (1, 2)]
    ground.click(0, events)
    ground.stream()
    query = sql.SQL("SELECT count(*), sum(mutual) FROM {}").format(sql.Identifier("views", ground.compiled.name))
    assert lab.connection.execute(query).fetchone() == (4 * people, 6 * people)
    assert read_rows(lab, notes) - before < 200 * len(events)


def test_two_columns_of_one_row_must_be_equal(lab: Lab, s3: Settings) -> None:
    """A friendship with oneself is a row with equal columns, and its mutual friends are those of the person."""
    alone = Match(("friends",), on=(("friends.a", "friends.b"),), key={"a": "friends.a", "b": "friends.b"})
    counts = {"mutual": replace(MUTUAL, on=(*MUTUAL.on, ("theirs.a", "theirs.b"))), "alone": alone}
    ground = new_archive(lab, s3, replace(VIEW, counts=counts))
    ground.click(0, [(url, "1", second) for second, url in enumerate(("a:b", "a:c", "b:c", "c:c"))])
    ground.stream()
    query = sql.SQL("SELECT a, b, mutual, alone FROM {} ORDER BY a, b")
    rows = lab.connection.execute(query.format(sql.Identifier("views", ground.compiled.name))).fetchall()
    assert rows == [("a", "c", 1, 0), ("b", "c", 1, 0), ("c", "c", 1, 1)]
    assert compare(ground.rebuilder).verdict == "EQUAL"


def read_rows(lab: Lab, notes: str) -> int:
    """How many rows of a table in `stage` all statements have read."""
    lab.connection.execute("SELECT pg_stat_force_next_flush()")
    query = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE (schemaname, relname) = ('stage', %s)"
    return int(read_value(lab.connection, query, (notes,)))


def naive(events: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """The mutual friends of each pair of friends. No two events have the same time here."""
    last: dict[frozenset[str], tuple[int, str]] = {}
    for url, exists, second in events:
        pair = frozenset(url.split(":"))
        last[pair] = max(last.get(pair, (-1, "")), (second, exists))
    friends = {pair for pair, (_, exists) in last.items() if exists == "1"}
    found = Counter(
        (a, b)
        for a, b, c in permutations("abcde", 3)
        if {frozenset((a, b)), frozenset((b, c)), frozenset((a, c))} <= friends
    )
    return sorted((a, b, n) for (a, b), n in found.items())


def test_an_alias_must_be_one_of_the_tables() -> None:
    with pytest.raises(BadDeclaration, match="the aliases others are not among the tables"):
        Match(("friends",), key={"a": "friends.a"}, aliases={"others": "friends"})
