"""PyIceberg reads the archive with PostgreSQL's catalog by the steps of `docs/bi.md`, and can change nothing."""

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
from tests.library.archive_files import OF_TWO_DAYS, archive_values
from truelog.support.settings import PROJECT, Settings

PAGE = (PROJECT / "docs" / "bi.md").read_text()
[STATEMENTS] = re.findall(r"```sql\n(CREATE ROLE lake.*?)```", PAGE, re.DOTALL)
[STEPS] = re.findall(r"```python\n(import os\n\nfrom pyiceberg.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def archived(platform: Settings) -> Settings:
    """An event of the day, an event of the day after, and an invalid record."""
    archive_values(platform, OF_TWO_DAYS)
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


def test_pyiceberg_reads_the_archive(
    archived: Settings, lake: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = f"{lake['host']}:{lake['port']}/{lake['dbname']}"
    uri = f"postgresql+psycopg://{lake['user']}:{quote(lake['password'])}@{at}?options=-csearch_path%3Diceberg"
    monkeypatch.setenv("ARCHIVE_CATALOG", uri)
    monkeypatch.setenv("ARCHIVE_S3", archived.s3_endpoint)
    monkeypatch.setenv("ARCHIVE_KEY", archived.s3_access_key)
    monkeypatch.setenv("ARCHIVE_SECRET", archived.s3_secret_key.get_secret_value())
    exec(STEPS, {})  # the example of the page
    assert capsys.readouterr().out.count("shop.example") == 2


def test_the_role_changes_no_table(lake: dict[str, Any]) -> None:
    with psycopg.connect(**lake, autocommit=True) as connection:
        for statement in (
            "DELETE FROM iceberg.iceberg_tables",
            "UPDATE iceberg.iceberg_tables SET metadata_location = ''",
            "CREATE TABLE iceberg.t ()",
        ):
            with pytest.raises(InsufficientPrivilege):
                connection.execute(statement.encode())
