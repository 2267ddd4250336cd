"""SQL queries on the archive: what they can read, and when they are refused."""

import pytest

from truelog.archive import analyst
from truelog.storage import exact_json
from truelog.support.errors import BadInput, QueryTooSlow
from truelog.support.settings import Settings


def test_a_query_reads_the_archived_records_of_an_event_type(platform: Settings) -> None:
    with analyst.run_query(platform, "SELECT count(*) AS records, count(invalid) AS bad FROM page_view") as rows:
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


def test_json_has_every_digit_of_a_number(platform: Settings) -> None:
    query = (
        "SELECT 9007199254740993.5::DECIMAL(20, 1) AS d, 'NaN'::DOUBLE AS n, 9223372036854775807 AS i, 0.1::DOUBLE AS f"
    )
    with analyst.run_query(platform, query) as rows:
        shown = exact_json.write(analyst.as_dicts(rows))
    assert shown == '[{"d":9007199254740993.5,"n":"NaN","i":9223372036854775807,"f":0.1}]'


def test_a_query_ends_at_its_time_limit(platform: Settings) -> None:
    query = "SELECT count(*) FROM range(1000000) a, range(1000000) b"
    with pytest.raises(QueryTooSlow, match=r"longer than 0\.5 s"), analyst.run_query(platform, query, 0.5) as rows:
        rows.fetchall()
