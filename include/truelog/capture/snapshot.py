"""A new snapshot of a captured table, which is the way back after a lost replication slot.

1. Begin another epoch.
2. Stop the connector and drop its slot, also under the name of an earlier release.
3. Start the connector with the new epoch. Debezium finds no offsets for it, makes a slot and reads the whole table.

When the snapshot has ended, every row that it does not contain is closed.
"""

from collections.abc import Iterable

import psycopg

from truelog.capture import connector, epochs, source_table, worker
from truelog.schema.event import EventType
from truelog.storage.database import connect
from truelog.support.errors import CaptureRefused, ServiceDown
from truelog.support.files import write_private
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import Settings
from truelog.support.wait import until

_SECONDS = 30
_SLOT = "FROM pg_replication_slots WHERE slot_name = %s"


def take(settings: Settings, event_type: EventType) -> int:
    """Let Kafka Connect read the whole table again, and return the number of the new epoch.

    Raises:
        CaptureRefused: the table cannot be captured as it is.
    """
    with psycopg.connect(**settings.source(), autocommit=True, connect_timeout=10) as source:
        if problem := source_table.problem(source, settings.names, event_type):
            raise CaptureRefused(problem)
        with connect(settings, autocommit=True) as connection:
            epoch = epochs.begin_next(connection, event_type.name)  # 1
            epochs.record_refused(connection, {event_type.name: None})
        chosen = connector.configuration(settings, event_type, epoch)
        write_private(connector.file(settings, event_type.name), connector.properties(chosen))
        worker.ask(settings, "DELETE", f"/connectors/{chosen['name']}")  # 2
        for slot in slots(settings.names, event_type, source_table.captured_types(settings).values()):
            _drop_slot(source, slot)
        worker.apply(settings, chosen)  # 3
    return epoch


def slots(names: Names, event_type: EventType, captured: Iterable[EventType]) -> list[str]:
    """The table's slot, and that of an earlier release, which would keep the log for ever, unless it is another's."""
    current, former = source_table.publication(names, event_type), source_table.former_publication(names, event_type)
    others = {source_table.publication(names, each) for each in captured}
    return [current] if former in {current, *others} else [current, former]


def _drop_slot(source: psycopg.Connection, slot: str) -> None:
    def free() -> None:
        if source.execute(f"SELECT 1 {_SLOT} AND active", (slot,)).fetchone():
            raise ServiceDown("the connector still uses it")

    until(free, _SECONDS, f"the replication slot {slot}")
    source.execute(f"SELECT pg_drop_replication_slot(slot_name) {_SLOT}", (slot,))
