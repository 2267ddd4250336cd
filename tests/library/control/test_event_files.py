"""Event files: a file that cannot be used is named with the reason and does not hold up the others."""

import runpy
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import NewTopic

from runtime import kafka
from tests.builders.views import a_view, merged_to
from tests.library import stray_files
from tests.library.commands.made_fold import make_fold
from truelog.control import event_files, event_registry
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema import declaration_files
from truelog.schema.event import EventTypes
from truelog.storage.database import connect
from truelog.support.settings import PROJECT, KafkaUser, Settings

CREATED = ("added", "changed", "shrunk", "twisted")
FILE = '''"""A remark."""

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key=None, subject=(), partitions={partitions}, retention="1 day")


class Remark(Event):
    """A remark."""

    text: {type} = Field()
'''


@pytest.fixture
def folder(platform: Settings, tmp_path: Path) -> Settings:
    """A platform with an empty folder for event files, and a topic with its producers' timestamps."""
    broker = topics.client(platform, KafkaUser.ADMIN)
    broker.create_topics([NewTopic("stamped", 1, config={"message.timestamp.type": "CreateTime"})])["stamped"].result()
    return platform.model_copy(update={"events_folder": tmp_path})


def write(settings: Settings, name: str, partitions: int = 2, type_name: str = "str") -> None:
    (settings.events_folder / f"{name}.py").write_text(FILE.format(partitions=partitions, type=type_name))


def test_only_files_that_can_be_used_are_registered(folder: Settings, caplog: pytest.LogCaptureFixture) -> None:
    for name in (*CREATED, "stamped"):
        write(folder, name)
    kafka.prepare(folder)
    prepared = {record.getMessage() for record in caplog.records if record.levelname == "ERROR"}
    assert [each.partition(" its")[0] for each in prepared] == [
        "stamped: stamped has message.timestamp.type=CreateTime:"
    ]
    assert topics.existing_topics(topics.client(folder)) >= {*CREATED}
    (folder.events_folder / "added.py").unlink()
    assert event_files.register_files(folder).keys() == {"stamped"}

    write(folder, "added")
    write(folder, "changed", partitions=3)
    write(folder, "shrunk", partitions=1)
    write(folder, "twisted", partitions=5, type_name="int")
    stray_files.leave(folder.events_folder)
    reasons = event_files.register_files(folder)
    stray = {*stray_files.REFUSED, *declaration_files.misnamed(folder.events_folder)}
    assert reasons.keys() == {"shrunk", "stamped", "twisted"} | stray
    assert "shrunk has 2 partitions" in reasons["shrunk"]
    assert "twisted.text: version 1 declared it as" in reasons["twisted"]
    with connect(folder) as connection:
        assert {each.event: each.reason for each in event_files.broken_files(connection)} == reasons
        settings = {name: each.settings for name, each in event_registry.histories(connection).items()}
    partitions = {name: each["topic"]["partitions"] for name, each in settings.items() if name in CREATED}
    assert partitions == {"added": 2, "changed": 3, "shrunk": 2, "twisted": 2}
    offsets = topics.end_offsets(folder, CREATED).offsets
    assert {name: len(each) for name, each in offsets.items()} == partitions


def test_a_topic_does_not_grow_under_a_view_that_needs_its_order(platform: Settings, tmp_path: Path) -> None:
    """The registration, which runs every few seconds, and the start of the platform leave the topic as it is."""
    folder = platform.model_copy(update={"events_folder": tmp_path})
    names = ("ordered", "counted", "folded")
    for name in names:
        write(folder, name)
    event_files.register_files(folder)
    ids = topics.topic_ids(folder, names)
    with connect(folder) as connection:
        for topic, needs_order in (("ordered", None), ("counted", False)):
            view = f"{topic}_{uuid.uuid4().hex[:8]}"
            a_view(connection, view, needs_order=needs_order)
            merged_to(connection, view, Positions({topic: {0: 1, 1: 1}}, ids))
    with connect(folder, autocommit=True) as connection:
        make_fold(connection, "folded", "code", ids["folded"], {0: 1, 1: 1})
    for name in names:
        write(folder, name, partitions=3)
    kafka.prepare(folder)
    refused = event_files.register_files(folder)
    assert "ordered has 2 partitions. With 3, the events of a key would be in two" in refused.pop("ordered")
    assert "common order, on which the fold of commands depends" in refused.pop("folded")
    assert refused == {}
    offsets = topics.end_offsets(folder, names).offsets
    assert {name: len(each) for name, each in offsets.items()} == {"ordered": 2, "counted": 3, "folded": 2}


def test_a_broken_file_does_not_hold_up_a_release(
    platform: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = platform.model_copy(update={"events_folder": tmp_path})
    main = runpy.run_path(str(PROJECT / "spark_apps" / "release.py"))["main"]
    known: list[str] = []

    def codes(spark: object, _: Settings, types: EventTypes, names: object) -> dict[str, str]:
        known.extend(types)
        return {}

    session = SimpleNamespace(stop=lambda: None)
    replaced = {"Settings": lambda: settings, "session": lambda *_: session, "application_codes": codes}
    for name, function in replaced.items():
        monkeypatch.setitem(main.__globals__, name, function)
    write(settings, "released")
    event_files.register_files(settings)
    (tmp_path / "broken.py").write_text("(")
    assert "broken.py cannot be loaded" in main()
    assert "released" in known
