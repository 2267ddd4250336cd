"""Who reads a view by SQL. `test_answer_counts.py` tests who reads it over the API."""

from collections.abc import Iterator

import psycopg
import pytest

from truelog.serving.view_readers import SqlReader, sql_readers
from truelog.storage.database import Connection, connect
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import API_ROLE, Settings

VIEW = "read_by_sql"


@pytest.fixture(scope="module")
def owner(postgresql: Settings) -> Iterator[Connection]:
    """The platform's own session, which has read the view, too."""
    with connect(postgresql, autocommit=True) as connection:
        connection.execute(f"CREATE VIEW views.{VIEW} AS SELECT 1 AS n".encode())
        connection.execute(f"CREATE VIEW views.{VIEW}_busiest AS SELECT * FROM views.{VIEW}".encode())
        with connect(postgresql) as reading:
            reading.execute(f"SELECT * FROM views.{VIEW}".encode())
            yield connection
        connection.execute(f"DROP VIEW views.{VIEW} CASCADE".encode())


def session(settings: Settings, role: str) -> psycopg.Connection:
    password = settings.api_password if role == API_ROLE else settings.analyst_password
    return psycopg.connect(**settings.database() | {"user": role, "password": password.get_secret_value()})


def test_analysts_are_seen_while_they_read(postgresql: Settings, owner: Connection) -> None:
    with session(postgresql, "analyst") as one, session(postgresql, "analyst") as other:
        assert sql_readers(owner, Names(), VIEW) == []
        one.execute(f"SELECT * FROM views.{VIEW}".encode())
        other.execute(f"SELECT n FROM views.{VIEW}_busiest".encode())  # a relation that the view presents
        assert sql_readers(owner, Names(), VIEW) == [SqlReader("analyst", 2)]
        assert sql_readers(owner, Names(), f"{VIEW}_busiest") == [SqlReader("analyst", 1)]
        other.rollback()
        assert sql_readers(owner, Names(), VIEW) == [SqlReader("analyst", 1)]
        assert sql_readers(owner, Names(), "no such view; --") == []


def test_the_api_is_not_a_reader_by_sql(postgresql: Settings, owner: Connection) -> None:
    with session(postgresql, API_ROLE) as api:
        api.execute(f"SELECT * FROM views.{VIEW}".encode())
        assert sql_readers(owner, Names(), VIEW) == []
