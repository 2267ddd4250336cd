"""API keys: who may do what over HTTP.

A key is `name.secret`. The database holds its name, its role and a hash, from which no key can be made again; the
secret is 192 random bits, so the hash need not be a slow one. The first three are generated at set-up into the home's
settings. Processes keep all keys in memory and read them again every few seconds: no request waits for the database,
and a key that is revoked opens nothing more after that time.
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
    """What a key is for: a producer posts events, a reader asks, an admin may do everything."""

    PRODUCER = "producer"
    READER = "reader"
    ADMIN = "admin"

    def may_act_as(self, other: "Role") -> bool:
        return self in (other, Role.ADMIN)


@dataclass(frozen=True)
class ApiKey:
    """A key as it is kept: who holds it can prove it, who reads this cannot."""

    name: str
    role: Role
    sha256: bytes


def generate_key(name: str) -> str:
    """A new key of that name; nothing knows it yet."""
    if not _NAME.fullmatch(name):
        raise BadDeclaration(f"{name!r} names no API key: use a-z, 0-9, _ and -, at most 63 characters.")
    return f"{name}.{secrets.token_hex(24)}"


def store_key(settings: Settings, role: Role, key: str) -> None:
    """Let that key in. A key of the same name is replaced; one that was revoked stays so."""
    with connect(settings) as connection:
        connection.execute(
            "INSERT INTO truelog.api_key (name, role, sha256) VALUES (%s, %s, %s) "
            "ON CONFLICT (name) DO UPDATE SET role = excluded.role, sha256 = excluded.sha256 "
            "WHERE (api_key.role, api_key.sha256) <> (excluded.role, excluded.sha256)",
            (_name(key), role.value, _hash(key)),
        )


def store_first_keys(settings: Settings) -> None:
    """Let in the keys that set-up generated: one for each role."""
    first = {Role.PRODUCER: settings.producer_key, Role.READER: settings.reader_key, Role.ADMIN: settings.admin_key}
    for role, key in first.items():
        if key.get_secret_value():
            store_key(settings, role, key.get_secret_value())


def revoke_key(settings: Settings, name: str) -> bool:
    """Let nobody in with the key of that name any more; False where there is none."""
    with connect(settings) as connection:
        changed = connection.execute(
            "UPDATE truelog.api_key SET revoked_at = now() WHERE name = %s AND revoked_at IS NULL", (name,)
        )
        return changed.rowcount > 0


class KeyRing:
    """All keys that open something, in memory."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys: dict[str, ApiKey] = {}
        # What an unknown name is compared with: it takes as long as a known one, and never fits.
        self._nobody = ApiKey("", Role.READER, secrets.token_bytes(32))

    def read(self) -> None:
        with connect(self._settings) as connection:
            rows = connection.execute(
                "SELECT name, role, sha256 FROM truelog.api_key WHERE revoked_at IS NULL"
            ).fetchall()
        keys = [ApiKey(str(name), Role(str(role)), bytes(sha256)) for name, role, sha256 in rows]  # type: ignore[call-overload]
        self._keys = {key.name: key for key in keys}

    def read_again(self) -> None:
        """While the database is away, the keys are those last read."""
        try:
            self.read()
        except psycopg.OperationalError as away:
            log.warning("API keys not read again: %s", away)

    def admit(self, authorization: str, role: Role) -> ApiKey:
        """The key in a request's header of that name.

        Raises:
            RequestRefused: it opens nothing, or not this.
        """
        scheme, _, key = authorization.partition(" ")
        holder = self.holder(key.strip()) if scheme.lower() == "bearer" else None
        if holder is None:
            raise RequestRefused(401, "no such key; send Authorization: Bearer KEY")
        if not holder.role.may_act_as(role):
            raise RequestRefused(403, f"a {holder.role} may not do this; it takes a {role}")
        return holder

    def holder(self, presented: str) -> ApiKey | None:
        """The key that was presented, if it is one; how long the answer takes tells nothing about a secret."""
        known = self._keys.get(_name(presented), self._nobody)
        return known if hmac.compare_digest(known.sha256, _hash(presented)) else None


def _name(key: str) -> str:
    return key.partition(".")[0]


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
