"""`truelog events list` and `show` mark an event type whose file is gone."""

from pathlib import Path

from tests.builders.event_types import an_event_type
from tests.command import answer, truelog
from truelog.schema.loading.events import load_events
from truelog.storage.database import Connection
from truelog.support.settings import Settings


def test_an_event_type_without_a_file_is_marked(postgresql: Settings, connection: Connection, tmp_path: Path) -> None:
    an_event_type(connection, load_events()["click"], "an-id")
    [listed] = [each for each in answer("events", "list")["events"] if each["event"] == "click"]
    assert listed["removed"] is False
    folder = str(tmp_path)
    [listed] = [
        each for each in answer("events", "list", TRUELOG_EVENTS_FOLDER=folder)["events"] if each["event"] == "click"
    ]
    assert listed["removed"] is True
    assert "removed: no file declares it" in truelog("events", "list", TRUELOG_EVENTS_FOLDER=folder).stdout
    assert "removed: no file declares it" in truelog("events", "show", "click", TRUELOG_EVENTS_FOLDER=folder).stdout
