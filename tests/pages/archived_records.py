"""Three archived records. Only the first is valid."""

from tests.builders.event_types import an_event_type
from tests.builders.views import an_exclusion
from tests.library.archive_files import TOPIC, TOPIC_ID, kafka_records, written
from truelog.archive.commit import Append, commit
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.schema.loading.events import load_events
from truelog.storage.database import connect
from truelog.support.settings import Settings

VALID = b'{"event_id": "e", "occurred_at": "2026-03-01T00:00:00Z", "visitor_id": "v", "url": "http://h/<img src=x>"}'
VALUES = (VALID, b'{"event_id": "\xff\x07"', b'{"event_id": 5}')


def archive_records(settings: Settings) -> None:
    """Archive the records. A view skips the last record."""
    page_view = load_events()[TOPIC]
    with connect(settings, autocommit=True) as connection, open_catalog(settings) as catalog:
        an_event_type(connection, page_view, TOPIC_ID)
        an_exclusion(connection, "page_audience", 2, topic=TOPIC, error="DivideByZero: by <zero>")
        ensure_table(catalog, page_view, TOPIC_ID, {0: 0})
        for offset, value in enumerate(VALUES):
            batch = kafka_records(0, range(offset, offset + 1), value)
            files = written(settings, catalog.load_table(identifier(TOPIC)).metadata, batch)
            data = tuple(each.data_file for each in files)
            commit(catalog, Append(TOPIC, TOPIC_ID, {0: offset}, {0: offset + 1}, {0: 1}, data))
