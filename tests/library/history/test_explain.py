"""The events behind a row, in order, and the row after each of them: examples, each compared with rebuilds."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from psycopg import sql
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tests.beds.archived import PER_URL, Archived
from tests.library.click_views import OWNED, TIMELINE
from tests.library.restored_catalog import restored
from truelog import Distinct, Group, Steps, Sum, View
from truelog.history.explain import LAST_PAGE, Page, explain
from truelog.history.explanation import Explanation, Verdict
from truelog.log.positions import Positions
from truelog.support.errors import BadInput, CatalogBehind
from truelog.tables.tracing import event_steps as steps
from truelog.tables.tracing.contributions import totals_by_record


def _totals(click: DataFrame) -> DataFrame:
    """The transform of `TOTALS`: an empty URL is NULL."""
    url = F.when(F.col("url") != "", F.col("url")).alias("url")
    return click.select(url, F.length("search_id").alias("letters"), F.col("search_id").alias("searches"))


TOTALS = View(reads=("click",), transform=_totals, key=("url",), measures={"letters": Sum(), "searches": Distinct()})


def _steps(click: DataFrame) -> DataFrame:
    return click.select("url", F.col("event_time").alias("at"), F.col("search_id").alias("said"))


def _in_order(inputs: DataFrame) -> DataFrame:
    """Each input, numbered by event time."""
    order = Window.partitionBy("url").orderBy("at", "topic", "partition", "offset")
    return inputs.select("url", F.row_number().over(order).alias("number"), "said")


NUMBERED = Group(
    reads=("click",),
    transform=_steps,
    by=("url",),
    inputs=("at", "said"),
    fold=_in_order,
    key=("url", "number"),
    values=("said",),
)


def _nothing_said() -> Column:
    return F.struct(F.lit("").alias("said"), F.lit(None).cast("string").alias("refused"))


def _say_once(state: Column, click: Column) -> Column:
    """The letters that were said. A letter that was said before is refused."""
    is_new = F.instr(state["said"], click["said"]) == 0
    said = F.when(is_new, F.concat(state["said"], click["said"])).otherwise(state["said"])
    return F.struct(said.alias("said"), F.when(~is_new, F.concat(click["said"], F.lit(" again"))).alias("refused"))


SAID = Group(
    reads=("click",),
    transform=lambda click: _steps(click).drop("at"),
    by=("url",),
    inputs=("said",),
    fold=Steps(_nothing_said, _say_once),
    key=("url",),
    values=("said", "refused"),
    refusal="refused",
)

Clicks = tuple[tuple[int, str, str, int], ...]  # partition, URL, `search_id`, second, in the order of their arrival
CLICKS = (
    (0, "a", "x", 30),
    (1, "a", "yy", 10),
    (1, "b", "x", 20),
    (0, "a", "x", 20),
    (1, "a", "zzz", 40),
    (1, "", "x", 50),
)

A: dict[str, str | None] = {"url": "a"}
SPENT = ((0, "a", "1", 10), (1, "a", "2", 20), (0, "a", "3", 70))

# Three people follow the author of a tweet, which makes her popular. One of them stops following her, and the tweet is
# deleted.
TWEETS = (
    (0, "follow:r:author", "1", 0),
    (1, "tweet:t:author", "1", 1),
    (0, "follow:r:other", "1", 2),
    (1, "follow:p:author", "1", 3),
    (1, "follow:q:author", "1", 4),
    (0, "follow:r:author", "1", 5),
    (1, "follow:p:author", "0", 6),
    (0, "tweet:t:author", "1", 7),
    (1, "tweet:t:author", "0", 8),
)

# Eve deletes and takes over what Ann made; then Ann deletes it. Another thing is Eve's.
SENT = ((0, "t:ann", "1", 0), (0, "t:eve", "0", 1), (0, "t:eve", "1", 2), (0, "u:eve", "1", 3), (0, "t:ann", "0", 4))


OF_R, OF_T = sql.SQL("(reader, tweet) = ('r', 't')"), sql.SQL("thing = 't'")  # the rows of these examples


def in_order(clicks: Clicks) -> Callable[[Archived], None]:
    def filled(ground: Archived) -> None:
        ground.click_in_order(clicks)
        ground.stream()

    return filled


def explained(ground: Archived, key: dict[str, str | None], page: Page = LAST_PAGE) -> Explanation:
    return explain(ground.lab.context, ground.compiled, key, page)


def events(found: Explanation) -> list[tuple[int, str, int]]:
    return [(each.number, each.coordinates, each.event_time.second) for each in found.events]


def after(found: Explanation) -> list[list[Mapping[str, Any]]]:
    return [list(each.rows) for each in found.events]


def require_rebuilds(
    ground: Archived, found: Explanation, clicks: Clicks, condition: sql.SQL, only: Collection[int] | None = None
) -> None:
    """Require that the rows after each event are the rows of a rebuild of only the clicks up to this event.

    With `only`, the events with these numbers are checked: a rebuild of a Join takes seconds.
    """
    arrived: Counter[int] = Counter()
    numbers = {}
    for number, (partition, *_) in enumerate(clicks, 1):
        numbers[f"click:{partition}:{arrived[partition]}"] = number
        arrived[partition] += 1
    for event in found.events:
        if only is None or event.number in only:
            assert list(event.rows) == rebuilt(ground, clicks[: numbers[event.coordinates]], condition)


def rebuilt(ground: Archived, clicks: Clicks, condition: sql.SQL) -> list[Any]:
    offsets = Counter(partition for partition, *_ in clicks)
    ground.rebuilder.rebuild(Positions({"click": dict(offsets), "ticks": {0: 0}}, ground.ids))
    rows = sql.SQL("SELECT row_to_json(shown) FROM (SELECT {} FROM {} WHERE {} ORDER BY {}) AS shown").format(
        sql.SQL(", ").join(sql.SQL(f'{e} AS "{c}"') for c, e in ground.compiled.own.shown.items()),
        sql.Identifier("recon", ground.compiled.own.name),
        condition,
        sql.SQL(", ").join(map(sql.Identifier, ground.compiled.view.key)),
    )
    return [row for (row,) in ground.lab.connection.execute(rows).fetchall()]


@pytest.mark.ground(view=TOTALS, filled=in_order(CLICKS))
def test_the_events_of_a_row_that_adds_up(ground: Archived) -> None:
    found = explained(ground, A)
    assert events(found) == [(1, "click:0:0", 30), (2, "click:1:0", 10), (3, "click:0:1", 20), (4, "click:1:2", 40)]
    assert after(found) == [
        [{"url": "a", "letters": 1, "searches": 1}],
        [{"url": "a", "letters": 3, "searches": 2}],
        [{"url": "a", "letters": 4, "searches": 2}],
        [{"url": "a", "letters": 7, "searches": 3}],
    ]
    assert [each.adds[0].row for each in found.events][1:3] == [
        {"url": "a", "letters": 2, "searches": 1},
        {"url": "a", "letters": 1, "searches": 1},
    ]
    assert (found.verdict, found.streamed, found.rebuilt) == (Verdict.EQUAL, after(found)[-1], after(found)[-1])
    assert (found.cost.records, found.cost.files > 0, found.cost.bytes > 0) == (6, True, True)
    spark = ground.lab.spark
    active = spark._get_j_spark_session_class(spark._jvm).getActiveSession().get()
    assert active == spark._jsparkSession, "the thread keeps the session of the explanation"
    require_rebuilds(ground, found, CLICKS, sql.SQL("url = 'a'"))


@pytest.mark.ground(view=NUMBERED, filled=in_order(CLICKS))
def test_the_events_of_a_group(ground: Archived) -> None:
    found = explained(ground, A)
    assert [[row["said"] for row in rows] for rows in after(found)] == [
        ["x"],
        ["yy", "x"],
        ["yy", "x", "x"],
        ["yy", "x", "x", "zzz"],
    ]
    assert [each.adds[0].row["said"] for each in found.events if each.adds[0].row] == ["x", "yy", "x", "zzz"]
    assert (found.verdict, found.streamed, found.rebuilt) == (Verdict.EQUAL, after(found)[-1], after(found)[-1])
    require_rebuilds(ground, found, CLICKS, sql.SQL("url = 'a'"))

    one = explained(ground, {**A, "number": "2"})
    assert [[row["said"] for row in rows] for rows in after(one)] == [[], ["x"], ["x"], ["x"]]
    assert one.verdict is Verdict.EQUAL


@pytest.mark.ground(view=SAID, filled=in_order(tuple((0, *click[1:]) for click in CLICKS)))
def test_inputs_that_a_group_refuses(ground: Archived) -> None:
    found = explained(ground, A)
    assert [[row["said"] for row in rows] for rows in after(found)] == [["x"], ["xyy"], ["xyy"], ["xyyzzz"]]
    assert [each.refused for each in found.events] == ["", "", "x again", ""]


@pytest.mark.ground(view=TIMELINE, filled=in_order(TWEETS))
def test_the_events_of_a_row_of_counts(ground: Archived) -> None:
    """The other followers' events are not listed, although they make the author popular and the row vanish."""
    found = explained(ground, {"reader": "r", "tweet": "t"})
    assert events(found) == [
        (1, "click:0:0", 0),
        (2, "click:1:0", 1),
        (3, "click:0:2", 5),
        (4, "click:0:3", 7),
        (5, "click:1:4", 8),
    ]
    row = [{"reader": "r", "tweet": "t", "entries": 1}]
    assert after(found) == [[], row, [], row, []]
    follow = {"follower": "r", "followee": "author"}
    assert [(each.adds[0].key, each.adds[0].row and True) for each in found.events] == [
        (follow, True),
        ({"tweet": "t"}, True),
        (follow, True),
        ({"tweet": "t"}, True),
        ({"tweet": "t"}, None),
    ]
    assert (found.verdict, found.streamed, found.rebuilt) == (Verdict.EQUAL, [], [])
    require_rebuilds(ground, found, TWEETS, OF_R, only=(3, 4))  # what is not listed decides these
    assert explained(ground, {"reader": "p", "tweet": "t"}).total == 5


