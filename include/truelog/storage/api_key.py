"""API keys: authentication and roles of HTTP clients.

A key has the form `name.secret`. The database stores the name, the role and a hash. The secret consists of 192 random
bits, so a fast hash is safe. Setup generates the first three keys and writes them to the home's settings. Each process
keeps all keys in memory and reloads them every few seconds, so that no request waits for the database. A revoked key
stops working at the next reload.

A page's key is public, because every visitor can read it. It names the origins of the pages and the event types that it
may send, and permits nothing else.
"""

import hashlib
import hmac
import logging
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import psycopg

from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect
from truelog.storage.kept_sessions import kept
from truelog.support.errors import BadDeclaration, BadInput, RequestRefused
from truelog.support.settings import Settings

RELOAD_SECONDS = 5.0  # between two reloads of the keys in a service

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Role(StrEnum):
    """The permissions of a key.

    A producer may post events. An editor may also change rules, searches and notification rules. A reader may query
    views. An archivist may load the archive's tables, and so find each event with all its fields. An admin may do
    anything. A browser may send events of some types from pages of some origins.
    """

    PRODUCER = "producer"
    EDITOR = "editor"
    READER = "reader"
    ARCHIVIST = "archivist"
    ADMIN = "admin"
    BROWSER = "browser"

    def may_act_as(self, other: "Role") -> bool:
        return self in (other, Role.ADMIN) or (self, other) == (Role.EDITOR, Role.PRODUCER)


FIRST = (Role.PRODUCER, Role.READER, Role.ADMIN)  # the roles whose keys setup generates


@dataclass(frozen=True)
class Page:
    """What the key of a page permits: these origins and these event types."""

    origins: tuple[str, ...]
    event_types: tuple[str, ...]


@dataclass(frozen=True)
class ApiKey:
    """A key as the database stores it. The secret cannot be derived from the hash."""

    name: str
    role: Role
    sha256: bytes
    page: Page | None = None  # of a browser's key

    def require(self, role: Role) -> None:
        """Raise RequestRefused if the key's role does not permit what this role may do."""
        if not self.role.may_act_as(role):
            raise RequestRefused(403, f"the role {self.role} may not do this; use a key with the role {role}")


@dataclass(frozen=True)
class KeyEntry:
    """A key as a list shows it, without its secret and its hash."""

    name: str
    role: str  # may be one of a later release
    made_at: datetime
    revoked_at: datetime | None
    origins: list[str]  # of a browser's key, like the event types
    event_types: list[str]


def generate_key(name: str) -> str:
    """Generate a key without storing it."""
    if not _NAME.fullmatch(name):
        raise BadDeclaration(f"{name!r} is not a valid key name: use a-z, 0-9, _ and -, at most 63 characters.")
    return f"{name}.{secrets.token_hex(24)}"


def store_key(settings: Settings, role: Role, key: str) -> None:
    """Store a key, or replace the key with the same name. A revoked name stays revoked."""
    with connect(settings) as connection:
        connection.execute(
            "INSERT INTO truelog.api_key (name, role, sha256) VALUES (%s, %s, %s) "
            "ON CONFLICT (name) DO UPDATE SET role = excluded.role, sha256 = excluded.sha256 "
            "WHERE (api_key.role, api_key.sha256) <> (excluded.role, excluded.sha256)",
            (_name(key), role.value, _hash(key)),
        )


def store_first_keys(settings: Settings) -> None:
    """Store the keys that setup generated, one for each role."""
    first = {Role.PRODUCER: settings.producer_key, Role.READER: settings.reader_key, Role.ADMIN: settings.admin_key}
    for role, key in first.items():
        if key.get_secret_value():
            store_key(settings, role, key.get_secret_value())


def list_keys(connection: Connection) -> list[KeyEntry]:
    """All keys in order of their names, including revoked keys."""
    rows = connection.execute(
        "SELECT name, role, made_at, revoked_at, coalesce(origins, '{}'), coalesce(event_types, '{}') "
        "FROM truelog.api_key ORDER BY name"
    ).fetchall()
    return [KeyEntry(*row) for row in rows]


