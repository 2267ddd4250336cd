"""Other tools read the archive's tables with the steps of `docs/bi.md`, and can change nothing."""

import os
import re
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from runtime import postgresql as server
from tests.beds.archived import drop_archive
from tests.library.archive_files import TOPIC, TOPIC_ID, kafka_records, written
from truelog.archive.commit import Append, commit
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.schema.loading.events import load_events
from truelog.support.settings import PROJECT, Settings

PAGE = (PROJECT / "docs" / "bi.md").read_text()
[STATEMENTS] = re.findall(r"```sql\n(CREATE ROLE lake.*?)```", PAGE, re.DOTALL)
[STEPS] = re.findall(r"```python\n(import duckdb.*?)```", PAGE, re.DOTALL)
VALUES = (
    b'{"event_id": "a", "occurred_at": "2026-03-01T00:00:00Z", "visitor_id": "v", "url": "https://shop.example/a"}',
    b'{"event_id": "b", "occurred_at": "2026-03-02T00:00:00Z", "visitor_id": "v", "url": "https://shop.example/a"}',
    b'{"event_id": 5}',
)


@pytest.fixture
def archived(platform: Settings) -> Settings:
    """An event of the day, an event of the day after, and an invalid record."""
    with open_catalog(platform) as catalog:
        drop_archive(catalog, TOPIC)
        ensure_table(catalog, load_events()[TOPIC], TOPIC_ID, {0: 0})
        for offset, value in enumerate(VALUES):
            batch = kafka_records(0, range(offset, offset + 1), value)
            files = written(platform, catalog.load_table(identifier(TOPIC)).metadata, batch)
            data = tuple(each.data_file for each in files)
            commit(catalog, Append(TOPIC, TOPIC_ID, {0: offset}, {0: offset + 1}, {0: 1}, data))
    return platform


@pytest.fixture
def lake(archived: Settings) -> Iterator[dict[str, Any]]:
    """What the role of the page connects with."""
    name = f"lake_{uuid.uuid4().hex[:8]}"
    with server.admin(archived, archived.database_name) as connection:
        connection.execute(STATEMENTS.replace("lake", name).encode())
        yield archived.database() | {"user": name, "password": "another long random text"}
        for each in ("DROP OWNED BY {}", "DROP ROLE {}"):
            connection.execute(sql.SQL(each).format(sql.Identifier(name)))


def test_pyiceberg_and_duckdb_read_the_events_of_a_day(
    archived: Settings, lake: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = f"{lake['host']}:{lake['port']}/{lake['dbname']}"
    uri = f"postgresql+psycopg://{lake['user']}:{quote(lake['password'])}@{at}?options=-csearch_path%3Diceberg"
    monkeypatch.setenv("ARCHIVE_CATALOG", uri)
    monkeypatch.setenv("ARCHIVE_S3", archived.s3_endpoint)
    monkeypatch.setenv("ARCHIVE_KEY", archived.s3_access_key)
    monkeypatch.setenv("ARCHIVE_SECRET", archived.s3_secret_key.get_secret_value())
    names: dict[str, Any] = {"os": os}
    exec(STEPS, names)  # the example of the page
    assert names["viewed"].to_pylist() == [{"host": "shop.example", "page": "/a", "visitor_id": "v"}]
    assert re.search(r"shop\.example\W+/a\W+1\b", capsys.readouterr().out)


def test_the_role_changes_no_table(lake: dict[str, Any]) -> None:
    with psycopg.connect(**lake, autocommit=True) as connection:
        for statement in (
            "DELETE FROM iceberg.iceberg_tables",
            "UPDATE iceberg.iceberg_tables SET metadata_location = ''",
            "CREATE TABLE iceberg.t ()",
        ):
            with pytest.raises(InsufficientPrivilege):
                connection.execute(statement.encode())
