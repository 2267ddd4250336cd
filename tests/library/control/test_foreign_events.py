"""An environment that reads the events of another one judges each record by what the other one has registered."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pydantic import Field, create_model

from runtime import kafka, namespace
from tests.deadline import deadline
from tests.deleted_records import delete_records
from tests.library.two_environments import outside
from tests.library.whole_environments import destroyed_afterwards, reading, set_up
from truelog.control import event_files, event_registry, foreign_events
from truelog.control.schema_registry import keeping
from truelog.kafka.producer import open_producer
from truelog.log import topics
from truelog.schema.event import Event, EventType, Topic
from truelog.schema.frames.kept_schema import JSON, KeptSchema
from truelog.storage.database import connect
from truelog.support import faults
from truelog.support.errors import BadInput, MeaningChanged, NotSetUp, ReadsOnly, RegistryBehind, ServiceDown
from truelog.support.faults import FaultInjectedError
from truelog.support.settings import Settings

NAME = "remark"
SCHEMA = KeptSchema(1, JSON, "{}")

Arm = Callable[[str], None]


def remark(longest: int) -> EventType:
    fields: dict[str, Any] = {"text": (str, Field(max_length=longest))}
    return EventType(NAME, create_model("Remark", __base__=Event, **fields), Topic(None, (), 2, "1 day"))


@pytest.fixture(scope="module")
def red(platform: Settings) -> Iterator[Settings]:
    with destroyed_afterwards(set_up(platform, "red")) as made:
        topics.sync_topics(made, {NAME: remark(20)})
        send(made, 5)
        delete_records(outside(made), TopicPartition(f"red.{NAME}", 0, 2))
        event_registry.register(made, remark(20))
        yield made


@pytest.fixture(scope="module")
def blue(platform: Settings, red: Settings) -> Iterator[Settings]:
    with destroyed_afterwards(reading(platform, "blue", red)) as made:
        yield made


def send(settings: Settings, count: int) -> None:
    producer = open_producer({**settings.kafka(), "acks": "all"})
    for _ in range(count):
        producer.produce(NAME, b'{"text": "good"}', partition=0)
    assert producer.flush(deadline(15)) == 0


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arm:
    """Lets the next registration that reaches this fault crash there. An empty text lets none crash."""
    monkeypatch.setattr(foreign_events, "_REGISTERING_SECONDS", 0.2)
    monkeypatch.setenv("TRUELOG_FAULT_FIRED", str(tmp_path / "fired"))

    def armed(fault: str) -> None:
        (tmp_path / "fired").unlink(missing_ok=True)
        monkeypatch.setattr(faults, "_armed", f"{fault}:1:raise" if fault else "")
        monkeypatch.setattr(faults, "_reached", 0)

    return armed


def versions(settings: Settings) -> dict[str, tuple[Any, ...]]:
    types = event_registry.confirmed_types(settings)
    return {name: (t.version, t.reading, t.topic_id, [p.ends for p in t.past]) for name, t in types.items()}


def check(settings: Settings) -> None:
    """What a process does that has read to the end of the log, with the types that it has loaded before."""
    types, ends = event_registry.event_types(settings), topics.end_offsets(settings, [NAME])
    with connect(settings, autocommit=True) as connection:
        event_registry.require_known(settings, connection, types, ends)


def test_a_record_has_one_meaning_in_both(red: Settings, blue: Settings) -> None:
    assert versions(blue) == versions(red)
    assert event_registry.types_in_bucket(blue) == event_registry.types_in_bucket(red)
    check(blue)


def test_the_archive_begins_where_the_log_began(red: Settings, blue: Settings) -> None:
    """An environment does not miss what retention has dropped before."""
    for settings, began in ((red, 2), (blue, 2)):
        with connect(settings) as connection:
            assert event_registry.beginnings(connection).at(NAME, 0) == began


def test_a_version_of_the_other_counts_before_a_batch_is_written(red: Settings, blue: Settings) -> None:
    before = versions(blue)[NAME]
    send(red, 3)
    event_registry.register(red, remark(40))
    send(red, 1)
    with pytest.raises(MeaningChanged, match=r"remark has a version in the environment red .* start again"):
        check(blue)
    assert event_files.register_files(blue) == {}  # as the monitor does
    assert versions(blue)[NAME] == versions(red)[NAME]
    assert versions(blue)[NAME][0] == before[0] + 1
    check(blue)
    with connect(blue) as connection:  # which stays, although this cut has another one in the other registry
        assert event_registry.beginnings(connection).at(NAME, 0) == 2


@pytest.mark.parametrize("fault", ["registry.before_commit", "registry.before_copy"])
def test_no_batch_is_written_while_the_other_registers(red: Settings, blue: Settings, fault: str, arm: Arm) -> None:
    """The registration has read the ends, and crashes before others can see the version."""
    check(blue)
    arm(fault)
    with pytest.raises(FaultInjectedError):
        event_registry.register(red, remark(60 if fault == "registry.before_commit" else 70))
    arm("")
    send(red, 1)
    with pytest.raises(ServiceDown, match="the environment red is registering remark"):
        check(blue)
    event_registry.confirmed_types(red)  # whichever process of red starts next
    if fault == "registry.before_copy":
        with pytest.raises(MeaningChanged):
            check(blue)
    else:
        check(blue)
    assert versions(blue)[NAME] == versions(red)[NAME]
    check(blue)


def test_a_version_after_the_end_of_a_batch_leaves_the_batch_alone(red: Settings, blue: Settings) -> None:
    """The cut is at or past the end, so the records below it keep the version by which they were judged."""
    types, ends = event_registry.event_types(blue), topics.end_offsets(blue, [NAME])
    with connect(blue, autocommit=True) as connection:
        event_registry.require_known(blue, connection, types, ends)
    event_registry.register(red, remark(80))
    newest = event_registry.confirmed_types(blue)[NAME]
    assert newest.past[-1].ends == ends.offsets[NAME]


def test_nothing_is_registered_here(blue: Settings) -> None:
    with pytest.raises(ReadsOnly, match=r"the registration of an event type is a matter of the environment red"):
        event_registry.register(blue, remark(90))


def test_another_reading_begins_in_the_other_environment(red: Settings, blue: Settings) -> None:
    with pytest.raises(ReadsOnly, match="another reading of remark"):
        event_registry.begin_reading(blue, NAME)
    with pytest.raises(BadInput, match="no_such is not a registered"):
        event_registry.begin_reading(blue, "no_such")
    event_registry.begin_reading(red, NAME)
    assert event_registry.begin_reading(blue, NAME).reading == 1
    assert versions(blue)[NAME] == versions(red)[NAME]


def test_another_reading_of_the_other_is_taken_although_it_has_a_later_version(red: Settings, blue: Settings) -> None:
    send(red, 1)
    event_registry.register(red, remark(100))
    newest = event_registry.begin_reading(blue, NAME)
    assert (newest.reading, len(newest.past)) == (1, 1)
    assert versions(blue)[NAME] == versions(red)[NAME]


def test_no_batch_is_written_while_the_other_keeps_a_schema(red: Settings, blue: Settings, arm: Arm) -> None:
    """Such a version has a cut, too. A schema that is kept already makes none, and neither does the type's file."""
    check(blue)
    arm("registry.before_commit")
    with pytest.raises(FaultInjectedError):
        event_registry.keep_schemas(red, NAME, [SCHEMA])
    with pytest.raises(ServiceDown, match="the environment red is registering remark"):
        check(blue)
    arm("")
    event_registry.confirmed_types(red)
    event_registry.keep_schemas(red, NAME, [SCHEMA])
    assert versions(blue)[NAME] == versions(red)[NAME]
    arm("registry.before_copy")  # which is reached if anything was announced
    assert not event_registry.keep_schemas(red, NAME, [SCHEMA]).is_new
    assert not event_registry.register(red, remark(100)).is_new
    check(blue)


