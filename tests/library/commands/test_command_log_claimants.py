"""A thousand sessions claim one name, and meet at each statement of the protocol. One of them gets it."""

from unittest import mock

import pytest

from runtime.postgresql import SERVER
from tests.library.commands.barrier import POINTS, held_at, require_one_winner
from tests.library.commands.decisions import Shop
from tests.servers import Environment
from truelog.storage.database import Connection
from truelog.support.settings import Settings

pytestmark = [pytest.mark.own_servers, pytest.mark.nightly]

CLIENTS = 1_000
SECONDS = 300.0
# By default, each session that waits for a second looks for a deadlock, in time that grows with all that wait.
MANY = {"max_connections": str(CLIENTS + 50), "deadlock_timeout": "1h"}


@pytest.fixture(scope="module")
def postgresql(environment: Environment) -> Settings:
    """A server that accepts that many sessions."""
    with mock.patch.dict(SERVER, MANY):
        return environment.provide("postgresql")


@pytest.mark.parametrize("point", POINTS)
def test_one_of_a_thousand_wins_wherever_they_meet(
    postgresql: Settings, connection: Connection, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(connection)
    with held_at(postgresql, point, monkeypatch, CLIENTS, SECONDS):
        require_one_winner(postgresql, shop, f"many_{point.removeprefix('command.')}", CLIENTS, SECONDS)
