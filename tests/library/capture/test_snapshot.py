"""A table whose offsets are lost begins another epoch, and no other does."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from runtime import connect
from tests.builders.changes import a_restored_epoch, change
from tests.deadline import deadline
from tests.library.capture.connect_offsets import WHOLE
from tests.servers import drop_database
from truelog.capture import connector, epochs, snapshot
from truelog.schema.loading.events import load_events
from truelog.storage import database
from truelog.support.files import private_folder
from truelog.support.settings import Settings

CUSTOMERS = load_events()["customers"]
SLOT = "truelog_customers"


def test_the_connectors_whose_prefix_has_no_offsets_behind_a_snapshot_are_lost(tmp_path: Path) -> None:
    settings = Settings.model_construct(home=tmp_path)
    private_folder(connector.connectors(settings))
    for name, epoch in (("customers", 1), ("kinds", 1), ("orders", 1), ("orders_again", 2), ("later", 1)):
        file = connector.file(settings, name)
        file.write_text(connector.properties({"name": name, "topic.prefix": f"{name.partition('_')[0]}-{epoch}"}))
    assert len(snapshot.lost_offsets(settings)) == 5
    connector.offsets_file(settings).write_bytes(WHOLE)
    assert [each.stem for each in snapshot.lost_offsets(settings)] == ["kinds", "later", "orders"]


@pytest.fixture(scope="module")
def captured(platform: Settings) -> Iterator[Settings]:
    """The embedded source, with the files of a Connect that has not started."""
    settings = platform.model_copy(update={"source_database": f"{platform.database_name}_shop", "capture": True})
    connect.configure(settings)
    yield settings
    drop_database(settings, settings.source_database)


def begun(settings: Settings) -> tuple[str, int]:
    """The prefix and the epoch of the table, as Connect would start now."""
    snapshot.begin_lost(settings)
    with database.connect(settings, autocommit=True) as connection:
        epoch = database.read_value(connection, "SELECT epoch FROM truelog.capture WHERE event_type = 'customers'")
    return connector.prefix(connector.file(settings, "customers")), int(epoch)


def captures(settings: Settings, *, epoch: int) -> None:
    """Send a change of the table, as Connect does in this epoch, and then a tombstone."""
    producer = Producer({**settings.kafka(), "acks": "all"})
    for value in (change("deleted", {"id": 7}, lsn=5, epoch=epoch), None):
        producer.produce("customers", value, b"7")
    assert producer.flush(deadline(10)) == 0


def restore(settings: Settings) -> None:
    with database.connect(settings, autocommit=True) as connection:
        a_restored_epoch(connection, "customers", 1)


def test_a_table_without_offsets_begins_an_epoch_behind_those_of_the_log(
    captured: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the database was restored, and has an earlier epoch. The slot that has kept changes is dropped."""
    monkeypatch.setattr(epochs, "_PORTION", 1)  # the last record is a tombstone
    assert begun(captured) == ("customers-1", 1)  # nothing was captured yet
    captures(captured, epoch=1)
    with psycopg.connect(**captured.source(), autocommit=True) as source:
        source.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        assert begun(captured) == ("customers-2", 2)
        assert not source.execute("SELECT FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)).fetchall()
    assert begun(captured) == ("customers-2", 2)  # killed before the first record
    captures(captured, epoch=4)
    restore(captured)
    assert begun(captured) == ("customers-5", 5)


def test_a_start_after_a_restore_goes_on_in_the_epoch_of_the_log(captured: Settings) -> None:
    captures(captured, epoch=6)
    restore(captured)
    connect.configure(captured)
    assert connector.prefix(connector.file(captured, "customers")) == "customers-6"


def test_a_table_with_offsets_stays_in_its_epoch_whatever_else_is_down(captured: Settings) -> None:
    chosen = connector.configuration(captured, CUSTOMERS, 1)
    connector.file(captured, "customers").write_text(connector.properties(chosen))
    connector.offsets_file(captured).write_bytes(WHOLE)
    snapshot.begin_lost(captured.model_copy(update={"database_port": 1, "source_port": 1, "kafka_bootstrap": "x:1"}))
    assert connector.prefix(connector.file(captured, "customers")) == "customers-1"


def test_a_table_without_offsets_and_without_an_event_file_is_not_captured(captured: Settings, tmp_path: Path) -> None:
    connector.offsets_file(captured).unlink()
    snapshot.begin_lost(captured.model_copy(update={"events_folder": tmp_path}))
    assert list(connector.connectors(captured).iterdir()) == []
