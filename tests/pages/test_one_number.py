"""One number: the page, the API, SQL and a file give the same figures of a row, at the same positions."""

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pytest

from runtime.airflow_client import Airflow
from tests.builders.views import merged_to
from tests.library.services.api.asking import Asking, asking
from tests.meanwhile import meanwhile
from tests.pages.audience import BEGIN, fill_audience
from tests.pages.fetch import fetch
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

ONE_ROW = "minute = %(minute)s AND host = 'shop.example'"
FIGURES = ("views", "visitors", "response_ms_p95")
MINUTE = BEGIN + timedelta(hours=1)
FIRST = 130_000
Answered = tuple[list[Any], dict[str, dict[str, int]]]  # the figures, and the positions if the way shows them


def from_page(users: dict[str, Airflow], minute: datetime) -> Answered:
    ends = f"since={minute:%Y-%m-%dT%H:%M:%SZ}&until={minute + timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"
    path = f"data/analytics?view=page_audience&where=host%3Dshop.example&{ends}"
    found = json.load(fetch(users["analyst"], "GET", path))
    figures = dict(zip((each["name"] for each in found["columns"]), found["total"]["figures"], strict=True))
    return [int(figures[name]) for name in FIGURES], found["positions"]  # a sum of PostgreSQL is a text


def from_api(api: Asking, minute: datetime) -> Answered:
    answer = api.get("/views/page_audience/rows", where=["host=shop.example", f"minute={minute.isoformat()}"]).json()
    [row] = answer["rows"]
    return [row[name] for name in FIGURES], answer["positions"]


def from_sql(settings: Settings, minute: datetime) -> Answered:
    signed = settings.database() | {"user": "analyst", "password": settings.analyst_password.get_secret_value()}
    with psycopg.connect(**signed) as connection:
        columns = ", ".join(FIGURES)
        query = (
            f"SELECT {columns}, offsets FROM views.page_audience, truelog.served "
            f"WHERE view = 'page_audience' AND {ONE_ROW}"
        )
        [(*figures, offsets)] = connection.execute(query.encode(), {"minute": minute}).fetchall()
    return figures, offsets


def from_export(users: dict[str, Airflow], minute: datetime) -> Answered:
    path = f"export/rows.json?name=page_audience&where=host%3Dshop.example&where=minute%3D{minute:%Y-%m-%dT%H:%M:%SZ}"
    [row] = json.load(fetch(users["oncall"], "GET", path))
    return [row[name] for name in FIGURES], {}


def merge(connection: Connection, offset: int) -> None:
    """Raise the figure, and let the position move with it."""
    with connection.transaction():
        connection.execute(
            f"UPDATE state.page_audience_v1 SET views = views + 1 WHERE {ONE_ROW}".encode(), {"minute": MINUTE}
        )
        merged_to(connection, "page_audience", Positions({"page_view": {0: offset}}, {"page_view": "id"}))


def test_page_api_sql_and_export_give_one_number_at_one_position(filled: Settings, users: dict[str, Airflow]) -> None:
    """Also after a merge, which changes the row and the positions together."""
    seen = list[Any]()
    with connect(filled, autocommit=True) as connection, asking(filled) as api:
        fill_audience(connection)
        for offset in (FIRST, FIRST + 1):
            merge(connection, offset)
            figures, positions = from_sql(filled, MINUTE)
            assert positions["page_view"]["0"] == offset
            assert from_page(users, MINUTE) == (figures, positions)
            assert from_api(api, MINUTE) == (figures, positions)
            assert from_export(users, MINUTE)[0] == figures
            seen.append(figures[0])
    assert seen[1] == seen[0] + 1


def require_one_moment(settings: Settings, ask: Callable[[datetime], Answered]) -> None:
    """Each answer has the figure and the position of one merge. Merges go on, and each raises both by one."""
    with connect(settings, autocommit=True) as connection:
        fill_audience(connection)
        merge(connection, FIRST)

    def go_on(ended: threading.Event) -> None:
        with connect(settings, autocommit=True) as connection:
            for offset in count(FIRST + 1):
                merge(connection, offset)
                if ended.wait(0.001):
                    return

    with meanwhile(go_on):
        answers = [ask(MINUTE) for _ in range(30)]
    seen = {(figures[0], positions["page_view"]["0"]) for figures, positions in answers}
    assert len(seen) > 1, "no merge was seen"
    assert len({offset - views for views, offset in seen}) == 1, sorted(seen)


@pytest.mark.parametrize("way", ["page", "api", "sql"])
def test_figures_and_positions_are_of_one_moment(filled: Settings, users: dict[str, Airflow], way: str) -> None:
    with asking(filled) as api:
        ways = {"page": partial(from_page, users), "api": partial(from_api, api), "sql": partial(from_sql, filled)}
        require_one_moment(filled, ways[way])


def test_a_planted_answer_of_two_moments_is_found(filled: Settings) -> None:
    def ask(minute: datetime) -> Answered:
        return from_sql(filled, minute)[0], from_sql(filled, minute)[1]

    with pytest.raises(AssertionError, match=r"\[\("):
        require_one_moment(filled, ask)
