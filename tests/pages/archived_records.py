"""Three archived records. Only the first is valid."""

from psycopg.types.json import Jsonb

from tests.library.archive_files import TOPIC, TOPIC_ID, kafka_records, written
from truelog.archive.archive_commit import Append, commit
from truelog.archive.archive_table import ensure_table, identifier, open_catalog
from truelog.schema.event import load_events
from truelog.schema.event_version import declaration_of, settings_of
from truelog.storage.database import connect
from truelog.support.settings import Settings

VALID = b'{"event_id": "e", "occurred_at": "2026-03-01T00:00:00Z", "visitor_id": "v", "url": "http://h/<img src=x>"}'
VALUES = (VALID, b'{"event_id": "\xff\x07"', b'{"event_id": 5}')
REGISTERED = """
INSERT INTO truelog.event_type (event, settings) VALUES (%(event)s, %(settings)s);
INSERT INTO truelog.event_version (event, version, declaration) VALUES (%(event)s, 1, %(declaration)s);
INSERT INTO truelog.event_cut (event, topic_id, reading, version, first_offsets) VALUES (%(event)s, %(id)s, 0, 1, '{}');
"""
SKIPPED = """
INSERT INTO truelog.exclusion (view, version, topic, partition, "offset", error)
VALUES ('page_audience', 1, 'page_view', 0, 2, 'DivideByZero: by <zero>')
"""


def archive_records(settings: Settings) -> None:
    """Archive the records. A view skips the last record."""
    page_view = load_events()[TOPIC]
    row = {"event": TOPIC, "id": TOPIC_ID, "settings": Jsonb(settings_of(page_view))}
    with connect(settings, autocommit=True) as connection, open_catalog(settings) as catalog:
        for statement in REGISTERED.strip().splitlines():
            connection.execute(statement.encode(), row | {"declaration": Jsonb(declaration_of(page_view))})
        connection.execute(SKIPPED)
        ensure_table(catalog, page_view, TOPIC_ID, {0: 0})
        for offset, value in enumerate(VALUES):
            batch = kafka_records(0, range(offset, offset + 1), value)
            files = written(settings, catalog.load_table(identifier(TOPIC)).metadata, batch)
            data = tuple(each.data_file for each in files)
            commit(catalog, Append(TOPIC, TOPIC_ID, {0: offset}, {0: offset + 1}, {0: 1}, data))
