"""The API beside an archive, and the key of an archivist."""

from collections.abc import Iterator

import pytest

from tests.library.archive_files import OF_TWO_DAYS, archive_values
from tests.library.services.api.streaming import Served, serving
from truelog.storage.api_key import Role, add_key
from truelog.storage.database import connect
from truelog.support.settings import Settings


@pytest.fixture(scope="module")
def archivist(platform: Settings) -> str:
    with connect(platform, autocommit=True) as connection:
        return add_key(connection, "lake", Role.ARCHIVIST, "a test")


@pytest.fixture(scope="module")
def served(platform: Settings, archivist: str) -> Iterator[Served]:
    with serving(platform) as api:
        yield api


@pytest.fixture
def archived(platform: Settings) -> Settings:
    """An archive of three page views: of two days, and an invalid one."""
    archive_values(platform, OF_TWO_DAYS)
    return platform
