"""A view as of an earlier time: its rows at a tick, whatever came later, and while others compare and ask.

The last test asks over HTTP, and answers as the job of the DAG `past` does.
"""

import json
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.beds.archived import MORNING, PER_URL, Archived
from tests.library.restored_catalog import restored
from tests.library.services.api.asking import Asking, asking
from truelog.batch import partials
from truelog.batch.partial_selection import PartialRange
from truelog.control import view_versions
from truelog.control.view_loader import LoadedViews, load_compiled
from truelog.control.view_versions import StoredVersion
from truelog.exports.query import RowQuery
from truelog.history import past_question
from truelog.history.as_of import PastView, open_past
from truelog.history.past_job import answer_each
from truelog.log.positions import Positions
from truelog.maintenance.upkeep import drop_expired_partials
from truelog.reconcile.comparison.compare import compare
from truelog.storage import db_snapshot
from truelog.storage.database import connect
from truelog.support.errors import ArchiveBehind, BadInput
from truelog.tables import deploy as table

PRESENTED = replace(PER_URL, present={"totals": "SELECT url, sum(spent)::bigint AS spent FROM {view} GROUP BY url"})
# The clicks between the ticks: partition, URL, `search_id`, second. The last tick lets the rows of the others expire.
CLICKS = {
    100: ((0, "a", 1, 90), (1, "a", 2, 95), (1, "b", 4, 10)),
    200: ((0, "a", 8, 92), (0, "c", 16, 199)),
    4_000: ((1, "a", 32, 3_999), (0, "b", 64, 20)),
}
BESIDE = '''"""How often each URL was clicked."""

from pyspark.sql import functions as F

from truelog import Sum, View

VIEW = View(
    reads=("click",),
    transform=lambda click: click.select("url", F.lit(1).alias("clicks")),
    key=("url",),
    measures={"clicks": Sum()},
    present={"often": "SELECT url FROM {view} WHERE clicks > 1"},
    version=2,
)
'''
Rows = list[tuple[str, str, int, str]]


def some_days(ground: Archived) -> None:
    for second, clicks in CLICKS.items():
        for partition, url, spent, at in clicks:
            ground.click(partition, [(url, str(spent), at)])
        ground.tick(second - 10, ends="no tick")
        ground.tick(second)
    ground.stream()


pytestmark = pytest.mark.ground(view=PRESENTED, filled=some_days)


def at(second: float) -> datetime:
    return MORNING + timedelta(seconds=second)


def rows_of(found: PastView) -> Rows:
    rows = (json.loads(text) for text in found.rows(RowQuery(found.compiled.name, limit=None)))
    return sorted((row["minute"], row["url"], row["spent"], row["last"]) for row in rows)


def past(ground: Archived, second: float) -> Rows:
    with open_past(ground.lab.context, ground.compiled, at(second)) as found:
        return rows_of(found)


