"""Roles, databases and topics of other applications whose names Truelog needs on servers that others run.

Set-up must not take them over: it would change their rights and limits.
"""

import base64
import hashlib
import hmac
import unicodedata
from collections.abc import Iterator, Sequence

import psycopg

from runtime.postgresql import READERS, admin, databases, logins
from truelog.log import topics
from truelog.log.admin_client import Client
from truelog.support.errors import NotSetUp
from truelog.support.settings import AIRFLOW_ROLE, KafkaUser, Settings

_VERIFIER = "SELECT rolpassword FROM pg_authid WHERE rolname = %s"
_SHOWN = 5  # topics
_OWNER = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = %s"
# Whether a role owns something in the databases, or has a right there.
_IS_OWN = """
    SELECT 1 FROM pg_shdepend s JOIN pg_roles r ON r.oid = s.refobjid JOIN pg_database d
        ON s.dbid = d.oid OR (s.classid, s.objid) = ('pg_database'::regclass, d.oid)
    WHERE s.refclassid = 'pg_authid'::regclass AND r.rolname = %s AND d.datname = ANY(%s)
"""
_CURE = "If another application uses it, give Truelog a PostgreSQL server of its own, or another TRUELOG_NAMESPACE."


def require_none(settings: Settings) -> None:
    """Change nothing.

    Raises:
        NotSetUp: a role, a database or a topic exists that is not this environment's, or a role has another password
            than in the settings; the message names them, and the cure.
    """
    with admin(settings) as connection:
        other, strange = _passwords(connection, settings)
        found = [
            f"The role {each} exists, and the password in Truelog's settings is not its password." for each in strange
        ]
        found += _foreign(connection, settings)
        is_new = not connection.execute(_OWNER, (settings.database_name,)).fetchone()
    if is_new and settings.namespace and (taken := _topics(settings)):
        named = ", ".join(taken[:_SHOWN])
        found.append(f"Kafka has {named}, but the database {settings.database_name} does not exist.")
    if found:
        found.append(_CURE)
    if other:
        found.insert(0, _copy(settings, other))
    if found:
        raise NotSetUp(" ".join(found))


def _topics(settings: Settings) -> list[str]:
    """Kafka's names of the topics that the environment has, without those of others that it reads."""
    return sorted(filter(settings.names.owns, topics.existing_topics(outsider(settings))))


def outsider(settings: Settings) -> Client:
    """A client of Kafka's administrator that sees Kafka's names."""
    without = {"namespace": "", "reads_namespace": "", "reads_bucket": ""}
    return topics.client(settings.model_copy(update=without), KafkaUser.ADMIN)


def _passwords(connection: psycopg.Connection, settings: Settings) -> tuple[list[str], list[str]]:
    """The roles whose passwords are not those of the settings: Truelog's own, and those of other applications.

    A role of Truelog's may have no password yet, which set-up then sets. The settings need no password of a role whose
    duty can fall to the owner.
    """
    passwords, needed = logins(settings), {settings.database_user, settings.names.in_postgresql(AIRFLOW_ROLE)}
    if settings.capture and not settings.source_host:
        passwords |= {settings.source_role: settings.source_password}
        needed.add(settings.source_role)
    other: list[str] = []
    strange: list[str] = []
    for role, password in passwords.items():
        found = connection.execute(_VERIFIER, (role,)).fetchone()
        if not found or _is_of(found[0] or "", role, password.get_secret_value()):
            continue
        if not connection.execute(_IS_OWN, (role, [*_owners(settings)])).fetchone():
            strange.append(role)
        elif found[0] if password else role in needed:
            other.append(role)
    return other, strange


def _copy(settings: Settings, roles: Sequence[str]) -> str:
    """The cure for roles of Truelog's whose passwords another machine has chosen."""
    duties = {settings.database_user: "database", settings.source_role: "source"}
    prefix = settings.names.in_postgresql("")
    lines = [f"TRUELOG_{duties.get(role, role.removeprefix(prefix)).upper()}_PASSWORD" for role in roles]
    return (
        f"The passwords in Truelog's settings are not those of Truelog's roles {', '.join(roles)}. If `truelog up` ran "
        f"on another machine first, copy these lines from the settings.env of that machine: {', '.join(lines)}."
    )


def _owners(settings: Settings) -> dict[str, str]:
    """The databases and their owners, also the captured database."""
    captured = {settings.source_database: settings.database_user}
    return databases(settings) | (captured if settings.capture and not settings.source_host else {})


def _foreign(connection: psycopg.Connection, settings: Settings) -> Iterator[str]:
    made = connection.execute(_OWNER, (settings.database_name,)).fetchone()
    readers = settings.names.in_postgresql(READERS)
    if not made and connection.execute(_VERIFIER, (readers,)).fetchone():
        yield f"The role {readers} exists, but the database {settings.database_name} does not."
    for database, owner in _owners(settings).items():
        found = connection.execute(_OWNER, (database,)).fetchone()
        if found and found[0] != owner:
            yield f"The database {database} exists, and its owner is {found[0]} instead of {owner}."


def _is_of(verifier: str, role: str, password: str) -> bool:
    """Whether PostgreSQL would accept the password. A connection could fail for other reasons, such as a limit."""
    if verifier.startswith("md5"):
        return hmac.compare_digest(verifier, f"md5{hashlib.md5((password + role).encode()).hexdigest()}")  # noqa: S324
    if not verifier.startswith("SCRAM-SHA-256$"):
        return False
    _, chosen, keys = verifier.split("$")  # RFC 5803
    iterations, salt = chosen.split(":")
    prepared = unicodedata.normalize("NFKC", password).encode()
    salted = hashlib.pbkdf2_hmac("sha256", prepared, base64.b64decode(salt), int(iterations))
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    return hmac.compare_digest(base64.b64decode(keys.split(":")[0]), stored)
