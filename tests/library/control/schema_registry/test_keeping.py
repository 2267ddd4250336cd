"""Kept schemas on real services: Kafka, both copies of the registry of event types, and the archive.

The records are those of Confluent's serializers. The schema registry itself is a stub, which is stopped after the
schemas are kept.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pydantic import Field, create_model

from tests.beds.archived import drop_archive
from tests.beds.schema_registry import PASSWORD, USER, StubRegistry, serving
from tests.deadline import deadline
from tests.library.registered import forget
from truelog.archive.analyst import open_dataset
from truelog.archive.commit import Append, commit
from truelog.archive.erasing.erase import ArchiveEraser
from truelog.archive.table import ensure_table, open_catalog
from truelog.archive.writer import FileWriter, WriterSettings, blueprint, load_archived_file
from truelog.control import event_files, event_registry
from truelog.control.schema_registry import keeping
from truelog.control.schema_registry.keeping import Published
from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.subject import Subject
from truelog.log import range_reader, topics
from truelog.log.positions import Positions
from truelog.schema.event import Event, EventType, Topic
from truelog.schema.event_version import judge
from truelog.schema.frames.kept_schema import AVRO, JSON, KeptSchema
from truelog.storage.database import connect
from truelog.support.errors import BadInput, MeaningChanged
from truelog.support.settings import KafkaUser, Settings

NAME, SUBJECT = "remark", "remark-value"
TIME = {"type": "long", "logicalType": "timestamp-micros"}
FIELDS = {"event_id": "string", "occurred_at": TIME, "author_id": "string", "stars": ["null", "int"]}
SCHEMA = {"type": "record", "name": "Remark", "fields": [{"name": n, "type": t} for n, t in FIELDS.items()]}
MORE = SCHEMA | {"fields": [*SCHEMA["fields"], {"name": "mood", "type": "string"}]}
MOMENT = datetime(2026, 11, 1, 9, 0, 0, 5, tzinfo=UTC)


def remark(most: int = 5, **fields: Any) -> EventType:
    stars: Any = (int | None, Field(default=None, le=most))
    model = create_model("Remark", __base__=Event, author_id=(str, ...), stars=stars, **fields)
    return EventType(NAME, model, Topic(None, ("author_id",), 1, "1 day"))


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with serving(StubRegistry()) as registry:
        yield registry


@pytest.fixture
def given(platform: Settings, registry: StubRegistry) -> Iterator[Settings]:
    """A platform with a schema registry, and with the event type, whose topic is empty."""
    topics.sync_topics(platform, {NAME: remark()})
    event_registry.register(platform, remark())
    password = Settings(schema_registry_password=PASSWORD).schema_registry_password
    address = {"schema_registry_url": f"{registry.url}/", "schema_registry_user": USER}
    yield platform.model_copy(update=address | {"schema_registry_password": password})
    client = topics.client(platform, KafkaUser.ADMIN)
    client.delete_topics([NAME])[NAME].result()
    forget(platform, NAME)


def event(number: int, author: str, **more: Any) -> dict[str, Any]:
    return {"event_id": str(number), "occurred_at": MOMENT, "author_id": author, "stars": number, **more}


def as_json(values: dict[str, Any]) -> dict[str, Any]:
    return values | {"occurred_at": MOMENT.isoformat()}


def send(settings: Settings, *values: bytes) -> None:
    producer = Producer({**settings.kafka(), "acks": "all"})
    for each in values:
        producer.produce(NAME, each)
    assert producer.flush(deadline(10)) == 0


def logged(settings: Settings, columns: pa.Schema = range_reader.RAW) -> list[pa.RecordBatch]:
    """The whole log, as the tasks of a stream and of the archive read it."""
    [part] = Positions({NAME: {0: 0}}).ranges_to(topics.end_offsets(settings, [NAME]))
    return list(range_reader.read(settings.kafka(KafkaUser.READER), [part], columns))


def judged(settings: Settings, event_type: EventType) -> pa.Table:
    return pa.Table.from_batches([judge(event_type, each) for each in logged(settings)])


def confirmed(settings: Settings) -> EventType:
    return event_registry.confirmed_types(settings)[NAME]


def archive(settings: Settings, catalog: Any) -> None:
    """Archive the log, with the code of the archive's tasks."""
    types, end = {NAME: confirmed(settings)}, topics.end_offsets(settings, [NAME])
    drop_archive(catalog, NAME)
    table = ensure_table(catalog, types[NAME], end.ids[NAME], {0: 0})
    tables = {NAME: blueprint(table.metadata)}
    writer = FileWriter(WriterSettings.of(settings), types, tables, {})
    files = writer(iter(logged(settings, range_reader.WHOLE)))
    data = tuple(load_archived_file(each["file"][0].as_py(), tables).data_file for each in files)
    ends = dict(end.offsets[NAME])
    commit(catalog, Append(NAME, end.ids[NAME], {0: 0}, ends, ends, data))


