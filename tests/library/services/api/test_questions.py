"""The answers of the API about rows, on real tables: what they contain, and what they say about their source."""

import asyncio
import json
import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest

from tests.builders.views import a_lag_sample, a_view, forget, forget_samples, is_gone, merged_to
from tests.deadline import deadline
from tests.library.services.api.asking import Asking, asking
from tests.library.services.api.shop_views import (
    ENGLISH,
    PAGES,
    PRODUCTS,
    at,
    count,
    deploy_views,
    limiting,
    reach,
    sell,
)
from truelog.services.api.rows import reads as reads_module
from truelog.services.api.rows.parameters import RowParameters, question
from truelog.services.api.rows.statement import RowQuestion
from truelog.storage.database import Connection
from truelog.support.settings import Settings

MINUTE = datetime(2026, 1, 1, 10, tzinfo=UTC)
ROWS = f"/views/{PAGES}/rows"
HOSTS = ("shop.example", "wiki.example", None, "o'hara; DROP TABLE x --", "\u00fcber")
STORED = [(h, MINUTE + timedelta(minutes=m), 40 * m + n) for m in range(4) for n, h in enumerate(HOSTS)]
BIG = ("big.example", None, 2**62)


@pytest.fixture(autouse=True, scope="module")
def _filled(deployed: Connection) -> None:
    count(deployed, [*STORED, BIG])
    sell(deployed, red_shoes=3, green_shoes=4, a_hat=5)
    reach(deployed, 17, 4)


def test_every_answer_says_what_it_was_made_of(api: Asking) -> None:
    answer = api.get(ROWS, key=["shop.example", "2026-01-01T10:01:00Z"]).json()
    assert answer.pop("rows") == [{"host": "shop.example", "minute": "2026-01-01T10:01:00+00:00", "views": 40}]
    assert answer.pop("reason") == ""
    assert answer == {
        "view": PAGES,
        "version": 1,
        "layer": "stream",
        "positions": {"page_view": {"0": 17, "1": 4}},
        "clock": None,
        "as_of": None,
        "age": None,
        "more": False,
        "next": None,
    }


def test_the_age_follows_from_the_lag(api: Asking, deployed: Connection) -> None:
    lag = [{"topic": "page_view", "partition": 0, "seconds": 3.5, "blind": ""}]
    a_lag_sample(deployed, PAGES, lag)
    api.run(_forget_freshness(api))
    answer = api.get(ROWS, limit=1).json()
    assert 3.5 <= answer["age"] < 60
    assert answer["as_of"].endswith("Z")
    forget_samples(deployed)


