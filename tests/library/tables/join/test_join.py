"""A Join against a loop in plain Python: any order of events, any batches, wrong rows, and every way to rebuild."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from psycopg import sql

from tests.beds.archived import Archived
from tests.library.click_views import POPULAR, TIMELINE
from truelog.batch import rejudge
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.offset_search import Cause
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.serving import fallback
from truelog.tables import stage
from truelog.tables.table import Table


@dataclass
class Oracle:
    """The rows of the tables, by a loop over all events."""

    events: list[tuple[str, str, int]] = field(default_factory=list)

    def live(self, kind: str) -> dict[str, str]:
        """What the last event of each identity says, by event time and then by the order of the log."""
        last: dict[str, tuple[int, int, str, str]] = {}
        for number, (url, exists, second) in enumerate(self.events):
            of, one, two = url.split(":")
            if of == kind:
                identity = one if kind == "tweet" else f"{one}:{two}"
                last[identity] = max(last.get(identity, (-1, 0, "", "")), (second, number, exists, two))
        return {identity: two for identity, (_, _, exists, two) in last.items() if exists != "0"}

    def timeline(self) -> list[tuple[str, str, int]]:
        follows = [tuple(each.split(":")) for each in self.live("follow")]
        followers = Counter(followee for _, followee in follows)
        return sorted(
            (reader, tweet, 1)
            for tweet, author in self.live("tweet").items()
            for reader, followee in follows
            if followee == author and followers[author] <= POPULAR
        )


@dataclass
class Timeline:
    archived: Archived
    oracle: Oracle

    def send(self, *events: tuple[str, str, int]) -> None:
        """Archive and stream these events as one batch."""
        self.oracle.events += events
        self.archived.click(0, events)
        self.archived.stream()

    def rows(self) -> list[tuple[object, ...]]:
        view = sql.Identifier("views", self.archived.compiled.name)
        query = sql.SQL("SELECT reader, tweet, entries FROM {} ORDER BY reader, tweet").format(view)
        return self.archived.lab.connection.execute(query).fetchall()

    def require_right(self) -> None:
        assert self.rows() == self.oracle.timeline()
        assert compare(self.archived.rebuilder).verdict == "EQUAL"
        self.archived.require_output()

    def table(self, side: str) -> Table:
        return {each.side: each for each in self.archived.compiled.tables}[side]

    def spoil(self, side: str, statement: str) -> None:
        name = sql.Identifier("state", self.table(side).name)
        assert self.archived.lab.connection.execute(sql.SQL(statement).format(name)).rowcount == 1


pytestmark = pytest.mark.ground(view=TIMELINE)


@pytest.fixture
def timeline(ground: Archived) -> Timeline:
    return Timeline(ground, Oracle())


FOLLOW, UNFOLLOW = ("follow:ann:bob", "1", 1), ("follow:ann:bob", "0", 2)
TWEET, DELETE = ("tweet:t1:bob", "1", 3), ("tweet:t1:bob", "0", 4)
ORDERS = [
    [FOLLOW, TWEET],
    [TWEET, FOLLOW],
    [FOLLOW, FOLLOW, TWEET, UNFOLLOW],
    [UNFOLLOW, TWEET],
    [UNFOLLOW, FOLLOW, TWEET],
    [FOLLOW, DELETE, TWEET],
    [FOLLOW, TWEET, DELETE, DELETE],
    [FOLLOW, TWEET, UNFOLLOW, ("follow:ann:bob", "1", 9)],
    [FOLLOW, TWEET, ("tweet:t1:eve", "1", 9)],
]


def test_any_order_of_events_gives_the_rows_of_a_loop(timeline: Timeline) -> None:
    """Each order has people and tweets of its own, and one event of each order is in a batch."""
    numbered = [
        [(url.replace(":", f":{number}"), exists, second) for url, exists, second in order]
        for number, order in enumerate(ORDERS)
    ]
    for batch in range(4):
        timeline.send(*(order[batch] for order in numbered if batch < len(order)))
        assert timeline.rows() == timeline.oracle.timeline()
    assert len(timeline.rows()) == 3
    timeline.require_right()
    _require_no_noted_row(timeline)


def test_an_author_who_becomes_popular_vanishes_from_timelines_and_returns(timeline: Timeline) -> None:
    timeline.send(FOLLOW, TWEET, ("tweet:t2:bob", "1", 5), ("follow:cid:bob", "1", 6))
    assert len(timeline.rows()) == 4
    timeline.send(("follow:dan:bob", "1", 7))
    assert timeline.rows() == []
    timeline.send(("follow:dan:bob", "0", 8), ("tweet:t3:bob", "1", 9))
    assert len(timeline.rows()) == 6
    timeline.require_right()


def test_a_batch_like_an_earlier_one_needs_no_new_statement(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL then plans the statements of the merge once for the session. The staged rows are parameters."""
    connection = timeline.archived.lab.connection
    monkeypatch.setattr(connection, "prepare_threshold", 0)
    monkeypatch.setattr(connection, "prepared_max", 10_000)

    def merge_statements() -> set[str]:
        query = "SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%_changes\"%'"
        return {str(statement) for (statement,) in connection.execute(query, prepare=False).fetchall()}

    for number in range(2):
        timeline.send((f"follow:ann:bob{number}", "1", number), (f"tweet:t{number}:bob{number}", "1", number))
    before = merge_statements()
    timeline.send(("follow:ann:eve", "1", 5), ("tweet:t5:eve", "1", 6))
    assert merge_statements() == before
    assert sum("INSERT INTO" in each for each in before) >= 4, "the rows of two sides, each before and after its change"
    timeline.require_right()


