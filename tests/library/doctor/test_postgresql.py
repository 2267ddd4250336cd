"""The doctor finds each planted fault of a real PostgreSQL, and names its cure."""

from typing import Any, cast

import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus
from pydantic import SecretStr

from tests.builders.rows import insert
from truelog.doctor import postgresql as area
from truelog.doctor.postgresql import POSTGRESQL
from truelog.doctor.result import Outcome, Result
from truelog.storage import migration
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings


def examined(settings: Settings, **changes: object) -> dict[str, Result]:
    return {each.check: each for each in POSTGRESQL.examine(settings.model_copy(update=changes))}


def test_a_sound_database_needs_no_cure(postgresql: Settings) -> None:
    found = examined(postgresql)
    found.pop("durability")  # the tests' servers do not wait for the disk
    assert {check: each.found for check, each in found.items() if each.outcome is not Outcome.FINE} == {}
    assert {"version", "clock", "encryption", "schema", "sessions", "connections", "role api"} <= found.keys()


def test_commits_that_a_crash_could_lose_are_found(postgresql: Settings, connection: Connection) -> None:
    database = sql.Identifier(postgresql.database_name)
    connection.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(database))
    found = examined(postgresql)["durability"]
    connection.execute(sql.SQL("ALTER DATABASE {} RESET synchronous_commit").format(database))
    assert (found.outcome, "synchronous_commit is off" in found.found.replace("fsync, ", "")) == (Outcome.FAILED, True)


def test_a_schema_of_another_release_is_found(postgresql: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(postgresql) as connection:
        with connection.transaction(force_rollback=True):
            insert(connection, "migration", number=9_999, name="9999_later")
            assert "newer release" in area._schema(POSTGRESQL, connection).found
        known = migration._migrations()
        monkeypatch.setattr(migration, "_migrations", lambda: known | {9_998: known[max(known)]})
        missing = area._schema(POSTGRESQL, connection)
    assert (missing.outcome, missing.found) == (Outcome.FAILED, "1 migrations are missing")
    assert "truelog up" in missing.cure


def test_a_role_with_a_wrong_password_or_none_is_named(postgresql: Settings) -> None:
    found = examined(postgresql, stager_password=SecretStr("wrong"), catalog_password=SecretStr(""))
    assert (found["role stager"].outcome, found["role stager"].cure) == (
        Outcome.FAILED,
        "Check TRUELOG_STAGER_PASSWORD.",
    )
    assert "wrong" not in found["role stager"].found
    assert (found["role catalog"].outcome, found["role catalog"].found) == (
        Outcome.WARNING,
        "no TRUELOG_CATALOG_PASSWORD",
    )


class Pooled:
    """A client of a transaction pooler: each statement runs in the first session that no transaction keeps."""

    def __init__(self, sessions: list[Connection]) -> None:
        self._sessions = sessions

    def _free(self) -> Connection:
        return next(each for each in self._sessions if each.info.transaction_status is TransactionStatus.IDLE)

    def cursor(self, **options: Any) -> object:
        return self._free().cursor(**options)

    def transaction(self) -> object:
        return self._free().transaction()


def test_a_transaction_pooler_is_found_although_it_is_quiet(postgresql: Settings) -> None:
    """Without another client, a pooler gives the same session again and again."""
    with connect(postgresql, autocommit=True) as one, connect(postgresql, autocommit=True) as other:
        pool = [one, other]
        clients = (cast(Connection, Pooled(pool)) for _ in range(2))
        found = area._sessions(POSTGRESQL, *clients)
    assert (found.outcome, "pooler" in found.found) == (Outcome.FAILED, True)


def test_a_server_that_is_down_is_one_result(postgresql: Settings) -> None:
    [found] = examined(postgresql, database_port=1).values()
    assert (found.check, found.outcome) == ("answers", Outcome.FAILED)
    assert "TRUELOG_DATABASE_PORT" in found.cure.replace("_HOST, _PORT", "_PORT")
