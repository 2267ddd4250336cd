"""Suspended topics and broken event files are shown in the status and found by their alert source."""

from collections.abc import Iterator

import pytest

from tests.command import answer
from tests.library.alert_tables import emptied
from truelog.alerts.rules import Observation
from truelog.alerts.sources import declarations as alert_declarations
from truelog.control import event_files, topic_status
from truelog.control.application import ARCHIVE, STREAM
from truelog.storage.database import Connection
from truelog.support.settings import Settings


@pytest.fixture
def database(postgresql: Settings) -> Iterator[Connection]:
    with emptied(postgresql, "topic_status", "event_file") as connection:
        yield connection


def keys(observation: Observation) -> set[str]:
    return {finding.key for finding in observation.findings}


def test_a_topic_that_two_applications_suspended_and_a_broken_file_are_two_incidents(
    postgresql: Settings, database: Connection
) -> None:
    for name in (ARCHIVE, STREAM):
        topic_status.record_suspended(database, name, {"search": f"{name} cannot\0 read it", "click": "gone"})
    event_files.record_broken(database, {"order": "line 3: no such type"})
    topic_status.record_suspended(database, STREAM, {"search": "stream cannot read it"})
    found = alert_declarations.observe(postgresql)
    assert keys(found) == {"topic_suspended/search", "topic_suspended/click", "event_file_broken/order"}
    causes = {finding.key: finding.cause for finding in found.findings}
    assert causes["topic_suspended/search"] == "archive: archive cannot\u2400 read it stream: stream cannot read it"
    assert causes["topic_suspended/click"] == "archive: gone"

    [shown, *_] = answer("status", exit_code=1)["suspended_topics"]
    assert (shown["topic"], shown["application"], shown["reason"]) == ("click", ARCHIVE, "gone")
    assert [each["event"] for each in answer("status", exit_code=1)["broken_event_files"]] == ["order"]

    for name in (ARCHIVE, STREAM):
        topic_status.record_suspended(database, name, {})
    event_files.record_broken(database, {})
    assert keys(alert_declarations.observe(postgresql)) == set()