def test_schemas_are_kept_in_the_other_environment(blue: Settings) -> None:
    keeps: tuple[Callable[[], object], ...] = (
        lambda: event_registry.keep_schemas(blue, NAME, [SCHEMA]),
        lambda: keeping.keep(blue, NAME, [1]),
        lambda: keeping.publish(blue, event_registry.event_types(blue).values()),
    )
    for keep in keeps:
        with pytest.raises(ReadsOnly, match="the keeping of schemas is a matter of the environment red"):
            keep()


def test_a_file_does_not_differ_by_the_schemas_that_are_kept(red: Settings, blue: Settings) -> None:
    event_registry.keep_schemas(red, "page_view", [SCHEMA])
    assert event_files.register_files(blue) == {}
    assert event_registry.confirmed_types(blue)["page_view"].frames == (SCHEMA,)


def test_files_of_its_own_are_compared(blue: Settings, tmp_path: Path) -> None:
    for each in blue.events_folder.glob("*.py"):
        (tmp_path / each.name).write_text(each.read_text())
    tweet = (tmp_path / "tweet.py").read_text()
    (tmp_path / "chirp.py").write_text(tweet)
    (tmp_path / "block.py").write_text((tmp_path / "block.py").read_text().replace("max_length=512", "max_length=511"))
    found = event_files.register_files(blue.model_copy(update={"events_folder": tmp_path}))
    assert found.keys() == {"chirp", "block"}
    assert found["chirp"].startswith("chirp is not registered in the environment red")
    assert found["block"].startswith("block differs from what the environment red has registered")
    assert event_files.register_files(blue) == {}


def test_the_bucket_must_be_that_of_the_other_environment(platform: Settings, blue: Settings) -> None:
    """One does not exist, and one is of an environment with other topics."""
    absent = blue.model_copy(update={"reads_bucket": f"{platform.s3_bucket}-none"})
    with pytest.raises(NotSetUp, match=r"TRUELOG_READS_BUCKET\) cannot be read"):
        event_registry.confirmed_types(absent)
    with pytest.raises(NotSetUp, match=r"Kafka has no topic red\.\w+ with the id in the bucket"):
        event_registry.confirmed_types(blue.model_copy(update={"reads_bucket": platform.s3_bucket}))
    event_registry.confirmed_types(blue)


def test_the_namespace_must_be_that_of_the_other_environment(platform: Settings, red: Settings) -> None:
    """And the registry must not have had events of its own."""
    reads = {"namespace": "white", "reads_namespace": "grey", "reads_bucket": red.s3_bucket}
    lost = platform.model_copy(update=reads)
    kafka.prepare(lost)
    with pytest.raises(NotSetUp, match=r"no topic grey\.\w+ with the id .* name the same environment"):
        event_registry.confirmed_types(lost)
    with pytest.raises(RegistryBehind, match="other versions than TRUELOG_READS_BUCKET"):
        event_registry.confirmed_types(lost.model_copy(update={"reads_namespace": "red"}))
    namespace.destroy(lost)
