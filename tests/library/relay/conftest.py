"""A view that publishes, for the tests of outputs."""

from collections.abc import Iterator

import pytest

from tests.builders.outputs import deploy_and_settle
from tests.library.relay.published import Published, declared, deployed
from tests.scenes.applications import STARTED
from truelog.storage.database import Connection
from truelog.support.settings import Settings


@pytest.fixture
def view(platform: Settings, connection: Connection) -> Iterator[Published]:
    made = deployed(platform, connection)
    yield made
    for process in STARTED:
        process.die()
    deploy_and_settle(connection, declared(made.compiled.name, publish=False))
