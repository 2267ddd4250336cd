"""The views that notification rules are about, and a receiver."""

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from tests.builders.notifications import no_notifications
from tests.library.listener import Listener, listening
from tests.library.notifications.found_rows import FoundRows, found_rows
from tests.library.notifications.rounds import SECRET
from tests.scenes.applications import STARTED
from truelog.storage.database import Connection
from truelog.support.setting_groups.notifications import Channel
from truelog.support.settings import Settings


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as it:
        yield it


@pytest.fixture
def quiet(connection: Connection) -> Iterator[Connection]:
    """A database without notification rules, before and after."""
    no_notifications(connection)
    yield connection
    for process in STARTED:
        process.die()
    no_notifications(connection)


@pytest.fixture
def hits(quiet: Connection) -> Iterator[FoundRows]:
    with found_rows(quiet, "search_hits") as view:
        yield view


@pytest.fixture
def matches(quiet: Connection) -> Iterator[FoundRows]:
    with found_rows(quiet, "matches") as view:
        yield view


@pytest.fixture
def carts(quiet: Connection) -> Iterator[FoundRows]:
    with found_rows(quiet, "cart") as view:
        yield view


@pytest.fixture
def told(postgresql: Settings, listener: Listener) -> Settings:
    """Settings whose channel `ops` is a webhook."""
    webhook = Channel(kind="webhook", url=SecretStr(f"{listener.url}/hook"), token=SecretStr(SECRET))
    changed = {"notification_channels": {"ops": webhook}, "notification_answer_seconds": 2.0}
    return postgresql.model_copy(update=changed | {"notification_retry_seconds": 0.01})
