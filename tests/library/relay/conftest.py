"""A view that publishes, for the tests of outputs."""

from collections.abc import Iterator

import pytest

from tests.library.relay.published import Published, declared, deployed
from tests.scenes.applications import STARTED
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables import deploy


@pytest.fixture
def view(platform: Settings, connection: Connection) -> Iterator[Published]:
    made = deployed(platform, connection)
    yield made
    for process in STARTED:
        process.die()
    deploy.deploy_table(connection, declared(made.compiled.name, publish=False))