def counted(until: int) -> Rows:
    """The rows at a tick, by a loop over the clicks before it."""
    rows: dict[tuple[datetime, str], list[tuple[int, datetime]]] = defaultdict(list)
    for url, spent, second in (each[1:] for tick, clicks in CLICKS.items() if tick <= until for each in clicks):
        rows[at(second // 60 * 60), url].append((spent, at(second)))
    return sorted(
        (minute.isoformat(), url, sum(spent for spent, _ in found), max(last for _, last in found).isoformat())
        for (minute, url), found in rows.items()
        if minute >= at(until) - timedelta(hours=1)
    )


def test_the_rows_at_a_tick(ground: Archived) -> None:
    """The rows of the first two ticks have expired since then."""
    with open_past(ground.lab.context, ground.compiled, at(199.9)) as found:
        assert rows_of(found) == counted(100)
        totals = RowQuery(f"{found.compiled.name}_totals")
        assert {row["url"]: row["spent"] for row in map(json.loads, found.rows(totals))} == {"a": 3, "b": 4}
        assert len(list(found.rows(RowQuery(found.compiled.name, limit=1)))) == 1
        told = found.as_dict()
    assert (told["tick"], told["positions"]) == ("2026-03-01T00:01:40Z", {"click": {0: 1, 1: 2}, "ticks": {0: 2}})
    assert (told["cost"]["records"], told["cost"]["partials"]) == (3 + 2, 0)
    assert past(ground, 200) == counted(200)
    with db_snapshot.read_snapshot(ground.lab.settings) as snapshot:
        assert [row[0] for row in snapshot.execute(f"SELECT spent FROM views.{ground.compiled.name}".encode())] == [32]

    ground.click(0, [("late", "128", 91)])
    ground.tick(4_001)
    ground.stream()
    assert past(ground, 4_000) == counted(4_000) != counted(200)
    assert past(ground, 200) == counted(200)


def test_partials_are_read_where_they_fit(ground: Archived) -> None:
    begin, end = Positions({}, ground.ids), Positions({"click": {0: 1, 1: 2}, "ticks": {0: 2}}, ground.ids)
    tile = PartialRange(MORNING, begin, end)
    states = ground.rebuilder.states_between(ground.compiled.own, begin, end)
    partials.replace(ground.lab.spark, ground.lab.settings, ground.compiled.own, tile, states)
    with open_past(ground.lab.context, ground.compiled, at(200)) as found:
        assert rows_of(found) == counted(200)
        assert (found.partials, found.cost.records) == (1, 2 + 2)


def test_partials_that_lack_rows_of_that_time_are_not_used(ground: Archived) -> None:
    """Upkeep drops the rows of partials that have expired by now. A query about an earlier time needs them."""
    begin, end = Positions({}, ground.ids), Positions({"click": {0: 1, 1: 2}, "ticks": {0: 2}}, ground.ids)
    own, settings = ground.compiled.own, ground.lab.settings
    states = ground.rebuilder.states_between(own, begin, end)
    partials.replace(ground.lab.spark, settings, own, PartialRange(MORNING, begin, end), states)
    drop_expired_partials(ground.lab.context, ground.compiled)
    left = partials.load_partials(settings, own)
    kept = left.read(ground.lab.spark, left.ranges)
    assert kept is not None
    assert kept.count() == 0
    with open_past(ground.lab.context, ground.compiled, at(200)) as found:
        assert rows_of(found) == counted(200)
        assert found.partials == 0
    ground.tick(4_001)
    with open_past(ground.lab.context, ground.compiled, at(4_000)) as found:
        assert rows_of(found) == counted(4_000)
        assert found.partials == 1
    drop_expired_partials(ground.lab.context, ground.compiled)
    assert partials.load_partials(settings, own).trimmed == left.trimmed == at(400)


def test_times_that_the_archive_does_not_know(ground: Archived) -> None:
    with pytest.raises(BadInput, match=r"the log's clock begins after 2026-03-01T00:01:39Z\. Choose a later time"):
        past(ground, 99)
    with pytest.raises(BadInput, match="Choose a later time"):
        past(ground, -(10**9))
    with pytest.raises(ArchiveBehind, match=r"knows the log up to 2026-03-01T01:06:40Z\. Choose an earlier time"):
        past(ground, 4_000.5)
    ground.ends["click"][1] += 3
    ground.tick(4_100)
    ground.tick(4_200)
    with pytest.raises(ArchiveBehind, match="lacks 3 records that were in the log at 2026-03-01T01:08:20Z"):
        past(ground, 4_100)


def test_queries_and_a_comparison_at_once(ground: Archived) -> None:
    """Each query has tables of its own."""

    def verdict() -> str:
        with connect(ground.lab.settings, autocommit=True) as connection:
            return compare(replace(ground.rebuilder, connection=connection)).verdict

    with ThreadPoolExecutor(3) as pool:
        first, second, compared = pool.submit(past, ground, 100), pool.submit(past, ground, 200), pool.submit(verdict)
        assert (first.result(), second.result(), compared.result()) == (counted(100), counted(200), "EQUAL")


def test_an_application_asks_over_http(ground: Archived) -> None:
    view, first_tick = ground.compiled.name, {"as_of": "2026-03-01T00:03:19.9Z"}
    rows, totals = f"/views/{view}/rows", f"/views/{view}/relations/totals"
    with asking(ground.lab.settings) as api:
        waits = api.get(rows, **first_tick)
        assert (waits.status_code, waits.headers["Retry-After"], waits.json()["state"]) == (202, "3", "waiting")
        questions: list[tuple[str, dict[str, str]]] = [
            (rows, first_tick | {"order": "-spent", "limit": "1", "columns": "spent"}),
            (totals, first_tick | {"where": "url=a"}),
            (rows, first_tick | {"where": "spent=many"}),
            (rows, {"as_of": "2026-03-01T00:01:39Z"}),
            (rows, {"as_of": "2026-03-01T01:06:41Z"}),
        ]
        for path, asked in questions:
            assert api.get(path, **asked).status_code == 202
        answer_as_the_job(ground)
        whole = api.get(rows, **first_tick).json()
        assert sorted((r["minute"], r["url"], r["spent"], r["last"]) for r in whole.pop("rows")) == counted(100)
        assert whole.pop("age") > 0
        assert whole == {
            "view": view,
            "version": 1,
            "layer": "batch",
            "positions": {"click": {"0": 1, "1": 2}, "ticks": {"0": 2}},
            "clock": "2026-03-01T00:01:40Z",
            "as_of": "2026-03-01T00:01:40Z",
            "reason": "",
            "more": False,
            "next": None,
        }
        sorted_page, summed, *refused = [api.get(path, **asked) for path, asked in questions]
        assert (sorted_page.json()["rows"], sorted_page.json()["more"]) == ([{"spent": 4}], True)
        assert summed.json()["rows"] == [{"url": "a", "spent": 3}]
        assert [each.status_code for each in refused] == [422, 422, 409]
        assert "Choose a later time" in refused[1].json()["detail"]
        assert refused[2].json()["type"] == "urn:truelog:problem:no-past"
        require_known(api, rows, first_tick)
        require_each_row_once(api, rows, first_tick)


def test_a_catalog_that_was_restored_has_no_past(ground: Archived) -> None:
    """Its files may have people who were forgotten since the backup."""
    rows, asked = f"/views/{ground.compiled.name}/rows", {"as_of": "2026-03-01T00:03:20Z"}
    with restored(ground.lab.settings):
        ground.tick(4_001)
    with asking(ground.lab.settings) as api:
        assert api.get(rows, **asked).status_code == 202
        answer_as_the_job(ground)
        refused = api.get(rows, **asked)
    assert refused.status_code == 409
    assert "run `truelog archive adopt`" in refused.json()["detail"]


@pytest.mark.nightly
def test_an_application_asks_about_a_version_beside(ground: Archived) -> None:
    """Its code is the file that the database has kept. Without a version, the past is that of what readers see."""
    view, lab, past = ground.compiled.name, ground.lab, {"as_of": "2026-03-01T00:03:20Z"}
    kept = StoredVersion(view, 2, BESIDE)
    table.deploy_table(lab.connection, load_compiled(lab.spark, lab.types, view, kept.write(lab.settings)))
    view_versions.record_source(lab.connection, view, 2, BESIDE)
    paths = [f"/views/{view}/rows", f"/views/{view}/relations/often"]
    with asking(lab.settings) as api:
        for path in paths:
            assert api.get(path, **past, version=2).status_code == 202
        assert api.get(paths[0], **past).status_code == 202
        answer_as_the_job(ground)
        whole, often = [api.get(path, **past, version=2).json() for path in paths]
        assert (whole["version"], often["rows"]) == (2, [{"url": "a"}])
        assert {row["url"]: row["clicks"] for row in whole["rows"]} == {"a": 3, "b": 1, "c": 1}
        served = api.get(paths[0], **past).json()
        assert (served["version"], len(served["rows"])) == (1, len(counted(200)))
        require_each_row_once(api, paths[0], past | {"version": "2"})


def require_each_row_once(api: Asking, path: str, asked: dict[str, str]) -> None:
    """Pages of one row are the answer, in its order."""
    whole, pages = api.get(path, **asked).json(), [api.get(path, **asked, limit=1).json()]
    while cursor := pages[-1]["next"]:
        pages.append(api.get(path, **asked, limit=1, cursor=cursor).json())
    assert [row for page in pages for row in page["rows"]] == whole["rows"]
    assert [len(page["rows"]) for page in pages] == [1] * len(whole["rows"])
    assert [page["more"] for page in pages] == [True] * (len(pages) - 1) + [False]


def answer_as_the_job(ground: Archived) -> None:
    context = replace(ground.lab.context, views=LoadedViews([ground.compiled]))
    with connect(ground.lab.settings, autocommit=True) as connection:
        answer_each(context, connection, past_question.waiting(connection))


def require_known(api: Asking, path: str, asked: dict[str, str]) -> None:
    """The past does not change, so a client that has it gets it no second time."""
    tag = api.get(path, **asked).headers["ETag"]
    again = api.get(path, headers={"If-None-Match": tag}, **asked)
    assert (again.status_code, again.content) == (304, b"")
