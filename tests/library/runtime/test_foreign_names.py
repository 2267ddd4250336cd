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


def test_passwords_that_another_machine_has_chosen_are_named_with_the_cure(postgresql: Settings) -> None:
    """As after an upgrade in which set-up has written new passwords on two machines."""
    changed = {"collector_password": SecretStr("another"), "api_service_password": SecretStr("another")}
    with pytest.raises(NotSetUp) as refused:
        foreign_names.require_none(postgresql.model_copy(update=changed))
    message = str(refused.value)
    assert "not those of Truelog's roles collector, api_service." in message
    assert "copy these lines from the settings.env of that machine" in message
    assert "TRUELOG_COLLECTOR_PASSWORD, TRUELOG_API_SERVICE_PASSWORD." in message
    assert "a PostgreSQL server of its own" not in message
    assert "another." not in message
    with pytest.raises(NotSetUp, match=r"settings\.env of that machine: TRUELOG_DATABASE_PASSWORD"):
        foreign_names.require_none(postgresql.model_copy(update={"database_password": SecretStr("")}))


def test_the_settings_need_no_password_of_a_role_whose_duty_falls_to_the_owner(postgresql: Settings) -> None:
    without = {"collector_password": SecretStr(""), "api_service_password": SecretStr("")}
    foreign_names.require_none(postgresql.model_copy(update=without))


def test_a_role_of_another_application_is_named_with_the_cure(
    postgresql: Settings, superuser: psycopg.Connection
) -> None:
    """With its password, without one, and if the settings have none."""
    namespace = f"n{uuid.uuid4().hex[:8]}"
    other = postgresql.model_copy(update={"namespace": namespace})
    for role, login in (("api", "LOGIN PASSWORD 'theirs'"), ("collector", "NOLOGIN"), ("stager", "LOGIN")):
        superuser.execute(f"CREATE ROLE {namespace}_{role} {login}".encode())
    try:
        with pytest.raises(NotSetUp) as refused:
            foreign_names.require_none(other.model_copy(update={"stager_password": SecretStr("")}))
    finally:
        for role in ("api", "collector", "stager"):
            superuser.execute(f"DROP ROLE {namespace}_{role}".encode())
    for role in ("api", "collector", "stager"):
        assert f"The role {namespace}_{role} exists" in str(refused.value)
    assert "analyst" not in str(refused.value)
    assert "a PostgreSQL server of its own" in str(refused.value)


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
