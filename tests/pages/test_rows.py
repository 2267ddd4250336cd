"""Tests of the rows of a view: conditions, order, pages and exports, without Airflow or a browser."""

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.command import truelog
from tests.pages.plausible import HOSTILE
from truelog.exports import browse
from truelog.exports import parquet as parquet_export
from truelog.exports import rows as row_export
from truelog.exports.browse import RowPage
from truelog.exports.query import Condition, Operator, RowQuery
from truelog.storage import db_snapshot
from truelog.storage.database import Connection, connect
from truelog.support.errors import BadInput, NotSetUp
from truelog.support.settings import Settings

VIEW = RowQuery("page_views")
ROWS = 300 + len(HOSTILE)


@pytest.fixture
def snapshot(filled: Settings) -> Iterator[Connection]:
    with db_snapshot.read_snapshot(filled) as connection:
        yield connection


def select(connection: Connection, column: str, operator: Operator, value: str = "") -> RowPage:
    chosen = [Condition(column, operator, value)]
    return browse.fetch_rows(connection, replace(VIEW, conditions=chosen, limit=browse.LIMIT))


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_is_found_literally(snapshot: Connection, value: str) -> None:
    found = select(snapshot, "host", Operator.EQUAL, value)
    assert [row[1:3] for row in found.rows] == [[value, value]]


@pytest.mark.parametrize(
    ("column", "operator", "value", "rows"),
    [
        ("host", Operator.CONTAINS, "SHOP", 100),
        ("host", Operator.CONTAINS, "%", 0),
        ("host", Operator.MISSING, "", 100),
        ("host", Operator.UNEQUAL, "shop.example", 100 + len(HOSTILE)),
        ("views", Operator.CONTAINS, "", ROWS),
        ("views", Operator.LESS, "1", 0),
        ("views", Operator.AT_LEAST, "1", ROWS),
        ("minute", Operator.MORE, "infinity", 0),
        ("minute", Operator.AT_MOST, "infinity", ROWS),
    ],
)
def test_conditions_select_the_expected_rows(
    snapshot: Connection, column: str, operator: Operator, value: str, rows: int
) -> None:
    assert len(select(snapshot, column, operator, value).rows) == rows


def test_rows_are_ordered_and_limited(snapshot: Connection) -> None:
    found = browse.fetch_rows(snapshot, replace(VIEW, order="views", limit=2))
    assert [row[4] for row in found.rows] == ["97", "97"]
    assert found.more
    everything = browse.fetch_rows(snapshot, replace(VIEW, order="views", descending=False, limit=10_000))
    assert (len(everything.rows), everything.more) == (ROWS, False)


