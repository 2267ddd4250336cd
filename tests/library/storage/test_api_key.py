"""The keys in memory: they outlive every error of the database, and are loaded again after it."""

from enum import StrEnum

import pytest

from truelog.storage import api_key
from truelog.storage.api_key import KeyRing, Role, add_key, list_keys, revoke_key
from truelog.storage.database import connect
from truelog.support.errors import RequestRefused
from truelog.support.settings import Settings


def test_a_key_that_is_revoked_after_a_restore_stops_working(
    postgresql: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """While the database has no tables, the keys in memory stay. The thread that loads them must not end."""
    ring = KeyRing(postgresql)
    with connect(postgresql, autocommit=True) as connection:
        header = f"Bearer {add_key(connection, 'shop', Role.READER, 'a test')}"
        ring.load()
        connection.execute("ALTER TABLE truelog.api_key RENAME TO hidden")
        try:
            ring.reload()
        finally:
            connection.execute("ALTER TABLE truelog.hidden RENAME TO api_key")
        assert "cannot reload the API keys" in caplog.text
        assert ring.authorize(header, Role.READER).name == "shop"
        revoke_key(connection, "shop", "a test")
    ring.reload()
    with pytest.raises(RequestRefused, match="no such key"):
        ring.authorize(header, Role.READER)


class EarlierRole(StrEnum):
    """The roles of a release before archivists."""

    READER = "reader"
    BROWSER = "browser"


def test_a_key_with_a_role_of_a_later_release_holds_up_no_other(
    postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(postgresql, autocommit=True) as connection:
        later = add_key(connection, "lake", Role.ARCHIVIST, "a test")
        known = add_key(connection, "desk", Role.READER, "a test")
    monkeypatch.setattr(api_key, "Role", EarlierRole)
    ring = KeyRing(postgresql)
    ring.reload()
    assert ring.find(later) is None
    assert ring.find(known) is not None
    with connect(postgresql, autocommit=True) as connection:
        assert {each.name: each.role for each in list_keys(connection)}["lake"] == "archivist"
        assert revoke_key(connection, "lake", "a test").revoked_at is not None
