"""Set-up takes over no role and no database of another application on a server that others run."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from runtime import foreign_names
from runtime import postgresql as server
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings


@pytest.fixture
def superuser(postgresql: Settings) -> Iterator[psycopg.Connection]:
    with server.admin(postgresql) as connection:
        yield connection


def test_what_set_up_has_made_is_its_own(postgresql: Settings) -> None:
    foreign_names.require_none(postgresql)


def test_a_role_with_another_password_is_named_with_the_cure(postgresql: Settings) -> None:
    changed = {"api_password": SecretStr("another"), "analyst_password": SecretStr("another")}
    with pytest.raises(NotSetUp) as refused:
        foreign_names.require_none(postgresql.model_copy(update=changed))
    message = str(refused.value)
    assert "The role api exists" in message
    assert "The role analyst exists" in message
    assert "stager" not in message
    assert "a PostgreSQL server of its own" in message
    assert "another." not in message


def test_a_database_of_another_owner_and_a_group_without_the_database_are_named(postgresql: Settings) -> None:
    other = postgresql.model_copy(update={"airflow_database": postgresql.database_name})
    with pytest.raises(NotSetUp, match=f"The database {postgresql.database_name} exists, and its owner is truelog"):
        foreign_names.require_none(other)
    absent = postgresql.model_copy(update={"database_name": f"absent_{uuid.uuid4().hex[:8]}"})
    with pytest.raises(NotSetUp, match=f"The role {server.READERS} exists, but the database absent_"):
        foreign_names.require_none(absent)


@pytest.mark.parametrize("encryption", ["scram-sha-256", "md5"])
@pytest.mark.parametrize("password", ["plain", "gr\u00fc\u00dfe \u2460"])
def test_a_password_is_recognised_as_the_server_stores_it(
    superuser: psycopg.Connection, encryption: str, password: str
) -> None:
    name = f"own_{uuid.uuid4().hex[:8]}"
    with superuser.transaction(force_rollback=True):
        superuser.execute(sql.SQL("SET LOCAL password_encryption = {}").format(encryption))
        superuser.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), password))
        [verifier] = superuser.execute(foreign_names._VERIFIER, (name,)).fetchone() or ("",)
    assert foreign_names._is_of(verifier, name, password)
    assert not foreign_names._is_of(verifier, name, f"{password} ")
    assert not foreign_names._is_of("", name, "")
