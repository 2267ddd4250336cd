"""The API on a database with deployed views, and a connection of the platform."""

from collections.abc import Iterator

import pytest

from tests.library.services.api.asking import Asking, asking
from tests.library.services.api.shop_views import deploy_views
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings


@pytest.fixture(scope="module")
def deployed(postgresql: Settings) -> Iterator[Connection]:
    with connect(postgresql, autocommit=True) as connection:
        deploy_views(connection)
        yield connection


@pytest.fixture(scope="module")
def api(postgresql: Settings, deployed: Connection) -> Iterator[Asking]:
    with asking(postgresql) as made:
        yield made