def test_no_request_waits_while_the_freshness_is_read_for_later_ones(
    api: Asking, deployed: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = api.questions._reads
    monkeypatch.setattr(reads_module, "_AHEAD_SECONDS", math.inf)
    a_lag_sample(deployed, PAGES, [{"topic": "page_view", "partition": 0, "seconds": 3.5, "blind": ""}])

    async def ages() -> list[float | None]:
        monkeypatch.setattr(reads, "_fresh_until", time.monotonic() + 1_000)
        may_read, refresh = asyncio.Event(), reads._refresh

        async def slow() -> None:
            await may_read.wait()
            await refresh()

        monkeypatch.setattr(reads, "_refresh", slow)
        first = await asyncio.wait_for(api.ask("GET", ROWS, params={"limit": 1}), deadline(10))
        may_read.set()
        assert reads._renewal is not None
        await reads._renewal
        return [each.json()["age"] for each in (first, await api.ask("GET", ROWS, params={"limit": 1}))]

    api.run(_forget_freshness(api))
    assert api.get(ROWS, limit=1).json()["age"] is not None
    forget_samples(deployed)
    known, later = api.run(ages())
    assert known is not None
    assert later is None


async def _forget_freshness(api: Asking) -> None:
    api.questions._reads._fresh_until = 0.0


def test_a_removed_view_is_refused_with_the_reason(api: Asking, deployed: Connection) -> None:
    view = "left_view"
    a_view(deployed, view)
    is_gone(deployed, view)
    for path in (f"/views/{view}", f"/views/{view}/rows"):
        refused = api.get(path)
        assert refused.status_code == 404
        assert refused.json()["detail"].startswith("removed: its file is gone since")
    forget(deployed, view)


def test_numbers_keep_their_digits(api: Asking) -> None:
    assert f'"views":{2**62}' in api.get(ROWS, where="host=big.example").text


def test_the_views_and_their_columns_are_listed(api: Asking) -> None:
    listed = {each["view"]: each for each in api.get("/views").json()["views"]}
    assert listed.keys() == {ENGLISH, PAGES, PRODUCTS}
    assert listed[PAGES]["positions"] == {"page_view": {"0": 17, "1": 4}}
    found = api.get(f"/views/{PAGES}").json()
    assert (found["key"], found["version"], found["positions"]) == (["host", "minute"], 1, listed[PAGES]["positions"])
    assert found["columns"] == [
        {"name": "host", "type": "text", "meaning": "host name of the page's URL"},
        {"name": "minute", "type": "timestamp with time zone", "meaning": None},
        {"name": "views", "type": "bigint", "meaning": None},
    ]
    assert list(found["relations"]) == ["busy"]
    assert found["relations"]["busy"]["key"] == []


CONDITIONS: dict[str, Any] = {
    "host=shop.example": lambda h, m, v: h == "shop.example",
    "host<>shop.example": lambda h, m, v: h is not None and h != "shop.example",
    "host is NULL": lambda h, m, v: h is None,
    "host contains WIKI": lambda h, m, v: h is not None and "wiki" in h,
    "views>=80": lambda h, m, v: v >= 80,
    "minute<2026-01-01T10:01:00Z": lambda h, m, v: m is not None and m < MINUTE + timedelta(minutes=1),
    "minute is NULL": lambda h, m, v: m is None,
    "host=o'hara; DROP TABLE x --": lambda h, m, v: h is not None and "'" in h,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_select_rows(api: Asking, condition: str) -> None:
    rows = api.get(ROWS, where=condition).json()["rows"]
    wanted = [each for each in (*STORED, BIG) if CONDITIONS[condition](*each)]
    assert sorted(each["views"] for each in rows) == sorted(views for _, _, views in wanted)


def test_conditions_are_all_true_and_columns_are_chosen(api: Asking) -> None:
    answer = api.get(ROWS, where=["host=shop.example", "views>=80"], columns="views", order="-views").json()
    assert answer["rows"] == [{"views": 120}, {"views": 80}]


ORDERS = ["", "host", "-host", "minute,-host", "-minute,host", "-views", "-minute", "host,-minute"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("limit", [1, 3, 20])
def test_a_walk_shows_each_row_once_and_in_order(api: Asking, deployed: Connection, order: str, limit: int) -> None:
    """The order has ties and NULLs, which are the greatest values."""
    names = [each for each in order.split(",") if each]
    names += [key for key in ("host", "minute") if key not in (each.removeprefix("-") for each in names)]
    by = ", ".join(f"{each.removeprefix('-')} {'DESC' if each.startswith('-') else ''}" for each in names)
    stored = deployed.execute(f"SELECT views FROM views.{PAGES} ORDER BY {by}".encode()).fetchall()
    walked, cursor = [], ""
    while cursor is not None:
        page = api.get(ROWS, order=order, limit=limit, cursor=cursor).json()
        walked += [(each["views"],) for each in page["rows"]]
        cursor = page["next"]
    assert walked == stored


def test_a_page_is_one_range_of_the_index_of_the_key(api: Asking, deployed: Connection) -> None:
    relation = api.run(api.questions._reads.catalogue.view(PAGES)).relation("")
    asked = RowParameters(limit=3)
    whole = RowQuestion(**vars(question(asked, relation, None, 100)) | {"after": ("shop.example", "2026-01-01")})
    text, values = whole.statement(PAGES)
    with deployed.transaction(force_rollback=True):
        deployed.execute("SET LOCAL enable_seqscan = off")
        plan = "\n".join(str(line) for (line,) in deployed.execute(b"EXPLAIN " + text, values | {"most": "1"}))
    assert plan.count("Index Cond") >= 2 * 4, plan  # four ranges, in each of the two layers


def test_a_moving_view_ends_a_walk_unless_the_client_allows_it(api: Asking, deployed: Connection) -> None:
    first = api.get(ROWS, limit=2).json()
    reach(deployed, 18, 4)
    moved = api.get(ROWS, limit=2, cursor=first["next"])
    assert (moved.status_code, moved.json()["type"]) == (409, "urn:truelog:problem:moved")
    going = api.get(ROWS, limit=2, cursor=first["next"], moving="true").json()
    assert going["positions"] == {"page_view": {"0": 18, "1": 4}}
    assert going["rows"] == api.get(ROWS, limit=4).json()["rows"][2:]


def test_a_repair_at_the_same_positions_moves_a_view(api: Asking, deployed: Connection) -> None:
    first = api.get(ROWS, limit=2).json()
    deployed.execute("UPDATE truelog.view SET repairs = repairs + 1 WHERE view = %s", (PAGES,))
    assert api.get(ROWS, limit=2, cursor=first["next"]).status_code == 409


def test_a_cursor_continues_its_own_question_only(api: Asking) -> None:
    cursor = api.get(ROWS, limit=2).json()["next"]
    for other in ({"order": "-views"}, {"where": "views>3"}, {"columns": "host"}):
        refused = api.get(ROWS, limit=2, cursor=cursor, **other)
        assert (refused.status_code, "another question" in refused.json()["detail"]) == (422, True)
    for wrong in ("x", "%%%", cursor[:-3], "e30", "A" * 8_192):
        assert api.get(ROWS, cursor=wrong).status_code == 422


def test_a_presented_relation_has_no_key_and_no_cursor(api: Asking) -> None:
    busy = f"/views/{PAGES}/relations/busy"
    answer = api.get(busy, limit=2, order="-views").json()
    assert (len(answer["rows"]), answer["more"], answer["next"]) == (2, True, None)
    assert api.get(busy, key="shop.example").status_code == 422
    assert api.get(f"/views/{PAGES}/relations/none").status_code == 404
    assert api.get(f"/views/{PAGES}/relations/../rows").status_code == 200  # clients resolve such a path


def test_an_unchanged_row_is_not_sent_again(api: Asking, deployed: Connection) -> None:
    row = {"key": ["shop.example", "2026-01-01T10:01:00Z"]}
    tag = api.get(ROWS, **row).headers["ETag"]
    reach(deployed, 19, 4)
    known = api.get(ROWS, headers={"If-None-Match": f'"x", {tag}'}, **row)
    assert (known.status_code, known.content, known.headers["ETag"]) == (304, b"", tag)
    assert json.loads(known.headers["Truelog-Answer"])["positions"] == {"page_view": {"0": 19, "1": 4}}
    deployed.execute("UPDATE state.page_counts_v1 SET views = views + 1 WHERE host = 'shop.example'")
    changed = api.get(ROWS, headers={"If-None-Match": tag}, **row)
    assert (changed.status_code, changed.json()["rows"][0]["views"]) == (200, 41)


def test_a_client_may_name_a_version(api: Asking, deployed: Connection) -> None:
    """The version that readers see, or a version beside it. Rows, relations and cursors are of the named version."""
    deploy_views(deployed, version=2)
    reach(deployed, 3, 1, version=2)
    count(deployed, [("beside.example", MINUTE, 300), ("other.example", MINUTE, 7)], version=2)
    served, beside = api.get(ROWS, version=1).json(), api.get(ROWS, version=2, limit=1).json()
    assert (served["version"], served["reason"]) == (1, "")
    assert (beside["version"], [each["host"] for each in beside["rows"]]) == (2, ["beside.example"])
    assert (beside["positions"], beside["as_of"]) == ({"page_view": {"0": 3, "1": 1}}, None)
    assert "readers see version 1" in beside["reason"]
    assert api.get(ROWS, limit=1).json()["version"] == 1
    following = api.get(ROWS, version=2, cursor=beside["next"]).json()
    assert [each["host"] for each in following["rows"]] == ["other.example"]
    assert api.get(ROWS, version=1, cursor=beside["next"]).status_code == 422
    busy = api.get(f"/views/{PAGES}/relations/busy", version=2).json()
    assert [each["host"] for each in busy["rows"]] == ["beside.example"]
    waits = api.get(ROWS, version=2, at_least=at(1, 1).as_token())
    assert (waits.status_code, "only the version that readers see" in waits.json()["detail"]) == (422, True)


def test_a_version_that_does_not_exist_is_refused(api: Asking) -> None:
    refused = api.get(ROWS, version=3)
    assert (refused.status_code, refused.json()["type"], refused.json()["version"]) == (
        409,
        "urn:truelog:problem:other-version",
        1,
    )


WRONG: dict[str, dict[str, Any]] = {
    "unknown parameter": {"as_at": "2026-01-01"},
    "past without an hour": {"as_of": "2026-01-01"},
    "past some time ago": {"as_of": "2h"},
    "past in the future": {"as_of": "9999-01-01T00:00:00Z"},
    "past at a token": {"as_of": "2026-01-01T00:00:00Z", "at_least": "x"},
    "past that moves": {"as_of": "2026-01-01T00:00:00Z", "moving": "true"},
    "past behind no page": {"as_of": "2026-01-01T00:00:00Z", "cursor": "x"},
    "past by two columns": {"as_of": "2026-01-01T00:00:00Z", "order": "views,host"},
    "unknown column in the past": {"as_of": "2026-01-01T00:00:00Z", "columns": "nothing"},
    "unknown column": {"columns": "host,pg_sleep(9)"},
    "unknown column in order": {"order": "views;"},
    "column twice": {"order": "views,-views"},
    "no condition": {"where": "1=1 OR true"},
    "condition on an unknown column": {"where": "nothing=1"},
    "value of another type": {"where": "views=many"},
    "value that no time is": {"where": "minute>=yesterday evening"},
    "NUL": {"where": "host=\0"},
    "a part of the key": {"key": "shop.example"},
    "limit": {"limit": 1_001},
    "no limit": {"limit": 0},
    "wait": {"wait": "inf", "at_least": "x"},
    "token": {"at_least": "x"},
    "long": {"where": "host=" + "x" * 8_192},
    "many": {"where": ["views>1"] * 21},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_parameter_is_a_problem(api: Asking, wrong: str) -> None:
    refused = api.get(ROWS, **WRONG[wrong])
    body = refused.json()
    assert (refused.status_code, body["status"], body["type"]) == (422, 422, "about:blank")
    assert refused.headers["Content-Type"] == "application/problem+json"


def test_an_unknown_parameter_is_named_with_its_cure(api: Asking) -> None:
    for path in (ROWS, f"/views/{PAGES}/relations/busy", f"/views/{PAGES}/changes"):
        refused = api.get(path, host="shop.example")
        assert (refused.status_code, "where=host=VALUE" in refused.json()["detail"]) == (422, True)
    others = {
        f"/searches/{PRODUCTS}": "the parameters are words, limit",
        "/rate-limits/192.0.2.1": "the parameters are at",
        "/views": "this path has no parameters",
        f"/views/{PAGES}": "this path has no parameters",
        "/openapi.json": "this path has no parameters",
    }
    for path, cure in others.items():
        refused = api.get(path, host="shop.example")
        assert (refused.status_code, refused.json()["detail"]) == (422, f"host: there is no such parameter; {cure}")
    assert api.get("/health", "", probe="1").status_code == 200  # of a load balancer


def test_a_long_query_is_refused_before_it_is_read(api: Asking) -> None:
    assert api.get(ROWS, where=["host=" + "x" * 4_000] * 5).status_code == 414


def test_a_view_that_does_not_exist_is_not_found(api: Asking) -> None:
    for view in ("nothing", "pg_class", "busy", f"{PAGES}_busy", f"{PAGES}%00", "..%2Ftruelog"):
        for path in (f"/views/{view}", f"/views/{view}/rows", f"/views/{view}/changes", f"/searches/{view}"):
            assert api.get(path, **({"words": "x"} if "search" in path else {})).status_code == 404


def test_words_are_searched(api: Asking) -> None:
    found = api.get(f"/searches/{PRODUCTS}", words="shoe -red").json()
    assert found["rows"] == [{"name": "green shoes", "sold": 4}]
    assert (found["view"], found["version"], found["more"]) == (PRODUCTS, 1, False)
    assert api.get(f"/searches/{PRODUCTS}", words="shoes", limit=1).json()["more"]
    assert api.get(f"/searches/{PRODUCTS}", words="'); DROP TABLE x --").json()["rows"] == []
    assert api.get(f"/searches/{PAGES}", words="x").status_code == 404


def test_words_of_postgresqls_own_documents_are_searched(api: Asking, deployed: Connection) -> None:
    """Its parser takes `red-hot` as one word too, with its parts."""
    deployed.execute(f"INSERT INTO state.{ENGLISH}_v1 (name, sold) VALUES ('red-hot mail@shop.example', 1)".encode())
    for words in ("mail@shop.example", "red-hot"):
        found = api.get(f"/searches/{ENGLISH}", words=words).json()
        assert found["rows"] == [{"name": "red-hot mail@shop.example", "sold": 1}]
    assert [row["sold"] for row in api.get(f"/searches/{ENGLISH}", words="shoe -red").json()["rows"]] == [4]


def test_a_statement_has_a_time_limit(postgresql: Settings, deployed: Connection) -> None:
    with asking(postgresql, api_statement_seconds=0.3) as api, deployed.transaction(force_rollback=True):
        deployed.execute("LOCK TABLE state.page_counts_v1 IN ACCESS EXCLUSIVE MODE")
        slow = api.get(ROWS)
    assert (slow.status_code, slow.json()["type"]) == (503, "urn:truelog:problem:slow")


def test_the_answer_about_an_address_says_what_both_views_were_made_of(api: Asking, deployed: Connection) -> None:
    with limiting(deployed):
        merged_to(deployed, "request_rates", at(7))
        blocked, free = (api.get(f"/rate-limits/192.0.2.{n}").json() for n in (1, 2))
        assert (blocked["allowed"], blocked["why"], blocked["reason"]) == (False, "block", "scraping")
        assert (free["allowed"], free["limit"], free["advisory"]) == (True, 100, True)
        said = {each["view"]: each for each in free["views"]}
        assert said.keys() == {"rate_limits", "request_rates"}
        assert (said["request_rates"]["positions"], said["request_rates"]["version"]) == ({"page_view": {"0": 7}}, 1)
        expected = [("192.0.2.1", 200, False), ("fe80::1%25eth0", 422, None), ("192.0.2.2", 200, True)] * 9
        answers = api.run(_at_once(api, [f"/rate-limits/{address}" for address, _, _ in expected]))
        assert [(each.status_code, each.json().get("allowed")) for each in answers] == [each[1:] for each in expected]


async def _at_once(api: Asking, paths: list[str]) -> list[httpx.Response]:
    return await asyncio.gather(*(api.ask("GET", path) for path in paths))


def test_rate_limits_of_views_that_do_not_exist_are_not_found(api: Asking) -> None:
    assert api.get("/rate-limits/192.0.2.1").status_code == 404
    assert api.get("/rate-limits/nowhere").status_code == 422
    assert api.get("/rate-limits/192.0.2.1", at="yesterday").status_code == 422


def test_connections_that_postgresql_ends_are_replaced(postgresql: Settings, deployed: Connection) -> None:
    """The last test, because the connections of the shared API end too."""
    superuser = {"user": "postgres", "password": postgresql.postgres_password.get_secret_value()}
    with asking(postgresql) as api, psycopg.connect(**postgresql.database() | superuser, autocommit=True) as other:
        assert api.get(ROWS).status_code == 200
        ended = other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE usename = 'api' AND datname = current_database()"
        )
        assert ended.fetchall()
        down = api.get(ROWS)
        assert (down.status_code, down.headers["Retry-After"]) == (503, "1")
        assert api.get(ROWS).status_code == 200
