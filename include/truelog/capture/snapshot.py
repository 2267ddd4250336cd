"""A new snapshot of a captured table, which is the way back after a lost replication slot, or lost offsets.

1. Begin another epoch.
2. Stop the connector and drop its slot, also under the name of an earlier release.
3. Start the connector with the new epoch. Debezium finds no offsets for it, makes a slot and reads the whole table.

When the snapshot has ended, every row that it does not contain is closed.

Debezium without offsets begins with a snapshot by itself, and skips what the slot has kept for it. In an epoch that the
log has already, the rows of this snapshot would count as older than the changes in the log. So before Connect starts,
the same steps are taken for each table without offsets, for example after the machine was replaced.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

import psycopg

from truelog.capture import connector, epochs, offsets, source_table, worker
from truelog.schema.event import EventType
from truelog.storage.database import connect
from truelog.support.errors import CaptureRefused, ServiceDown
from truelog.support.files import write_private
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import Settings
from truelog.support.wait import until

log = logging.getLogger("truelog.capture")

_SECONDS = 30
_SLOT = "FROM pg_replication_slots WHERE slot_name = %s"


def take(settings: Settings, event_type: EventType) -> int:
    """Let Kafka Connect read the whole table again, and return the number of the new epoch.

    Raises:
        CaptureRefused: the table cannot be captured as it is.
    """
    with _source(settings) as source:
        if problem := source_table.problem(source, settings.names, event_type):
            raise CaptureRefused(problem)
        with connect(settings, autocommit=True) as connection:
            newest = epochs.newest(settings, event_type.name)
            epoch = epochs.begin_next(connection, event_type.name, newest)  # 1
            epochs.record_refused(connection, {event_type.name: None})
        chosen = _written(settings, event_type, epoch)
        worker.ask(settings, "DELETE", f"/connectors/{chosen['name']}")  # 2
        _drop_slots(settings, source, event_type)
        worker.apply(settings, chosen)  # 3
    return epoch


def begin_lost(settings: Settings) -> None:
    """Before Kafka Connect starts: let each table whose offsets are lost begin with a snapshot in a new epoch.

    A table that has no record of its epoch yet stays in it.
    """
    lost = lost_offsets(settings)
    if not lost:
        return
    types = {settings.names.in_kafka(name): each for name, each in source_table.captured_types(settings).items()}
    with _source(settings) as source, connect(settings, autocommit=True) as connection:
        for file in lost:
            event_type = types.get(file.stem)
            if event_type is None:
                log.error("%s is not captured: its offsets are lost, and its event file cannot be used", file.stem)
                file.unlink()
                continue
            epoch = epochs.begin(connection, event_type.name, epochs.newest(settings, event_type.name) + 1)
            _written(settings, event_type, epoch)
            _drop_slots(settings, source, event_type)
            log.warning("%s: Kafka Connect has no offsets, so epoch %s begins with a snapshot", file.stem, epoch)


def lost_offsets(settings: Settings) -> list[Path]:
    """The files of the connectors for whose prefix Kafka Connect has no offsets behind a snapshot."""
    known = offsets.with_snapshot(connector.offsets_file(settings))
    files = sorted(connector.connectors(settings).glob("*.properties"))
    return [each for each in files if connector.prefix(each) not in known]


def _source(settings: Settings) -> psycopg.Connection:
    """A session in the captured database."""
    return psycopg.connect(**settings.source(), autocommit=True, connect_timeout=10)


def _written(settings: Settings, event_type: EventType, epoch: int) -> dict[str, str]:
    """The configuration of the connector in an epoch, which its file has now."""
    chosen = connector.configuration(settings, event_type, epoch)
    write_private(connector.file(settings, event_type.name), connector.properties(chosen))
    return chosen


def _drop_slots(settings: Settings, source: psycopg.Connection, event_type: EventType) -> None:
    for slot in slots(settings.names, event_type, source_table.captured_types(settings).values()):
        _drop_slot(source, slot)


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
