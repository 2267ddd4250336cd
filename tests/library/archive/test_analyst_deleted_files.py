"""If files are deleted while a reader reads them, by an erasure or upkeep, the error says that it may ask again."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.builders.event_types import an_event_type
from tests.library import archive_readers
from tests.library.archive_files import OF_TWO_DAYS, TOPIC, TOPIC_ID, archive_values
from truelog.archive.table import identifier, open_catalog
from truelog.batch.run_interval import RunInterval
from truelog.measures.registry import sql_functions
from truelog.quality.quality_metrics import measure_days
from truelog.schema.loading.events import load_events
from truelog.storage import bucket
from truelog.storage.database import connect
from truelog.storage.migration import migrate
from truelog.support.errors import FilesDeleted
from truelog.support.settings import Settings

LOGGED = RunInterval(datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC))


READERS: dict[str, Callable[[Settings], object]] = {
    **archive_readers.READERS,
    "quality": lambda it: measure_days(it, [load_events()[TOPIC]], LOGGED),
}


@pytest.fixture(scope="module")
def without_files(postgresql: Settings, s3: Settings) -> Settings:
    """An archive whose catalog names files that are deleted, as a reader's plan may."""
    migrate(postgresql, sql_functions())
    with connect(postgresql, autocommit=True) as connection:
        an_event_type(connection, load_events()[TOPIC], TOPIC_ID)
    archive_values(postgresql, OF_TWO_DAYS)
    with open_catalog(postgresql) as catalog:
        location = catalog.load_table(identifier(TOPIC)).location()
    client = bucket.s3_client(postgresql)
    for address in bucket.object_sizes(postgresql, f"{location}/data/"):
        place, key = address.removeprefix("s3://").split("/", 1)
        client.delete_object(Bucket=place, Key=key)
    return postgresql


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_reader_whose_files_are_deleted_is_told_to_repeat(
    without_files: Settings, read: Callable[[Settings], object]
) -> None:
    with pytest.raises(FilesDeleted, match="Repeat the question"):
        read(without_files)
