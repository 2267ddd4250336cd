"""Event types: one declaration provides validation, Arrow and Spark schemas, quality bounds and documentation.

Each file in `include/events/` declares one event type. The type, its topic and its archive table are named after the
file. On the wire, an event is one flat JSON object with the envelope (`event_id` and three timestamps) and the payload.
Undeclared fields remain in the raw bytes. A missing optional field is NULL.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationInfo, create_model, field_validator
from pydantic import Field as Declared

from truelog.schema import derived, required
from truelog.schema.derived import Derivation
from truelog.schema.field import INSTANT, INT64_MAX, INT64_MIN, Field, annotations, fields_of
from truelog.schema.frames.kept_schema import KeptSchema
from truelog.schema.quality import DEFAULTS, Quality
from truelog.schema.required import Required
from truelog.support import timestamps
from truelog.support.durations import seconds
from truelog.support.errors import BadDeclaration

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# An event is invalid if its time is later than its receipt by more than this limit. The limit decides which events
# count in both stream and rebuild, so it is part of each declaration rather than a setting.
FUTURE_LIMIT = timedelta(minutes=5)
NO_LIMIT = timedelta(days=3_650_000)  # of events that count whatever a clock says
LENIENT_CHANGES = 2  # of earlier versions of captured tables, which took an absent column for NULL
NESTED_CHANGES = 3  # of earlier versions, which took the name of a Java array for a text
CHANGES = 4  # the number of the decoder of captured tables

_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Event(BaseModel):
    """The envelope of every event. Each event type adds its payload.

    The collector validates events with this class, and the stream validates them with `truelog.schema.decode`. The
    two agree because this class converts nothing ("5" is not 5) and accepts only one format for times and integers.
    """

    model_config = ConfigDict(
        strict=True, extra="ignore", frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )

    event_id: str = Declared(min_length=1, max_length=128, description="The producer's id of this event.")
    occurred_at: datetime = Declared(description="When the event happened, by the device's clock.")
    sent_at: datetime | None = Declared(default=None, description="When the event was sent, by the device's clock.")
    received_at: datetime | None = Declared(default=None, description="When the collector received the event.")

    @field_validator("*", mode="before")
    @classmethod
    def _as_the_decoder_reads(cls, value: Any, info: ValidationInfo) -> Any:
        """Reject values that pydantic accepts but columns cannot store: other time formats and wider integers."""
        declared = cls.model_fields[str(info.field_name)].annotation
        if declared in (datetime, datetime | None) and value is not None:
            return _instant(value)
        if declared in (int, int | None) and type(value) is int and not INT64_MIN <= value <= INT64_MAX:
            raise ValueError("an integer of more than 64 bits")
        return value


def _instant(value: Any) -> datetime:
    if isinstance(value, datetime):
        return timestamps.to_utc(value)
    if isinstance(value, str):
        return timestamps.parse_timestamp(value)
    raise ValueError(timestamps.REFUSED)


@cache
def model_of(name: str, fields: str) -> type[Event]:
    """The model with these fields, given as JSON, made once in each process."""
    return create_model(name.title().replace("_", ""), __base__=Event, **annotations(json.loads(fields)))


_OWN_VALIDATORS = frozenset(Event.__pydantic_decorators__.field_validators)


@dataclass(frozen=True)
class Topic:
    """The declaration of an event type's topic.

    `key` is the field whose value determines the partition. `subject` lists the fields that identify the person whose
    data the event contains. `retention` is how long Kafka keeps a record; the archive keeps it forever. Only the
    platform writes to an `internal` topic. `source` is the table of a captured database ("public.customers") whose
    changes are the events; its topic is internal.
    """

    key: str | None
    subject: tuple[str, ...]
    partitions: int
    retention: str
    compacted: bool = False
    internal: bool = False
    source: str | None = None

    @property
    def retention_ms(self) -> int:
        return seconds(self.retention) * 1000


@dataclass(frozen=True)
class PastVersion:
    """An earlier version of an event type, which judges the records below `ends` for ever.

    `ends` contains the first offset of each partition that the next version judges; 0 for an absent partition.
    """

    event_type: "EventType"
    ends: Mapping[int, int] = field(hash=False)


@dataclass(frozen=True)
class EventType:
    """An event type: its name, its model, its topic, and the expected quality of its log days.

    A type from a file is a proposal: its version is 0. The registry (`truelog.control.event_registry`) gives it a
    version, and each record is judged by the version that was in force at the record's offset.
    """

    name: str
    model: type[Event]
    topic: Topic
    quality: Quality = DEFAULTS
    derived: tuple[Derivation, ...] = ()
    required: tuple[Required, ...] = ()
    future_limit: timedelta = FUTURE_LIMIT
    decoder: int = 1  # the number of the decoder in `truelog.schema.event_version`
    version: int = 0
    reading: int = 0  # the number of times that the topic's history was judged again
    topic_id: str = ""  # the topic whose offsets `past` contains
    past: tuple[PastVersion, ...] = ()  # oldest first
    frames: tuple[KeptSchema, ...] = ()  # of the schema registry; a file declares none

    def __post_init__(self) -> None:
        if not _TYPE_NAME.fullmatch(self.name):
            raise BadDeclaration(f"{self.name}: an event type is a table; use a-z, 0-9 and _ in its file name.")
        _require_no_validators(self.model)
        _require_valid_topic(self.topic, self.fields, self.name)
        derived.require_valid(self.name, self.derived, self.fields)
        required.require_valid(self.name, self.required, self.fields)
        self.quality.require_valid(self.name, self.nullable)

    def __getstate__(self) -> dict[str, Any]:
        """Travel to other processes with the fields as data: the class of a registered model exists only here."""
        declared = {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}
        return declared | {"model": json.dumps([each.as_data() for each in self.fields], sort_keys=True)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"model": model_of(state["name"], state["model"])})

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the envelope and the payload, without the computed `event_time`."""
        return fields_of(self.model)

    @cached_property
    def derived_names(self) -> tuple[str, ...]:
        """The names of the derived columns."""
        return tuple(name for each in self.derived for name in each.names)

    @property
    def nullable(self) -> tuple[str, ...]:
        """The columns that may be NULL in a valid event: optional fields and derived columns."""
        optional = (each.name for each in self.fields if not each.required)
        return (*optional, *self.derived_names)

    @cached_property
    def decoded_schema(self) -> pa.Schema:
        """The output of `truelog.schema.decode`: envelope, `event_time`, payload, and the reason if it is invalid."""
        columns = [pa.field(field.name, field.arrow_type) for field in self.fields]
        columns.insert(len(Event.model_fields), pa.field("event_time", INSTANT))
        return pa.schema([*columns, pa.field("invalid", pa.string())])

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns of an event: envelope, `event_time`, payload, derived. In an invalid record, all are NULL."""
        columns = [column for column in self.decoded_schema if column.name != "invalid"]
        return pa.schema([*columns, *(pa.field(name, pa.string()) for name in self.derived_names)])

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """The columns of this version, and after them the columns that only earlier versions declare."""
        columns = {column.name: column for each in self.past for column in each.event_type.arrow_schema}
        return pa.schema([*self.arrow_schema, *(columns[n] for n in columns if n not in self.arrow_schema.names)])

    @cached_property
    def spark_schema(self) -> "StructType":
        # A local import: Airflow's DAG files load event types and must not import Spark.
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self.arrow_schema)

    @property
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the event on the wire, for producers in other languages."""
        rules = [each.json_schema for each in self.required]
        return self.model.model_json_schema() | ({"allOf": rules} if rules else {})

    @property
    def markdown(self) -> str:
        """The documentation of the event type: its description, its topic and its fields."""
        description = (self.model.__doc__ or "").strip()
        key = f"by {self.topic.key}" if self.topic.key else "chosen at random"
        retention = "compacted" if self.topic.compacted else f"kept for {self.topic.retention}"
        topic = f"Partitions: {self.topic.partitions}, {key}. In Kafka {retention}; in the archive forever."
        lines = [f"## {self.name}", "", description, "", topic]
        lines += ["", "| field | type | required | bounds | description |", "| --- | --- | --- | --- | --- |"]
        lines += [_markdown_row(field, self.required) for field in self.fields]
        lines += [
            f"| {name} | str, from {each.source} | | | {each.descriptions.get(name, '')} |"
            for each in self.derived
            for name in each.names
        ]
        return "\n".join(lines) + "\n"


