"""SQL queries on the archive: what they can read, and when they are refused."""

from datetime import UTC, datetime

import pytest

from tests.library.services.api.shop_views import PAGES, count, deploy_views
from truelog.archive import analyst
from truelog.storage import exact_json
from truelog.storage.database import connect
from truelog.support.errors import BadInput, QueryTooSlow
from truelog.support.settings import Settings


def test_a_query_reads_the_archived_records_of_an_event_type(platform: Settings) -> None:
    query = "SELECT count(*) AS records, count(page_view.invalid) AS bad FROM page_view, main.page_view AS same"
    with analyst.run_query(platform, query) as rows:
        assert analyst.as_dicts(rows) == [{"records": 0, "bad": 0}]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELEC", "syntax error at or near"),
        ("", "one SELECT at a time"),
        ("SELECT 1; SELECT 2", "one SELECT at a time"),
        ("DROP TABLE page_view", "one SELECT at a time"),
        ("COPY page_view TO 'stolen.csv'", "one SELECT at a time"),
        ("ATTACH 'other.db'", "one SELECT at a time"),
        ("SET enable_external_access = true", "one SELECT at a time"),
        ("SELECT * FROM nothing", "nothing does not exist"),
        ("SELECT * FROM settings", "settings does not exist"),
        ("SELECT nothing FROM page_view", '"nothing" not found'),
        ("SELECT CAST('x' AS INT)", "Could not convert"),
        ("SELECT * FROM read_text('/etc/hostname')", "disabled by configuration"),
        ("SELECT * FROM '/etc/hostname'", "/etc/hostname does not exist"),
        ("SELECT * FROM read_parquet('s3://truelog/x.parquet')", "disabled by configuration"),
        ("SELECT * FROM read_csv('http://127.0.0.1/x.csv')", "disabled by configuration"),
    ],
)
def test_sql_reads_the_archive_and_nothing_else(platform: Settings, query: str, why: str) -> None:
    with pytest.raises(BadInput, match=why), analyst.run_query(platform, query) as rows:
        analyst.as_dicts(rows)


def test_a_query_joins_events_with_views(platform: Settings) -> None:
    with connect(platform, autocommit=True) as connection:
        deploy_views(connection)
        count(connection, [("shop.example", datetime(2026, 1, 1, tzinfo=UTC), 7), (None, None, 2**62)])
        connection.execute(
            "CREATE VIEW views.odd AS SELECT 1.50::numeric(9, 2) AS n, ARRAY['a'] AS a, '1 day'::interval AS i"
        )
    odd = {"n": 1.5, "a": ["a"], "i": "1 day", "events": 0}
    query = f"""
        SELECT p.host, p.views, p.minute, n, a, i,
            (SELECT count(*) FROM page_view JOIN click USING (event_id)) AS events
        FROM presented.{PAGES} AS p JOIN views.{PAGES} USING (views), VIEWS.odd ORDER BY p.views
    """
    with analyst.run_query(platform, query) as rows:
        assert analyst.as_dicts(rows) == [
            {"host": "shop.example", "views": 7, "minute": "2026-01-01 00:00:00+00"} | odd,
            {"host": None, "views": 2**62, "minute": None} | odd,
        ]


@pytest.mark.parametrize("relation", ["views.nothing", "truelog.api_key", "state.page_counts_v1", "other.views.odd"])
def test_no_other_relation_of_postgresql_is_read(platform: Settings, relation: str) -> None:
    with (
        pytest.raises(BadInput, match="does not exist"),
        analyst.run_query(platform, f"SELECT * FROM {relation}") as rows,
    ):
        analyst.as_dicts(rows)


def test_a_relation_with_too_many_rows_is_refused(platform: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyst, "_MOST_ROWS", 1)
    with connect(platform, autocommit=True) as connection:
        connection.execute("CREATE VIEW views.two AS SELECT generate_series(1, 2) AS n")
    with pytest.raises(BadInput, match="more than 1 rows"), analyst.run_query(platform, "FROM views.two") as rows:
        analyst.as_dicts(rows)


def test_json_has_every_digit_of_a_number(platform: Settings) -> None:
    query = (
        "SELECT 9007199254740993.5::DECIMAL(20, 1) AS d, 'NaN'::DOUBLE AS n, 9223372036854775807 AS i, 0.1::DOUBLE AS f"
    )
    with analyst.run_query(platform, query) as rows:
        shown = exact_json.write(analyst.as_dicts(rows))
    assert shown == '[{"d":9007199254740993.5,"n":"NaN","i":9223372036854775807,"f":0.1}]'


def test_numbers_of_postgresql_keep_their_digits(platform: Settings) -> None:
    with connect(platform, autocommit=True) as connection:
        connection.execute(
            "CREATE VIEW views.numbers AS SELECT 9007199254740993::numeric AS n, v AS part, 1e50::numeric AS long, "
            "'NaN'::numeric AS none, NULL::numeric AS empty, ARRAY[1.5] AS list "
            "FROM (VALUES (0.1), (-20.25), (NULL)) AS t (v)"
        )
    query = "SELECT * REPLACE (sum(part) OVER () AS part) FROM views.numbers LIMIT 1"
    with analyst.run_query(platform, query) as rows:
        [shown] = analyst.as_dicts(rows)
    assert shown.pop("long") == f"1{'0' * 50}"
    assert exact_json.write(shown) == '{"n":9007199254740993,"part":-20.15,"none":"NaN","empty":null,"list":"{1.5}"}'


def test_reading_a_view_ends_at_the_time_limit(platform: Settings) -> None:
    with connect(platform, autocommit=True) as connection:
        connection.execute("CREATE VIEW views.slow AS SELECT pg_sleep(60)::text AS s")
    with (
        pytest.raises(QueryTooSlow, match=r"longer than 1 s") as late,
        analyst.run_query(platform, "FROM views.slow", 1) as rows,
    ):
        rows.fetchall()
    assert "statement timeout" in str(late.value.__cause__), "PostgreSQL itself ended the statement"


def test_a_query_ends_at_its_time_limit(platform: Settings) -> None:
    query = "SELECT count(*) FROM range(1000000) a, range(1000000) b"
    with pytest.raises(QueryTooSlow, match=r"longer than 0\.5 s"), analyst.run_query(platform, query, 0.5) as rows:
        rows.fetchall()