def test_a_value_that_is_cut_is_named(filled: Settings) -> None:
    with connect(filled) as connection:
        for length in (2_000, 2_001):
            connection.execute(
                "INSERT INTO state.page_views_v1 (minute, host, views) VALUES ('2020-01-01', repeat('ä', %s), %s)",
                (length, length),
            )
        found = select(connection, "minute", Operator.EQUAL, "2020-01-01")
        connection.rollback()
    assert [(len(row[1] or ""), row[4]) for row in found.rows] == [(2_000, "2001"), (2_000, "2000")]
    assert found.cut == [(0, 1)]


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (replace(VIEW, conditions=[Condition("views", Operator.MORE, "many")]), "invalid input syntax for type bigint"),
        (replace(VIEW, conditions=[Condition("views", Operator.MORE, "1\0")]), "NUL"),
        (replace(VIEW, conditions=[Condition('host"; --', Operator.EQUAL, "a")]), "there is no column"),
        (replace(VIEW, columns=["host", "pg_class"]), "there is no column"),
        (replace(VIEW, order="(SELECT 1)"), "there is no column"),
    ],
)
def test_an_invalid_query_is_refused(snapshot: Connection, question: RowQuery, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        browse.fetch_rows(snapshot, question)


@pytest.mark.parametrize(
    ("text", "column", "operator", "value"),
    [
        ("host=shop.example", "host", "=", "shop.example"),
        ("host=", "host", "=", ""),
        ("host= a=b", "host", "=", " a=b"),
        ("minute>=2026-01-01T00:00", "minute", ">=", "2026-01-01T00:00"),
        ("views<>3", "views", "<>", "3"),
        ("page contains  a\nb", "page", "contains", " a\nb"),
        ("host is NULL", "host", "is NULL", ""),
        ("host is not NULL", "host", "is not NULL", ""),
    ],
)
def test_a_condition_is_read_from_text(text: str, column: str, operator: str, value: str) -> None:
    assert Condition.parse(text) == Condition(column, Operator(operator), value)


@pytest.mark.parametrize("text", ["", "host", "host = a", "=a", "host is nothing", "host is NULL or true"])
def test_a_text_that_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a condition"):
        Condition.parse(text)


def test_a_row_is_found_by_its_whole_key_and_rows_by_ranges(snapshot: Connection) -> None:
    everything = browse.fetch_rows(snapshot, replace(VIEW, order="minute", limit=browse.LIMIT)).rows
    minute, host, page, *_ = next(row for row in everything if row[1] == "shop.example")
    key = [Condition.parse(each) for each in (f"minute={minute}", f"host={host}", f"page={page}")]
    assert browse.fetch_rows(snapshot, replace(VIEW, conditions=key)).rows == [
        row for row in everything if row[:3] == [minute, host, page]
    ]
    between = [Condition.parse(each) for each in ("views>=10", "views<=20", "host is not NULL")]
    found = browse.fetch_rows(snapshot, replace(VIEW, conditions=between, columns=["views", "host"])).rows
    expected = [[row[4], row[1]] for row in everything if row[1] is not None and 10 <= int(row[4] or 0) <= 20]
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_pages_of_rows_neither_overlap_nor_omit_rows(snapshot: Connection) -> None:
    """Many rows share a number of views, so the order of that column alone decides nothing."""
    pages = [
        browse.fetch_rows(snapshot, replace(VIEW, order="views", limit=50, skip=skip)) for skip in range(0, ROWS, 50)
    ]
    assert [each.more for each in pages] == [True] * (len(pages) - 1) + [False]
    rows = [tuple(row) for page in pages for row in page.rows]
    assert len(rows) == len(set(rows)) == ROWS


def test_the_command_line_reads_the_same_conditions(filled: Settings) -> None:
    options = ["--where", "minute>=2020-01-01", "--where", "host is NULL", "--order", "views", "--descending"]
    home = {"TRUELOG_HOME": str(filled.home)}
    ended = truelog("query", "page_views", *options, "--columns", "views,host", "--limit", "2", **home)
    assert ended.stdout.splitlines() == ['{"views":97,"host":null}'] * 2, ended.stderr
    refused = truelog("query", "page_views", "--where", "views = 1", **home)
    assert (refused.returncode, "is not a condition" in refused.stderr) == (2, True)


def test_rows_are_exported_completely(snapshot: Connection, tmp_path: Path) -> None:
    hostile = replace(
        VIEW, conditions=[Condition.parse("views=1"), Condition.parse("minute>=now")], order="host", limit=None
    )

    def rows() -> row_export.Rows:
        return row_export.stream_rows(snapshot, hostile)

    exported = [json.loads(line) for line in row_export.json_lines(rows())]
    assert sorted(each["host"] for each in exported) == sorted(HOSTILE)
    cells = list(csv.reader(row_export.csv_lines(["a"], rows().rows)))[1:]
    assert [json.loads(row[1]) for row in cells] == [each["host"] for each in exported]
    assert not [cell for row in cells for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    with (tmp_path / "rows.parquet").open("wb") as file:
        parquet_export.write_parquet(rows(), file)
    table = pq.read_table(tmp_path / "rows.parquet")
    assert [str(each) for each in table.schema.types] == ["timestamp[us, tz=UTC]", *["string"] * 3, "int64"]
    assert table.column("host").to_pylist() == [each["host"] for each in exported]


def test_each_type_of_column_is_exported(filled: Settings, tmp_path: Path) -> None:
    values = {
        "n": ("9007199254740993::bigint", 9007199254740993),
        "d": ("1.10::numeric(20,2)", Decimal("1.10")),
        "f": ("'NaN'::float8", None),
        "b": ("'\\x3d00ff'::bytea", b"=\x00\xff"),
        "l": ("ARRAY['a', NULL]", ["a", None]),
        "t": ("'2026-01-01T00:00:00.000001Z'::timestamptz", datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        "y": ("'2026-01-01'::date", date(2026, 1, 1)),
        "x": ("NULL::text", None),
        "j": ("'1 day'::interval", "1 day"),
        "p": ("0.2500::numeric", "0.2500"),
        "z": ("0::numeric", "0"),
        "a": ("ARRAY[0.10, 2, NULL, 'NaN']::numeric[]", ["0.10", "2", None, "NaN"]),
        "o": ("""'{"a": 1.50, "b": ["c", null]}'::jsonb""", '{"a":1.50,"b":["c",null]}'),
    }
    selected = ", ".join(f"{expression} AS {name}" for name, (expression, _) in values.items())
    with connect(filled) as connection:
        connection.execute(f"CREATE VIEW views.typed AS SELECT {selected}".encode())
        query = RowQuery("typed", limit=None)
        _, line = row_export.csv_lines([], row_export.stream_rows(connection, query).rows)
        assert next(csv.reader([line]))[:4] == ["9007199254740993", "1.10", '"NaN"', '"\\\\x3d00ff"']
        with (tmp_path / "typed.parquet").open("wb") as file:
            parquet_export.write_parquet(row_export.stream_rows(connection, query), file)
        connection.rollback()
    [row] = pq.read_table(tmp_path / "typed.parquet").to_pylist()
    assert math.isnan(row.pop("f"))
    assert row == {name: value for name, (_, value) in values.items() if name != "f"}


def test_a_slow_query_is_cancelled(filled: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "SECONDS", 1)
    with connect(filled) as connection:
        connection.execute("CREATE VIEW views.slow AS SELECT pg_sleep(60)::text AS never")
        with pytest.raises(BadInput, match="takes longer than 1 s"):
            browse.fetch_rows(connection, RowQuery("slow"))
        connection.rollback()


def test_a_view_without_a_table_has_no_rows(snapshot: Connection) -> None:
    with pytest.raises(NotSetUp, match="does not exist yet"):
        browse.fetch_rows(snapshot, RowQuery("request_rates"))