def archived(settings: Settings, catalog: Any, columns: Sequence[str]) -> list[dict[str, Any]]:
    found = open_dataset(catalog, confirmed(settings)).to_table(columns=["offset", *columns]).to_pylist()
    return sorted(found, key=lambda row: int(row["offset"]))


@pytest.fixture
def remarks(given: Settings, registry: StubRegistry) -> Settings:
    """Framed and plain records; the first was written before its schema was kept. The registry is gone."""
    early = registry.avro(NAME, SCHEMA, event(0, "ann"))
    send(given, early)
    keeping.keep(given, NAME, ())
    [published] = keeping.publish(given, [confirmed(given)])
    assert published.refused is None
    send(
        given,
        registry.avro(NAME, SCHEMA, event(1, "ann")),
        registry.latest_json(NAME, as_json(event(2, "ann"))),
        json.dumps(as_json(event(3, "ann"))).encode(),
        registry.avro(NAME, SCHEMA, event(4, "bob")),
        registry.avro(NAME, SCHEMA, event(6, "bob")),  # too many stars
        b"\0\0\0\3\xe7" + b"nobody has kept this",
        early[:-1],
        registry.latest_json(NAME, as_json(event(5, "bob"))),
    )
    registry.schemas.clear()
    return given.model_copy(update={"schema_registry_url": "http://127.0.0.1:1"})


def test_framed_records_are_events_in_the_stream_and_in_the_archive(remarks: Settings) -> None:
    event_type = confirmed(remarks)
    rows = judged(remarks, event_type)
    assert rows["stars"].to_pylist() == [None, 1, 2, 3, 4, None, None, None, 5]
    assert rows["event_time"].to_pylist()[1:5] == [MOMENT] * 4
    reasons = rows["invalid"].to_pylist()
    missing = "record: schema {} of the schema registry was not kept when the record was written"
    assert [reasons[at] for at in (0, 5, 6)] == [missing.format(1), "stars: 6 is above 5", missing.format(999)]
    assert rows.equals(judged(remarks, event_registry.types_in_bucket(remarks)[NAME]))
    with open_catalog(remarks) as catalog:
        archive(remarks, catalog)
        names = [*event_type.arrow_schema.names, "invalid"]
        found = archived(remarks, catalog, [*names, "value"])
    values = [value for each in logged(remarks) for value in each["value"].to_pylist()]
    assert [row["value"] for row in found] == values  # with their frames
    assert [{name: row[name] for name in names} for row in found] == rows.select(names).to_pylist()


def test_a_new_reading_judges_records_that_came_before_their_schema(remarks: Settings) -> None:
    event_registry.begin_reading(remarks, NAME)
    assert judged(remarks, confirmed(remarks))["stars"].to_pylist() == [0, 1, 2, 3, 4, None, None, None, 5]


def test_an_erasure_finds_framed_records(remarks: Settings) -> None:
    event_type, end = confirmed(remarks), topics.end_offsets(remarks, [NAME])
    subjects = frozenset({Subject.of(b"s", "author_id", "ann")})
    erasures = Erasures(b"s", (Erasure(UUID(int=1), subjects, {NAME: ("author_id",)}, end),))
    with open_catalog(remarks) as catalog:
        archive(remarks, catalog)
        assert ArchiveEraser(catalog, event_type, erasures).rewrite() == 6
        found = archived(remarks, catalog, ["erased", "value", "author_id"])
    # Nothing can read the seventh and the eighth record, so they may be about the person.
    assert [row["erased"] for row in found] == [True, True, True, True, False, False, True, True, False]
    assert all(row["value"] is None for row in found if row["erased"])
    assert {row["author_id"] for row in found} == {"bob", None}