def test_texts_that_no_index_could_contain(timeline: Timeline) -> None:
    """They are shortened alike in keys and beside them. Other texts with the same start stay distinct."""
    draw = random.Random(8)
    reader, tweet, author = (f"{draw.getrandbits(4 * 3_500):x}" for _ in range(3))
    timeline.archived.click(0, [(f"follow:{reader}:{author}", "1", 1), (f"tweet:{tweet}:{author}", "1", 2)])
    timeline.archived.click(0, [(f"tweet:{tweet}x:{author}", "1", 3), (f"tweet:{tweet}y:{author}x", "1", 4)])
    timeline.archived.stream()
    assert len(timeline.rows()) == 2
    assert {len(str(text)) for row in timeline.rows() for text in row[:2]} < {*range(100, 1_001)}
    assert compare(timeline.archived.rebuilder).verdict == "EQUAL"
    timeline.archived.click(0, [(f"tweet:{tweet}:{author}", "0", 5)])
    timeline.archived.stream()
    assert len(timeline.rows()) == 1
    assert compare(timeline.archived.rebuilder).verdict == "EQUAL"


@pytest.mark.nightly
def test_random_events_in_random_batches(timeline: Timeline) -> None:
    draw, people = random.Random(14), "abcd"
    for _ in range(6):
        batch = []
        for _ in range(draw.randrange(1, 8)):
            kind = draw.choice(("follow", "follow", "tweet"))
            one = draw.choice(people) if kind == "follow" else f"t{draw.randrange(6)}"
            batch.append((f"{kind}:{one}:{draw.choice(people)}", draw.choice("110"), draw.randrange(3_000)))
        timeline.send(*batch)
        assert timeline.rows() == timeline.oracle.timeline()
    assert timeline.rows()
    timeline.require_right()


SPOILED = [
    ("follows", "UPDATE {} SET last_deleted = true WHERE follower = 'a1'"),
    ("tweets", "UPDATE {} SET author = 'b9' WHERE tweet = 't2'"),
    ("authors", "UPDATE {} SET followers = 3 WHERE author = 'b3'"),
    ("", "DELETE FROM {} WHERE reader = 'a4'"),
    ("", "UPDATE {} SET entries = 5 WHERE reader = 'a5'"),
]


def test_wrong_rows_and_what_followed_from_them_are_repaired(timeline: Timeline) -> None:
    begun = [each for n in range(6) for each in ((f"follow:a{n}:b{n}", "1", 1), (f"tweet:t{n}:b{n}", "1", 2))]
    timeline.send(*begun)
    for side, statement in SPOILED:
        timeline.spoil(side, statement)
    timeline.send(*((f"tweet:u{n}:b{n}", "1", 3) for n in range(6)))  # some follow from wrong rows
    assert timeline.rows() != timeline.oracle.timeline()
    repaired = reconcile(timeline.archived.lab.context, timeline.archived.compiled, ReconcileRequest(repair=True))
    assert (repaired.verdict, timeline.rows()) == ("EQUAL", timeline.oracle.timeline())
    timeline.archived.require_output()
    timeline.send(*((f"follow:c:b{n}", "1", 4) for n in range(6)), ("follow:a1:b1", "0", 5))
    assert timeline.rows() == timeline.oracle.timeline()


@pytest.mark.nightly
def test_the_cause_of_a_wrong_count_is_named(timeline: Timeline) -> None:
    timeline.send(FOLLOW, TWEET)
    timeline.spoil("", "UPDATE {} SET entries = 5")
    found = compare(timeline.archived.rebuilder)
    assert (found.verdict, [each["cause"] for each in found.causes]) == ("DIFFERENT", [Cause.HAND])


@pytest.mark.nightly
def test_a_certificate_a_fallback_and_another_reading_cover_a_join(timeline: Timeline) -> None:
    timeline.send(FOLLOW, TWEET)
    archived, lab = timeline.archived, timeline.archived.lab
    assert reconcile(lab.context, archived.compiled).certificate is not None
    archived.click(1, [("follow:cid:bob", "1", 5)])
    try:
        assert fallback.build_fallback(archived.rebuilder) == archived.positions.only(["click"])
        assert timeline.rows() == [("ann", "t1", 1), ("cid", "t1", 1)]
    finally:
        lab.connection.execute("DELETE FROM truelog.batch_answer WHERE view = %s", (archived.compiled.name,))
    archived.stream()
    rejudge.rebuild_under_reading(archived.rebuilder)
    archived.require_output()
    assert timeline.rows() == [("ann", "t1", 1), ("cid", "t1", 1)]
    assert compare(archived.rebuilder).verdict == "EQUAL"


def test_rows_are_looked_up_by_index(timeline: Timeline) -> None:
    indexes = timeline.archived.lab.connection.execute(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'state' AND tablename = ANY(%s)",
        ([timeline.table(side).name for side in ("follows", "tweets")],),
    ).fetchall()
    ends = {str(definition).split("(")[-1].split(")")[0] for (definition,) in indexes}
    assert ends == {"follower, followee", "followee", "tweet", "author"}


def _require_no_noted_row(timeline: Timeline) -> None:
    for side in ("follows", "tweets", "authors"):
        noted = sql.Identifier("stage", f"{timeline.table(side).name}{stage.CHANGES}")
        assert timeline.archived.lab.connection.execute(sql.SQL("SELECT FROM {}").format(noted)).fetchall() == []
