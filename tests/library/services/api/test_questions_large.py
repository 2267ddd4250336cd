"""Answers about long rows: no answer has more bytes than the setting says, and a walk still gets every row."""

from collections.abc import Iterator

import pytest
from pyspark.sql.types import DataType, IntegerType, StringType

from tests.library.services.api.asking import Asking, asking
from tests.library.services.api.shop_views import PRODUCTS, sell
from truelog import Value, View
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table

WIKI = "wiki_texts"
ROWS, TEXTS = f"/views/{WIKI}/rows", f"/views/{WIKI}/relations/texts"
LENGTH, NUMBER, MOST = 100_000, 25, 1_000_000


@pytest.fixture(scope="module", autouse=True)
def _written(deployed: Connection) -> None:
    view = View(
        reads=("page_view",),
        transform=lambda page_view: page_view,
        key=("page",),
        measures={"text": Value()},
        present={"texts": "SELECT page, text FROM {view}"},
    )
    types: dict[str, DataType] = {"page": IntegerType(), "text": StringType()}
    deploy.deploy_table(deployed, CompiledView((Table(WIKI, view, types, "wiki"),)))
    stored = f"SELECT page, repeat('\u00fc', {LENGTH // 2}) FROM generate_series(1, {NUMBER}) AS page"
    deployed.execute(f"INSERT INTO state.{WIKI}_v1 (page, text) {stored}".encode())
    sell(deployed, red_shoes=3, green_shoes=4)


@pytest.fixture(scope="module")
def api(postgresql: Settings, deployed: Connection) -> Iterator[Asking]:
    with asking(postgresql, api_answer_bytes=MOST) as made:
        yield made


def walk(api: Asking, limit: int) -> Iterator[list[int]]:
    """The keys of each page."""
    cursor = ""
    while cursor is not None:
        answer = api.get(ROWS, limit=limit, cursor=cursor)
        assert len(answer.content) < MOST + 1_000  # the head and the end
        page = answer.json()
        assert (page["more"], page["next"] is not None) == (page["next"] is not None, page["more"])
        yield [each["page"] for each in page["rows"]]
        cursor = page["next"]


@pytest.mark.parametrize(("limit", "sizes"), [(1_000, [9, 9, 7]), (5, [5] * 5)])
def test_a_walk_over_long_rows_gets_each_row_once(api: Asking, limit: int, sizes: list[int]) -> None:
    pages = list(walk(api, limit))
    assert [len(each) for each in pages] == sizes
    assert [page for each in pages for page in each] == list(range(1, NUMBER + 1))


def test_a_row_that_alone_has_more_bytes_is_an_answer(postgresql: Settings) -> None:
    with asking(postgresql, api_answer_bytes=LENGTH // 2) as small:
        assert [len(each) for each in walk(small, 3)] == [1] * NUMBER


def test_rows_without_a_cursor_are_refused_with_the_cure(api: Asking) -> None:
    refused = api.get(TEXTS, limit=1_000)
    assert (refused.status_code, "ask for 9 at most" in refused.json()["detail"]) == (422, True)
    answer = api.get(TEXTS, limit=9).json()
    assert (len(answer["rows"]), answer["more"], answer["next"]) == (9, True, None)


def test_a_search_of_long_rows_is_refused_with_the_cure(postgresql: Settings) -> None:
    with asking(postgresql, api_answer_bytes=40) as small:
        refused = small.get(f"/searches/{PRODUCTS}", words="shoes")
        assert (refused.status_code, "ask for 1 at most" in refused.json()["detail"]) == (422, True)
        assert len(small.get(f"/searches/{PRODUCTS}", words="shoes", limit=1).json()["rows"]) == 1
