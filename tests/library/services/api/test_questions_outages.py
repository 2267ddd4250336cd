"""After an outage of PostgreSQL, however long it was, the API answers soon. It refuses requests during a restore."""

import pytest

from tests.library.services.api.asking import Asking, asking
from tests.library.services.api.shop_views import PAGES
from tests.library.services.door import closed_door
from truelog.services.api.rows import catalogue
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

# They use all three pools of connections.
ROWS = f"/views/{PAGES}/rows"
PATHS = ("/health", "/rate-limits/203.0.113.9", ROWS, f"{ROWS}?as_of=2026-01-01T09:00:00Z")
ANSWERED = {200, 202, 404}  # there are no views of rates here
LOOKS = 24  # for PostgreSQL, during the outage; by default, a pool would then pause for half a minute


def statuses(api: Asking) -> list[int]:
    return [api.get(path).status_code for path in PATHS]


def test_the_first_or_second_request_after_an_outage_is_answered(
    postgresql: Settings, deployed: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "_SECONDS", 600.0)  # so that questions about rows reach their own pools
    with closed_door(postgresql) as door:
        door.is_open = True
        with asking(postgresql, database_host="127.0.0.1", database_port=door.port) as api:
            assert {*statuses(api)} <= ANSWERED
            door.close()
            while door.looks < LOOKS:
                assert statuses(api) == [503] * len(PATHS)
            door.is_open = True
            assert all(ANSWERED.intersection(each) for each in zip(statuses(api), statuses(api), strict=True))


def test_a_request_while_the_database_is_restored_is_refused_and_answered_afterwards(
    postgresql: Settings, deployed: Connection
) -> None:
    """The tables, or the rights to them, are not there yet."""
    harm = (
        ("ALTER SCHEMA truelog RENAME TO restoring", "ALTER SCHEMA restoring RENAME TO truelog"),
        ("REVOKE USAGE ON SCHEMA truelog FROM api", "GRANT USAGE ON SCHEMA truelog TO api"),
    )
    with asking(postgresql) as api, connect(postgresql, autocommit=True) as connection:
        assert {*statuses(api)} <= ANSWERED
        for harmed, mended in harm:
            connection.execute(harmed.encode())
            try:
                during = statuses(api)
            finally:
                connection.execute(mended.encode())
            assert 503 in during
            assert 500 not in during
            assert all(ANSWERED.intersection(each) for each in zip(statuses(api), statuses(api), strict=True))