def test_a_process_with_an_earlier_version_does_not_judge_records_of_a_schema(
    given: Settings, registry: StubRegistry
) -> None:
    before = confirmed(given)
    send(given, registry.avro(NAME, SCHEMA, event(1, "ann")))
    keeping.keep(given, NAME, ())
    send(given, registry.avro(NAME, SCHEMA, event(2, "ann")))
    with connect(given, autocommit=True) as connection, pytest.raises(MeaningChanged, match="version 2"):
        event_registry.require_known(given, connection, {NAME: before}, topics.end_offsets(given, [NAME]))


def test_a_changed_file_keeps_the_schemas(given: Settings, registry: StubRegistry) -> None:
    registry.avro(NAME, SCHEMA, event(1, "ann"))
    kept = keeping.keep(given, NAME, ())
    assert (kept.version, kept.is_new, [each.kind for each in kept.schemas]) == (2, True, [AVRO])
    assert not keeping.keep(given, NAME, (1,)).is_new
    with connect(given) as connection:
        history = event_registry.histories(connection)[NAME]
    assert not event_files._differs(remark(), history, history.topic_id)
    assert not event_registry.register(given, remark()).is_new
    wider = event_registry.register(given, remark(most=9)).event_type
    assert (wider.version, wider.frames) == (3, kept.schemas)
    assert keeping.keep(given, NAME, (1,)).version == 3


def test_later_schemas_are_added(given: Settings, registry: StubRegistry) -> None:
    registry.avro(NAME, SCHEMA, event(1, "ann"))
    keeping.keep(given, NAME, ())
    registry.avro(NAME, MORE, event(1, "ann", mood="calm"))
    assert [each.id for each in keeping.keep(given, NAME, ()).schemas] == [1, 2]
    assert {each.event_type.version: len(each.event_type.frames) for each in confirmed(given).past} == {1: 0, 2: 1}


def test_another_registry_with_the_same_numbers_is_noticed(given: Settings, registry: StubRegistry) -> None:
    registry.avro(NAME, SCHEMA, event(1, "ann"))
    keeping.keep(given, NAME, ())
    registry.schemas[0] = {"schema": json.dumps(MORE), "schemaType": "AVRO"}
    with pytest.raises(BadInput, match="schema 1 was kept with another text"):
        keeping.keep(given, NAME, (1,))
    assert confirmed(given).frames == (KeptSchema(1, AVRO, json.dumps(SCHEMA)),)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"schema": "message M {}", "schemaType": "PROTOBUF"}, "the kind PROTOBUF"),
        ({"schema": json.dumps(SCHEMA), "references": [{"name": "x"}]}, "refers to other schemas"),
        ({"schema": " " * 100_001, "schemaType": "JSON"}, "it has more than 100,000 characters"),
        ({"schema": '"string"'}, "schema 1 cannot be kept: an event is a record"),
    ],
)
def test_a_schema_that_cannot_be_read_is_not_kept(
    given: Settings, registry: StubRegistry, body: dict[str, Any], reason: str
) -> None:
    registry.add(SUBJECT, body)
    with pytest.raises(BadInput, match=reason):
        keeping.keep(given, NAME, ())
    assert confirmed(given).frames == ()


def test_what_cannot_be_kept_or_asked_for(given: Settings, registry: StubRegistry) -> None:
    with pytest.raises(BadInput, match="no subject remark-value"):
        keeping.keep(given, NAME, ())
    with pytest.raises(BadInput, match="404"):
        keeping.keep(given, NAME, (5,))
    registry.add(SUBJECT, {"schema": "{}", "schemaType": JSON})
    with pytest.raises(BadInput, match="nothing is not a registered event type"):
        keeping.keep(given, "nothing", (1,))
    with pytest.raises(BadInput, match="only the platform writes"):
        keeping.keep(given, "ticks", (1,))


def test_an_event_type_is_published_with_its_json_schema(given: Settings, registry: StubRegistry) -> None:
    event_type = confirmed(given)
    internal = replace(event_type, name="ticks", topic=replace(event_type.topic, internal=True))
    assert keeping.publish(given, [event_type, internal]) == [Published(NAME, SUBJECT, 1)]
    [published] = registry.schemas
    assert json.loads(published["schema"]) == event_type.json_schema
    assert [(each.id, each.kind) for each in confirmed(given).frames] == [(1, JSON)]
    assert keeping.publish(given, [event_type]) == [Published(NAME, SUBJECT, 1)]
    registry.frozen.add(SUBJECT)
    [refused] = keeping.publish(given, [event_type])
    assert refused.id is None
    assert "incompatible" in str(refused.refused)
