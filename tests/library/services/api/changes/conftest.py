"""A view that publishes, and an API that pushes its changes."""

from collections.abc import Iterator

import pytest

from tests.library.relay.published import Published, publishing
from tests.library.services.api.streaming import Served, serving
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings


@pytest.fixture(scope="module")
def connection(postgresql: Settings) -> Iterator[Connection]:
    with connect(postgresql, autocommit=True) as made:
        yield made


@pytest.fixture(scope="module")
def api(postgresql: Settings, connection: Connection) -> Iterator[Served]:
    with serving(postgresql) as served:
        yield served


@pytest.fixture
def view(postgresql: Settings, connection: Connection) -> Iterator[Published]:
    with publishing(postgresql, connection) as made:
        yield made
