"""One number: the page, the API, SQL and a file give the same figures of a row, at the same positions."""

import json
from datetime import datetime, timedelta
from typing import Any

import psycopg

from runtime.airflow_client import Airflow
from tests.builders.views import merged_to
from tests.library.services.api.asking import Asking, asking
from tests.pages.audience import BEGIN, fill_audience
from tests.pages.fetch import fetch
from truelog.log.positions import Positions
from truelog.storage.database import connect
from truelog.support.settings import Settings

ONE_ROW = "minute = %(minute)s AND host = 'shop.example'"
FIGURES = ("views", "visitors", "response_ms_p95")
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


def test_page_api_sql_and_export_give_one_number_at_one_position(filled: Settings, users: dict[str, Airflow]) -> None:
    """Also after a merge, which changes the row and the positions together."""
    minute, seen = BEGIN + timedelta(hours=1), list[Any]()
    with connect(filled) as connection, asking(filled) as api:
        fill_audience(connection)
        for offset in (130_000, 130_001):
            connection.execute(
                f"UPDATE state.page_audience_v1 SET views = views + 1 WHERE {ONE_ROW}".encode(),
                {"minute": minute},
            )
            merged_to(connection, "page_audience", Positions({"page_view": {0: offset}}, {"page_view": "id"}))
            connection.commit()
            figures, positions = from_sql(filled, minute)
            assert positions["page_view"]["0"] == offset
            assert from_page(users, minute) == (figures, positions)
            assert from_api(api, minute) == (figures, positions)
            assert from_export(users, minute)[0] == figures
            seen.append(figures[0])
    assert seen[1] == seen[0] + 1
