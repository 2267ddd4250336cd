from collections.abc import Iterator

import pytest

from tests.library.versions.two_versions import TwoVersions, deploy_two
from truelog.storage.database import Connection
from truelog.support.settings import Settings


@pytest.fixture
def versions(postgresql: Settings, connection: Connection) -> Iterator[TwoVersions]:
    made = deploy_two(postgresql, connection)
    yield made
    made.forget()