def add_key(connection: Connection, name: str, role: Role, doer: str, page: Page | None = None) -> str:
    """Generate a key, store its hash and return the key, which cannot be read again.

    Raises:
        BadDeclaration: the name is not valid, or a page is named for another role, or not for a browser.
        BadInput: a valid or revoked key already has that name.
    """
    key = generate_key(name)
    if (role is Role.BROWSER) != (page is not None and bool(page.origins) and bool(page.event_types)):
        raise BadDeclaration("A browser's key, and no other, names its origins and its event types.")
    added = connection.execute(
        "INSERT INTO truelog.api_key (name, role, sha256, origins, event_types) VALUES (%s, %s, %s, %s, %s) "
        "ON CONFLICT DO NOTHING",
        (name, role.value, _hash(key), page and list(page.origins), page and list(page.event_types)),
    )
    if not added.rowcount:
        raise BadInput(f"A valid or revoked key named {name} already exists. Choose another name.")
    audit_trail.record_operation(connection, OperationKind.KEY_ADD, name, doer, f"role {role}{_of(page)}")
    return key


def revoke_key(connection: Connection, name: str, doer: str) -> KeyEntry:
    """Revoke a key. A key that is already revoked keeps its revocation date.

    Raises:
        BadInput: no key has that name.
    """
    revoked = connection.execute(
        "UPDATE truelog.api_key SET revoked_at = now() WHERE name = %s AND revoked_at IS NULL", (name,)
    )
    if revoked.rowcount:
        audit_trail.record_operation(connection, OperationKind.KEY_REVOKE, name, doer)
    for entry in list_keys(connection):
        if entry.name == name:
            return entry
    raise BadInput(f"There is no key named {name}. `truelog key list` shows all keys.")


class KeyRing:
    """All valid keys, in memory."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys: dict[str, ApiKey] = {}
        # Keys with unknown names are compared with this random hash, so that the check takes the same time.
        self._unknown = ApiKey("", Role.READER, secrets.token_bytes(32))

    def load(self) -> None:
        """Load the keys. A key with a role of a later release permits nothing here."""
        with kept(self._settings) as connection:
            rows = connection.execute(
                "SELECT name, role, sha256, origins, event_types FROM truelog.api_key WHERE revoked_at IS NULL"
            ).fetchall()
        known = set(Role)
        keys = [
            ApiKey(name, Role(role), sha256, Page(tuple(origins), tuple(types)) if role == Role.BROWSER else None)
            for name, role, sha256, origins, types in rows
            if role in known
        ]
        self._keys = {key.name: key for key in keys}

    def reload(self) -> None:
        """Load the keys again. If the database cannot answer, as during a restore, the keys in memory stay valid."""
        try:
            self.load()
        except psycopg.Error as error:
            log.warning("cannot reload the API keys: %s", error)

    def authorize(self, authorization: str, role: Role) -> ApiKey:
        """The stored key that matches an `Authorization` header.

        Raises:
            RequestRefused: the key is invalid, or its role does not permit the request.
        """
        scheme, _, key = authorization.partition(" ")
        found = self.find(key.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise RequestRefused(401, "no such key; send Authorization: Bearer KEY")
        found.require(role)
        return found

    def authorize_page(self, key: str, origin: str) -> ApiKey:
        """The browser's key that a page of this origin sends.

        Raises:
            RequestRefused: the key is not that of a browser, or the page has another origin.
        """
        found = self.find(key)
        if found is None or found.page is None:
            raise RequestRefused(401, "no such key of a browser; `truelog key add NAME --role browser` makes one")
        if origin not in found.page.origins:
            raise RequestRefused(403, f"the key is for pages of {', '.join(found.page.origins)}")
        return found

    def knows(self, name: str, role: Role) -> bool:
        """Whether a valid key has this name, and may act in this role."""
        found = self._keys.get(name)
        return found is not None and found.role.may_act_as(role)

    def find(self, key: str) -> ApiKey | None:
        """The stored key that matches `key`. The comparison takes the same time for every secret."""
        candidate = self._keys.get(_name(key), self._unknown)
        return candidate if hmac.compare_digest(candidate.sha256, _hash(key)) else None


def _of(page: Page | None) -> str:
    return f", {', '.join(page.event_types)} from {', '.join(page.origins)}" if page else ""


def _name(key: str) -> str:
    return key.partition(".")[0]


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