EventTypes = Mapping[str, EventType]


def registered_topics(types: EventTypes) -> dict[str, str]:
    """The id of the topic for which each event type is registered; types from files have none."""
    return {name: each.topic_id for name, each in types.items() if each.topic_id}


def _require_no_validators(model: type[Event]) -> None:
    decorators = model.__pydantic_decorators__
    validators = [*decorators.validators, *decorators.root_validators, *decorators.model_validators]
    validators += [name for name in decorators.field_validators if name not in _OWN_VALIDATORS]
    if validators:
        raise BadDeclaration(
            f"{model.__name__}.{validators[0]}: a Python validator cannot run in the stream; "
            "declare bounds with Field(ge=, le=, min_length=, max_length=)."
        )


def _require_valid_topic(topic: Topic, fields: Iterable[Field], name: str) -> None:
    types = {field.name: field.python_type for field in fields}
    if topic.key is not None and topic.key not in types:
        raise BadDeclaration(f"{name}: the key {topic.key!r} is not a field of the event.")
    if topic.key is not None and topic.source is None and types[topic.key] is not str:
        raise BadDeclaration(f"{name}: the key {topic.key!r} is not a text field of the event.")
    for subject in topic.subject:
        if subject not in types:
            raise BadDeclaration(f"{name}: the subject {subject!r} is not a field of the event.")
    if topic.partitions < 1:
        raise BadDeclaration(f"{name}: a topic needs at least one partition.")
    if topic.compacted and topic.key is None:
        raise BadDeclaration(f"{name}: a compacted topic keeps the last record of each key; declare a key.")
    if topic.retention_ms < 1:
        raise BadDeclaration(f"{name}: a retention of {topic.retention!r} keeps no records.")


def _markdown_row(field: Field, rules: Iterable[Required]) -> str:
    limits = {
        "≥": field.least,
        "≤": field.most,
        "length ≥": field.shortest,
        "length ≤": field.longest,
    }
    bounds = ", ".join(f"{word} {limit}" for word, limit in limits.items() if limit is not None)
    bounds = f"one of {', '.join(field.values)}" if field.values else bounds
    conditions = " or ".join(rule.condition for rule in rules if rule.field == field.name)
    needed = "yes" if field.required else f"if {conditions}" if conditions else ""
    return f"| {field.name} | {field.type_name} | {needed} | {bounds} | {field.description} |"
