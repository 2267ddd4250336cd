"""Event types of a scene's own, in a copy of the events folder, and their removal at the scene's end."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.beds.archived import drop_archive
from tests.builders.views import forget
from tests.library.registered import forget_copies, forget_rows
from truelog.archive.table import open_catalog
from truelog.control import event_files, topic_status
from truelog.log import topics
from truelog.schema.loading.events import EVENTS
from truelog.storage.database import connect
from truelog.support.settings import KafkaUser, Settings

EVENT = '''"""A parcel on its way."""

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="parcel", subject=(), partitions=2, retention="7 days")


class Parcel(Event):
    """A parcel was scanned."""

    parcel: str = Field(max_length=64)
    grams: int = Field(ge=0)
'''

VIEW = '''"""Grams by parcel."""
from pyspark.sql import DataFrame, functions as F
from truelog import Sum, View

def transform(parcels: DataFrame) -> DataFrame:
    return parcels.select("parcel", "grams", F.lit(1).alias("scans"))

VIEW = View(reads=("{event}",), transform=transform, key=("parcel",), measures={{"grams": Sum(), "scans": Sum()}})
'''


def copy_events(folder: Path) -> Path:
    """A copy of the events folder."""
    copied = folder / "events"
    shutil.copytree(EVENTS, copied, ignore=shutil.ignore_patterns("__pycache__"))
    return copied


@contextmanager
def removed_at_the_end(settings: Settings, event: str, *views: str) -> Iterator[None]:
    """Remove the event type, its topic, its archive table and the views after the block, whatever happens in it."""
    try:
        yield
    finally:
        broker = topics.client(settings, KafkaUser.ADMIN)
        if event in topics.existing_topics(broker):
            broker.delete_topics([event])[event].result()
        with open_catalog(settings) as catalog:
            drop_archive(catalog, event)
        with connect(settings) as connection:
            forget_rows(connection, event)
            forget(connection, *views)
            for view in views:
                for name in (f"{schema}.{view}_v{v}" for schema in ("state", "stage", "batch") for v in (1, 2)):
                    connection.execute(f"DROP TABLE IF EXISTS {name} CASCADE".encode())
            for application in ("archive", "stream"):
                topic_status.record_suspended(connection, application, {})
            event_files.record_broken(connection, {})
        forget_copies(settings, event)
