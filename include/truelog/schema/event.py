"""Event types: one declaration, from which validation, Arrow and Spark schemas, quality and documentation come.

A file in `include/events/` is an event type; its name is the type's, the topic's and the archive table's. On
the wire an event is one flat JSON object: the envelope (`event_id` and the three times) beside the payload.
Fields that are not declared stay in the raw bytes; declared ones that may be missing are NULL.
"""

import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic import Field as Declared

from truelog.schema.field import INSTANT, INT64_MAX, INT64_MIN, Field, fields_of
from truelog.schema.quality import DEFAULTS, Quality
from truelog.support import timestamps
from truelog.support.durations import seconds
from truelog.support.errors import BadDeclaration

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# An event whose time lies further after its receipt is none. It decides what counts, in stream and rebuild alike: so
# it is no setting, and part of every view's fingerprint.
FUTURE_LIMIT = timedelta(minutes=5)

EVENTS = Path(__file__).parents[2] / "events"

_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Event(BaseModel):
    """What every event carries; a type adds its payload.

    The collector validates with this class, the stream with `truelog.schema.decode`: they agree because nothing here
    converts ("5" is not 5) and because times and integers have one accepted shape.
    """

    model_config = ConfigDict(
        strict=True, extra="ignore", frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )

    event_id: str = Declared(min_length=1, max_length=128, description="The producer's own id of this event.")
    occurred_at: datetime = Declared(description="When it happened, by the device's clock.")
    sent_at: datetime | None = Declared(default=None, description="When it was sent, by the device's clock.")
    received_at: datetime | None = Declared(default=None, description="When it came in, by the collector's clock.")

    @field_validator("*", mode="before")
    @classmethod
    def _as_the_decoder_reads(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse what pydantic takes and columns cannot: other shapes of time, wider integers."""
        declared = cls.model_fields[str(info.field_name)].annotation
        if declared in (datetime, datetime | None) and value is not None:
            return _instant(value)
        if declared in (int, int | None) and type(value) is int and not INT64_MIN <= value <= INT64_MAX:
            raise ValueError("an integer beyond 64 bits")
        return value


def _instant(value: Any) -> datetime:
    if isinstance(value, datetime):
        return timestamps.to_utc(value)
    if isinstance(value, str):
        return timestamps.parse_timestamp(value)
    raise ValueError(timestamps.REFUSED)


_OWN_VALIDATORS = frozenset(Event.__pydantic_decorators__.field_validators)


@dataclass(frozen=True)
class Topic:
    """How the log keeps an event type.

    `key` is the field whose value chooses the partition; `subject` the fields that say whose data it is;
    `retention` how long Kafka holds a record (the archive holds it for ever). Only the platform writes to an
    `internal` topic.
    """

    key: str | None
    subject: tuple[str, ...]
    partitions: int
    retention: str
    compacted: bool = False
    internal: bool = False

    @property
    def retention_ms(self) -> int:
        return seconds(self.retention) * 1000


@dataclass(frozen=True)
class EventType:
    """An event type: its name, the model that declares it, its topic, and what its log days should be like."""

    name: str
    model: type[Event]
    topic: Topic
    quality: Quality = DEFAULTS

    def __post_init__(self) -> None:
        if not _TYPE_NAME.fullmatch(self.name):
            raise BadDeclaration(f"{self.name}: an event type is a table; its file is named in a-z, 0-9, _.")
        _require_no_validators(self.model)
        _require_sound(self.topic, self.fields, self.name)
        self.quality.require_sound(self.name, self.fields)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Envelope and payload, without `event_time`, which is computed."""
        return fields_of(self.model)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Envelope, event_time, payload; a record that is no such event is NULL in all of them."""
        columns = [pa.field(field.name, field.arrow_type) for field in self.fields]
        columns.insert(len(Event.model_fields), pa.field("event_time", INSTANT))
        return pa.schema(columns)

    @cached_property
    def decoded_schema(self) -> pa.Schema:
        """What `truelog.schema.decode` makes of a record: the typed columns, or why it has none."""
        return self.arrow_schema.append(pa.field("invalid", pa.string()))

    @cached_property
    def spark_schema(self) -> "StructType":
        # Imported here: Airflow's DAG files load event types, and none of them may import Spark.
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self.arrow_schema)

    @property
    def json_schema(self) -> dict[str, Any]:
        """The event on the wire, for producers in other languages."""
        return self.model.model_json_schema()

    @property
    def markdown(self) -> str:
        """The event for people: what it is, how the log keeps it, its fields."""
        about = (self.model.__doc__ or "").strip()
        key = f"Partitions: {self.topic.partitions}, by {self.topic.key or 'chance'}."
        kept = "compacted" if self.topic.compacted else f"kept {self.topic.retention}"
        lines = [f"## {self.name}", "", about, "", f"{key} In Kafka {kept}; in the archive for ever."]
        lines += ["", "| field | type | required | bounds | what it is |", "| --- | --- | --- | --- | --- |"]
        return "\n".join(lines + [_markdown_row(field) for field in self.fields]) + "\n"


def event_names(folder: Path = EVENTS) -> list[str]:
    """The event types by file name, without loading any: what is declared at this moment."""
    return sorted(path.stem for path in folder.glob("*.py") if not path.name.startswith("_"))


def load_events(folder: Path = EVENTS) -> dict[str, EventType]:
    """Every event type of the folder by its name; one broken file raises, so that none vanishes unseen."""
    return {name: load_event(folder / f"{name}.py") for name in event_names(folder)}


def load_event(path: Path) -> EventType:
    """The event type that a file declares."""
    module = _module(path)
    topic, quality = getattr(module, "TOPIC", None), getattr(module, "QUALITY", DEFAULTS)
    models = [each for each in vars(module).values() if _is_event(each, module)]
    if not isinstance(topic, Topic) or len(models) != 1:
        raise BadDeclaration(f"{path}: declare `TOPIC = Topic(…)` and exactly one class deriving from Event.")
    try:
        return EventType(path.stem, models[0], topic, quality)
    except BadDeclaration as bad:
        raise BadDeclaration(f"{path}: {bad}") from None


def _module(path: Path) -> ModuleType:
    """The file as a module, under the name it has when imported: other processes find its class by that."""
    name = f"{path.parent.name}.{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # noqa: S101 — a .py file always has one
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise BadDeclaration(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def _is_event(value: object, module: ModuleType) -> bool:
    """True for a class of events declared there, not merely imported."""
    return isinstance(value, type) and issubclass(value, Event) and value.__module__ == module.__name__


def _require_no_validators(model: type[Event]) -> None:
    own = model.__pydantic_decorators__
    more = [*own.validators, *own.root_validators, *own.model_validators]
    more += [name for name in own.field_validators if name not in _OWN_VALIDATORS]
    if more:
        raise BadDeclaration(
            f"{model.__name__}.{more[0]}: a validator in Python cannot run in the stream; "
            "declare bounds with Field(ge=, le=, min_length=, max_length=)."
        )


def _require_sound(topic: Topic, fields: Iterable[Field], name: str) -> None:
    types = {field.name: field.python_type for field in fields}
    if topic.key is not None and types.get(topic.key) is not str:
        raise BadDeclaration(f"{name}: the key {topic.key!r} is no text field of the event.")
    for subject in topic.subject:
        if subject not in types:
            raise BadDeclaration(f"{name}: the subject {subject!r} is no field of the event.")
    if topic.partitions < 1:
        raise BadDeclaration(f"{name}: a topic has at least one partition.")
    if topic.compacted and topic.key is None:
        raise BadDeclaration(f"{name}: a compacted topic keeps the last record of each key; declare one.")
    if topic.retention_ms < 1:
        raise BadDeclaration(f"{name}: retention {topic.retention!r} keeps nothing.")


def _markdown_row(field: Field) -> str:
    limits = {
        "≥": field.least,
        "≤": field.most,
        "length ≥": field.shortest,
        "length ≤": field.longest,
    }
    bounds = ", ".join(f"{word} {limit}" for word, limit in limits.items() if limit is not None)
    required = "yes" if field.required else ""
    return f"| {field.name} | {field.type_name} | {required} | {bounds} | {field.about} |"
