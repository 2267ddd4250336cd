"""Roles of set-up, and roles that an operator adds for readers, with the statements and the pool of `docs/bi.md`."""

import os
import re
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from runtime import postgresql as server
from truelog.support.settings import PROJECT, Settings

PAGE = (PROJECT / "docs" / "bi.md").read_text()
STATEMENTS = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)[0]
[POOL] = re.findall(r"```python\n(from psycopg_pool.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def shop(postgresql: Settings) -> Iterator[str]:
    """The address with which the shop connects."""
    name = f"shop_{uuid.uuid4().hex[:8]}"
    with server.admin(postgresql, postgresql.database_name) as connection:
        connection.execute(STATEMENTS.replace("shop", name).encode())
        yield make_conninfo(**postgresql.database() | {"user": name, "password": "a long random text"})
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_a_further_role_reads_over_a_pool_and_has_limits_of_its_own(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DATABASE", shop)
    names: dict[str, Any] = {"os": os}
    exec(POOL, names)  # the example of the page
    assert isinstance(names["rows"], list)
    with names["pool"] as pool, pool.connection() as connection:
        limits = ("default_transaction_read_only", "statement_timeout", "idle_in_transaction_session_timeout")
        assert [connection.execute(f"SHOW {each}").fetchone()[0] for each in limits] == ["on", "2s", "10s"]
        for refused in (
            "SELECT * FROM truelog.api_key",
            "CREATE TABLE views.own (x int)",
            "CREATE TEMP TABLE own (x int)",
        ):
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)):
                connection.execute(f"SET default_transaction_read_only = off; {refused}")


def test_a_role_without_a_password_gets_the_first_one_and_keeps_it(postgresql: Settings) -> None:
    """As when the settings of an earlier release had none."""
    name = f"role_{uuid.uuid4().hex[:8]}"
    signed_in = postgresql.database() | {"user": name, "dbname": server.MAINTENANCE}
    with server.admin(postgresql) as connection:
        try:
            server.create_role(connection, name, "")
            assert _may_sign_in(connection, name) is False
            connection.execute(sql.SQL("GRANT CONNECT ON DATABASE postgres TO {}").format(sql.Identifier(name)))
            for password in ("first", "second", ""):
                server.create_role(connection, name, password)
                assert _may_sign_in(connection, name) is True
                psycopg.connect(**signed_in | {"password": "first"}).close()
            connection.execute(sql.SQL("ALTER ROLE {} PASSWORD NULL").format(sql.Identifier(name)))
            server.create_role(connection, name, "third")  # that of an earlier release may sign in without a password
            psycopg.connect(**signed_in | {"password": "third"}).close()
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def _may_sign_in(connection: psycopg.Connection, role: str) -> bool:
    [found] = connection.execute("SELECT rolcanlogin FROM pg_roles WHERE rolname = %s", (role,)).fetchone() or (None,)
    return bool(found)
