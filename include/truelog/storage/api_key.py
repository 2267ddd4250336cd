"""API keys: authentication and roles of HTTP clients.

A key is `name.secret`. The database holds the name, the role and a hash. The secret is 192 random bits, so a fast hash
is safe. Set-up generates the first three keys and writes them to the home's settings. Each process keeps all keys in
memory and reloads them every few seconds, so that no request waits for the database. A revoked key stops working at
the next reload.
"""

import hashlib
import hmac
import logging
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum

import psycopg

from truelog.storage.database import connect
from truelog.support.errors import BadDeclaration, RequestRefused
from truelog.support.settings import Settings

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Role(StrEnum):
    """The permissions of a key: a producer posts events, a reader queries, an admin may do everything."""

    PRODUCER = "producer"
    READER = "reader"
    ADMIN = "admin"

    def may_act_as(self, other: "Role") -> bool:
        return self in (other, Role.ADMIN)


@dataclass(frozen=True)
class ApiKey:
    """A key as the database holds it. The secret cannot be derived from it."""

    name: str
    role: Role
    sha256: bytes


def generate_key(name: str) -> str:
    """Generate a key without storing it."""
    if not _NAME.fullmatch(name):
        raise BadDeclaration(f"{name!r} is not a valid key name: use a-z, 0-9, _ and -, at most 63 characters.")
    return f"{name}.{secrets.token_hex(24)}"


def store_key(settings: Settings, role: Role, key: str) -> None:
    """Store a key, or replace the key of the same name. A revoked name stays revoked."""
    with connect(settings) as connection:
        connection.execute(
            "INSERT INTO truelog.api_key (name, role, sha256) VALUES (%s, %s, %s) "
            "ON CONFLICT (name) DO UPDATE SET role = excluded.role, sha256 = excluded.sha256 "
            "WHERE (api_key.role, api_key.sha256) <> (excluded.role, excluded.sha256)",
            (_name(key), role.value, _hash(key)),
        )


def store_first_keys(settings: Settings) -> None:
    """Store the keys that set-up generated, one for each role."""
    first = {Role.PRODUCER: settings.producer_key, Role.READER: settings.reader_key, Role.ADMIN: settings.admin_key}
    for role, key in first.items():
        if key.get_secret_value():
            store_key(settings, role, key.get_secret_value())


def revoke_key(settings: Settings, name: str) -> bool:
    """Revoke the key of that name. False if there is no valid key of that name."""
    with connect(settings) as connection:
        changed = connection.execute(
            "UPDATE truelog.api_key SET revoked_at = now() WHERE name = %s AND revoked_at IS NULL", (name,)
        )
        return changed.rowcount > 0


class KeyRing:
    """All valid keys, in memory."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys: dict[str, ApiKey] = {}
        # A random hash that no key matches. A key of an unknown name is compared with it, so that the time is the same.
        self._unknown = ApiKey("", Role.READER, secrets.token_bytes(32))

    def load(self) -> None:
        with connect(self._settings) as connection:
            rows = connection.execute(
                "SELECT name, role, sha256 FROM truelog.api_key WHERE revoked_at IS NULL"
            ).fetchall()
        keys = [ApiKey(str(name), Role(str(role)), bytes(sha256)) for name, role, sha256 in rows]  # type: ignore[call-overload]
        self._keys = {key.name: key for key in keys}

    def reload(self) -> None:
        """Load the keys again. If the database is unavailable, the last keys stay valid."""
        try:
            self.load()
        except psycopg.OperationalError as error:
            log.warning("cannot reload the API keys: %s", error)

    def authorize(self, authorization: str, role: Role) -> ApiKey:
        """The key in an `Authorization` header.

        Raises:
            RequestRefused: the key is invalid, or its role does not permit the request.
        """
        scheme, _, key = authorization.partition(" ")
        found = self.find(key.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise RequestRefused(401, "no such key; send Authorization: Bearer KEY")
        if not found.role.may_act_as(role):
            raise RequestRefused(403, f"a {found.role} may not do this; use the key of a {role}")
        return found

    def find(self, key: str) -> ApiKey | None:
        """The stored key that equals `key`. The comparison takes the same time for every secret."""
        candidate = self._keys.get(_name(key), self._unknown)
        return candidate if hmac.compare_digest(candidate.sha256, _hash(key)) else None


def _name(key: str) -> str:
    return key.partition(".")[0]


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
