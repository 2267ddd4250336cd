"""Roles, databases and topics of other applications whose names Truelog needs on servers that others run.

Set-up must not take them over: it would change their rights and limits.
"""

import base64
import hashlib
import hmac
import unicodedata
from collections.abc import Iterator

import psycopg

from runtime.postgresql import READERS, admin, databases, logins
from truelog.log import topics
from truelog.support.errors import NotSetUp
from truelog.support.settings import KafkaUser, Settings

_VERIFIER = "SELECT rolpassword FROM pg_authid WHERE rolname = %s"
_SHOWN = 5  # topics
_OWNER = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = %s"
_CURE = "If another application uses it, give Truelog a PostgreSQL server of its own, or another TRUELOG_NAMESPACE."


def require_none(settings: Settings) -> None:
    """Change nothing.

    Raises:
        NotSetUp: a role, a database or a topic exists that is not this environment's; the message names them.
    """
    with admin(settings) as connection:
        found = list(_foreign(connection, settings))
        is_new = not connection.execute(_OWNER, (settings.database_name,)).fetchone()
    if is_new and settings.namespace and (taken := topics.existing_topics(topics.client(settings, KafkaUser.ADMIN))):
        named = ", ".join(sorted(map(settings.names.topic_of, taken))[:_SHOWN])
        found.append(f"Kafka has {named}, but the database {settings.database_name} does not exist.")
    if found:
        raise NotSetUp(" ".join((*found, _CURE)))


def _foreign(connection: psycopg.Connection, settings: Settings) -> Iterator[str]:
    passwords, owners = logins(settings), databases(settings)
    if settings.capture and not settings.source_host:
        passwords |= {settings.source_role: settings.source_password}
        owners |= {settings.source_database: settings.database_user}
    for role, password in passwords.items():
        found = connection.execute(_VERIFIER, (role,)).fetchone()
        if found and not _is_of(found[0] or "", role, password.get_secret_value()):
            yield f"The role {role} exists, and the password in Truelog's settings is not its password."
    made = connection.execute(_OWNER, (settings.database_name,)).fetchone()
    readers = settings.names.in_postgresql(READERS)
    if not made and connection.execute(_VERIFIER, (readers,)).fetchone():
        yield f"The role {readers} exists, but the database {settings.database_name} does not."
    for database, owner in owners.items():
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