@pytest.mark.ground(view=OWNED, filled=in_order(SENT))
def test_events_of_another_person_are_listed_and_refused(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    found = explained(ground, {"thing": "t"})
    assert events(found) == [(1, "click:0:0", 0), (2, "click:0:1", 1), (3, "click:0:2", 2), (4, "click:0:4", 4)]
    row, reason = [{"thing": "t", "things": 1}], "thing t belongs to person ann"
    assert after(found) == [row, row, row, []]
    assert ([each.refused for each in found.events], found.refused) == (["", reason, reason, ""], 2)
    assert found.verdict is Verdict.EQUAL
    require_rebuilds(ground, found, SENT, OF_T, only=(3,))  # a refused event, which changes nothing
    [last] = explained(ground, {"thing": "t"}, Page(1, "click:0:4")).events
    assert last.refused == reason, "the owner's events are on another page"
    for limit in ("MOST_BYTES_READ_HERE", "MOST_READ_HERE"):
        monkeypatch.setattr(f"truelog.history.explain.{limit}", 0)  # the way of an archive of medium size
        assert explained(ground, {"thing": "t"}).events == found.events
    monkeypatch.setattr("truelog.batch.batch_context.SMALL_RECORDS", 0)  # the way of a large archive
    assert [each.refused for each in explained(ground, {"thing": "u"}).events] == [""]


@pytest.mark.nightly
@pytest.mark.ground(view=TIMELINE, filled=in_order(TWEETS))
def test_each_row_of_counts_is_that_of_a_rebuild(ground: Archived) -> None:
    require_rebuilds(ground, explained(ground, {"reader": "r", "tweet": "t"}), TWEETS, OF_R)


@pytest.mark.nightly
@pytest.mark.ground(view=OWNED, filled=in_order(SENT))
def test_each_row_of_a_thing_with_an_owner_is_that_of_a_rebuild(ground: Archived) -> None:
    require_rebuilds(ground, explained(ground, {"thing": "t"}), SENT, OF_T)


@pytest.mark.ground(view=TOTALS, filled=in_order(CLICKS))
def test_pages_end_where_the_next_begins(ground: Archived) -> None:
    pages: list[Explanation] = []
    before = None
    while not pages or before:
        pages.append(explained(ground, A, Page(2, before)))
        before = pages[-1].earlier
    assert [events(each) for each in pages] == [
        [(3, "click:0:1", 20), (4, "click:1:2", 40)],
        [(1, "click:0:0", 30), (2, "click:1:0", 10)],
    ]
    assert [each.total for each in pages] == [4, 4]
    whole = explained(ground, A)
    assert [*after(pages[1]), *after(pages[0])] == after(whole)
    assert pages[1].rebuilt == whole.rebuilt
    with pytest.raises(BadInput, match="no event behind the row has the coordinates 'click:1:1'"):
        explained(ground, A, Page(2, "click:1:1"))


@pytest.mark.ground(view=TOTALS, filled=in_order(CLICKS))
def test_a_key_is_checked(ground: Archived) -> None:
    with pytest.raises(BadInput, match=r"no key column size; the key has url \(string\)"):
        explained(ground, {**A, "size": "1"})
    with pytest.raises(BadInput, match=r"a value of url is missing; the key has url \(string\)"):
        explained(ground, {})
    assert (events(explained(ground, {"url": None})), after(explained(ground, {"url": None}))) == (
        [(1, "click:1:3", 50)],
        [[{"url": None, "letters": 1, "searches": 1}]],
    )
    nothing = explained(ground, {"url": "nobody"})
    assert (nothing.total, nothing.events, nothing.verdict, nothing.reason) == (0, [], Verdict.EQUAL, "no event")


@pytest.mark.ground(view=TOTALS, filled=in_order(CLICKS))
def test_a_catalog_that_was_restored_explains_nothing(ground: Archived) -> None:
    """Its files may have people who were forgotten since the backup."""
    with restored(ground.lab.settings):
        ground.click(0, [("later", "", 9)])
    with pytest.raises(CatalogBehind, match="truelog archive adopt"):
        explained(ground, A)


@pytest.mark.ground(view=TOTALS, filled=in_order(CLICKS))
def test_the_tail_that_is_not_archived_is_missing(ground: Archived) -> None:
    ground.lab.connection.execute(
        "UPDATE truelog.position SET next_offset = next_offset + 7 WHERE view = %s AND partition = 1",
        (ground.compiled.name,),
    )
    found = explained(ground, A)
    assert (found.missing, found.verdict, found.total) == (7, Verdict.UNKNOWN, 4)
    assert found.reason.startswith("the archive is 7 records behind the view")


@pytest.mark.ground(view=TOTALS, filled=in_order(CLICKS))
def test_a_row_that_does_not_follow_from_its_events(ground: Archived) -> None:
    change = sql.SQL("UPDATE {} SET letters = letters + 1").format(sql.Identifier("state", ground.compiled.own.name))
    ground.lab.connection.execute(change)
    found = explained(ground, A)
    assert (found.verdict, found.streamed[0]["letters"], found.rebuilt[0]["letters"]) == (Verdict.DIFFERENT, 8, 7)


@pytest.mark.ground(view=TOTALS, filled=in_order(CLICKS))
def test_an_explanation_that_leaves_an_event_out_is_wrong(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect: a record is not read."""

    def leave_out(*arguments: Any) -> DataFrame:
        return totals_by_record(*arguments).where("NOT (_partition = 1 AND _offset = 0)")

    monkeypatch.setattr(steps, "totals_by_record", leave_out)
    found = explained(ground, A)
    assert found.verdict is Verdict.DIFFERENT
    with pytest.raises(AssertionError):
        require_rebuilds(ground, found, CLICKS, sql.SQL("url = 'a'"))


@pytest.mark.nightly
@pytest.mark.ground(view=PER_URL, filled=in_order(SPENT))
def test_an_expired_row_still_has_its_events(ground: Archived) -> None:
    minute: dict[str, str | None] = {"minute": "2026-03-01T00:00:00+00:00", "url": "a"}
    found = explained(ground, minute)
    assert [row["spent"] for [row] in after(found)] == [1, 3]
    assert (found.verdict, found.reason) == (Verdict.EQUAL, "")
    ground.tick(4_000)
    ground.stream()
    expired = explained(ground, minute)
    assert after(expired) == after(found)
    assert (expired.verdict, expired.reason, expired.streamed) == (Verdict.EQUAL, "the row has expired", [])
    with pytest.raises(BadInput, match=r"'noon' is not a value of minute; the key has minute \(timestamp\)"):
        explained(ground, {**minute, "minute": "noon"})
