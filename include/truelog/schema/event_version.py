"""Event versions: the declarations of an event type as data, and the version that judges each record.

A record is judged for ever by the version of its event type that was in force at its offset. A declaration contains
everything that decides what a record means: the fields with their types, bounds and allowed values, the required
fields, the derived columns, the future limit, the number of the decoder, and the kept schemas of a schema registry. A
version's cut is the first offset of each partition that the version judges. A reading is one list of versions and
cuts; judging a topic's history again begins another reading.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truelog.schema import derived, required
from truelog.schema.change import decode_changes
from truelog.schema.decode import decode
from truelog.schema.derived import Derivation
from truelog.schema.event import CHANGES, LENIENT_CHANGES, NESTED_CHANGES, EventType, PastVersion, Topic, model_of
from truelog.schema.frames import kept_schema
from truelog.schema.frames.kept_schema import KeptSchema
from truelog.schema.frames.unframe import unframe
from truelog.schema.quality import Quality
from truelog.support.errors import BadDeclaration

Declaration = Mapping[str, Any]
Columns = Collection[str] | None  # the columns that are needed; None if all are
FRAMES = "frames"  # the kept schemas in a declaration; absent if there are none
PLAIN = 1  # the decoder of records that may be framed
Decoder = Callable[[EventType, pa.Array, pa.Array, timedelta, Columns], pa.RecordBatch]

# A changed decoder gets a new number, and the old one stays, because it judges the records of earlier versions.
DECODERS: Mapping[int, Decoder] = {
    PLAIN: decode,
    LENIENT_CHANGES: decode_changes,
    NESTED_CHANGES: decode_changes,
    CHANGES: decode_changes,
}


def declaration_of(event_type: EventType) -> dict[str, Any]:
    """The declaration as data. Documentation, quality and topic settings are not part of it."""
    columns = [each.as_data() for each in event_type.derived]
    return {
        "decoder": event_type.decoder,
        "future_limit": event_type.future_limit.total_seconds(),
        "fields": [each.as_data() for each in event_type.fields],
        **({"derived": columns} if columns else {}),  # absent if the type derives no column
        **({"required": required.as_data(event_type.required)} if event_type.required else {}),
        **({FRAMES: kept_schema.as_data(event_type.frames)} if event_type.frames else {}),
    }


def from_declaration(name: str, declaration: Declaration, topic: Topic, quality: Quality) -> EventType:
    """The event type that the declaration describes.

    Raises:
        BadDeclaration: this release cannot judge records as the declaration says.
    """
    model = model_of(name, json.dumps(declaration["fields"], sort_keys=True))
    limit = timedelta(seconds=declaration["future_limit"])
    rules = tuple(required.from_data(declaration.get("required", ())))
    event_type = EventType(name, model, topic, quality, _derived(declaration), rules, limit, declaration["decoder"])
    event_type = replace(event_type, frames=kept_schema.from_data(declaration.get(FRAMES, ())))
    if declaration_of(event_type) != declaration or event_type.decoder not in DECODERS:
        raise BadDeclaration(f"{name}: a newer release of Truelog made this version of the event type: upgrade first.")
    return event_type


def require_compatible(new: EventType, earlier: Mapping[int, Declaration]) -> None:
    """Refuse a field whose type differs from the type in an earlier version, because both would share a column.

    Raises:
        BadDeclaration: the message names the field and both types.
    """
    for number, declaration in earlier.items():
        types = _column_types(declaration)
        for name, declared in _column_types(declaration_of(new)).items():
            if (before := types.get(name, declared)) != declared:
                raise BadDeclaration(
                    f"{new.name}.{name}: version {number} declared it as {before}, and the file now declares it "
                    f"as {declared}. Records of both types would share a column: use another field name."
                )


def with_kept(declaration: Declaration, earlier: Declaration) -> Declaration:
    """The declaration with the schemas that an earlier version keeps: a kept schema stays kept."""
    kept = kept_schema.united(*(kept_schema.from_data(each.get(FRAMES, ())) for each in (declaration, earlier)))
    return {**declaration, FRAMES: kept_schema.as_data(kept)} if kept else declaration


def _column_types(declaration: Declaration) -> dict[str, str]:
    fields = {each["name"]: each["type"] for each in declaration["fields"]}
    return fields | {name: "str" for each in _derived(declaration) for name in each.names}


def _derived(declaration: Declaration) -> tuple[Derivation, ...]:
    return tuple(map(derived.from_data, declaration.get("derived", ())))


@dataclass(frozen=True)
class Cut:
    """The first offset of each partition that a version judges, in one reading of one topic; 0 if absent.

    `began` contains the first offset of each partition when the topic was registered; 0 if absent.
    """

    topic_id: str
    reading: int
    version: int
    first_offsets: Mapping[int, int]
    began: Mapping[int, int] = field(default_factory=dict, compare=False)  # absent in copies from earlier releases


@dataclass(frozen=True)
class EventHistory:
    """Everything that the registry knows about an event type. The cuts are in the order of their registration.

    `registering` is true in a copy in the bucket while a version may get its cut.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the topic, and the expected quality
    declarations: Mapping[int, Declaration] = field(default_factory=dict)
    cuts: tuple[Cut, ...] = ()
    registering: bool = field(default=False, compare=False)

    @property
    def version(self) -> int:
        """The newest version; 0 if there is none."""
        return max(self.declarations, default=0)

    @property
    def topic_id(self) -> str:
        return self.cuts[-1].topic_id if self.cuts else ""

    @property
    def began(self) -> Mapping[int, int]:
        return self.cuts[-1].began if self.cuts else {}

    @property
    def reading(self) -> int:
        return max((each.reading for each in self.cuts if each.topic_id == self.topic_id), default=0)

    def kept(self) -> tuple[KeptSchema, ...]:
        """The schemas of the schema registry that the newest version keeps, which are all that were ever kept."""
        return kept_schema.from_data(self.declarations.get(self.version, {}).get(FRAMES, ()))

    def continues(self, other: "EventHistory") -> bool:
        """Whether this history has all versions and cuts of the other, and perhaps later ones."""
        kept = {number: each for number, each in self.declarations.items() if number in other.declarations}
        return kept == other.declarations and self.cuts[: len(other.cuts)] == other.cuts

    def in_force(self) -> list[Cut]:
        """The cuts of the topic's present reading, oldest first."""
        present = (self.topic_id, self.reading)
        return sorted((c for c in self.cuts if (c.topic_id, c.reading) == present), key=lambda c: c.version)

    def event_type(self) -> EventType:
        """The newest version, with the earlier versions that judge the records below its cut."""
        topic, quality = _settings_from_data(self.settings)
        cuts = self.in_force()
        types = [
            replace(from_declaration(self.name, self.declarations[cut.version], topic, quality), version=cut.version)
            for cut in cuts
        ]
        past = tuple(PastVersion(old, dict(new.first_offsets)) for old, new in zip(types, cuts[1:], strict=False))
        return replace(types[-1], reading=self.reading, topic_id=self.topic_id, past=past)

    def as_dict(self) -> dict[str, Any]:
        """The history as JSON data, which `from_dict` reads."""
        cuts = [
            vars(each) | {name: offsets_as_data(getattr(each, name)) for name in ("first_offsets", "began")}
            for each in self.cuts
        ]
        declarations = {str(number): each for number, each in self.declarations.items()}
        whole = {"name": self.name, "settings": self.settings, "declarations": declarations, "cuts": cuts}
        return whole | ({"registering": True} if self.registering else {})

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "EventHistory":
        cuts = tuple(
            Cut(
                each["topic_id"],
                each["reading"],
                each["version"],
                offsets_from_data(each["first_offsets"]),
                offsets_from_data(each.get("began", {})),
            )
            for each in values["cuts"]
        )
        declarations = {int(number): each for number, each in values["declarations"].items()}
        return EventHistory(
            values["name"], values["settings"], declarations, cuts, bool(values.get("registering", False))
        )


def settings_of(event_type: EventType) -> dict[str, Any]:
    """The topic settings and the expected quality as JSON data, which decide nothing about a record's meaning."""
    found: dict[str, Any] = json.loads(
        json.dumps({"topic": asdict(event_type.topic), "quality": asdict(event_type.quality)})
    )
    if event_type.topic.source is None:
        del found["topic"]["source"]  # absent if the topic captures no table
    return found


def _settings_from_data(values: Mapping[str, Any]) -> tuple[Topic, Quality]:
    topic, quality = dict(values["topic"]), dict(values["quality"])
    topic["subject"] = tuple(topic["subject"])
    quality |= {name: tuple(quality[name]) for name in ("volume", "keys")}
    return Topic(**topic), Quality(**quality)


def offsets_as_data(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def offsets_from_data(values: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in values.items()}


def readings_of(types: Iterable[EventType]) -> dict[str, int]:
    """The reading by which these types judge each topic, without the readings that are 0."""
    return {each.name: each.reading for each in types if each.reading}


@dataclass(frozen=True)
class UsedVersions:
    """The reading of a topic, and its versions that judge at least one offset in a range."""

    reading: int
    versions: tuple[int, ...]


def versions_below(event_type: EventType, ends: Mapping[int, int]) -> UsedVersions:
    """The versions that judge the offsets below `ends`."""
    starts: Mapping[int, int] = {}
    used = []
    for past in event_type.past:
        if any(starts.get(p, 0) < min(end, past.ends.get(p, 0)) for p, end in ends.items()):
            used.append(past.event_type.version)
        starts = past.ends
    if any(starts.get(p, 0) < end for p, end in ends.items()):
        used.append(event_type.version)
    return UsedVersions(event_type.reading, tuple(used))


def judge(event_type: EventType, records: pa.RecordBatch, columns: Columns = None) -> pa.RecordBatch:
    """Decode records, each by the version in force at its offset, into the columns of `stored_schema` and `invalid`.

    The records have the columns partition, offset, value and broker_time. A column that a record's version does not
    declare is NULL. `columns` limits the result to columns that are needed.
    """
    if not event_type.past:
        return _decode(event_type, records, columns)
    numbers = _version_indexes(event_type, records["partition"].to_numpy(), records["offset"].to_numpy())
    versions = [*(each.event_type for each in event_type.past), event_type]
    contents = records.select(["value", "broker_time"])
    rows, parts = [], []
    for number in np.unique(numbers):
        taken = pa.array(np.flatnonzero(numbers == number))
        rows.append(taken)
        parts.append(_in_columns_of(event_type, _decode(versions[number], contents.take(taken), columns), columns))
    order = np.argsort(np.concatenate([each.to_numpy() for each in rows]), kind="stable")
    return pa.concat_batches(parts).take(pa.array(order))


def _decode(event_type: EventType, records: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    wanted = event_type.arrow_schema.names if columns is None else columns
    wanted_columns = [each for each in event_type.derived if any(name in wanted for name in each.names)]
    read = None if columns is None else {*columns, *(each.source for each in wanted_columns)}
    decoded = _decode_values(event_type, records["value"], records["broker_time"], read)
    if not wanted_columns:
        return decoded
    found = dict(zip(decoded.schema.names, decoded.columns, strict=True))
    for each in wanted_columns:
        found |= each.columns(found[each.source])
    names = [*(name for name in event_type.arrow_schema.names if name in wanted), "invalid"]
    return pa.RecordBatch.from_arrays([found[name] for name in names], names)


def _decode_values(event_type: EventType, values: pa.Array, broker_times: pa.Array, read: Columns) -> pa.RecordBatch:
    """The decoded columns. A framed record has the row that the JSON of its values has."""
    decoder, limit = DECODERS[event_type.decoder], event_type.future_limit
    unframed = unframe(event_type, values.cast(pa.binary())) if event_type.decoder == PLAIN else None
    if unframed is None:
        return decoder(event_type, values, broker_times, limit, read)
    decoded = decoder(event_type, unframed.values, broker_times, limit, read)
    at = decoded.schema.get_field_index("invalid")
    return decoded.set_column(at, "invalid", pc.coalesce(unframed.reasons, decoded["invalid"]))


def _version_indexes(event_type: EventType, partitions: "np.ndarray[Any, Any]", offsets: "np.ndarray[Any, Any]") -> Any:
    """For each record, the index of the version that judges it in `past`, or the length of `past` for the newest."""
    numbers = np.zeros(len(offsets), dtype=np.int64)
    for each in event_type.past:
        ends = np.zeros(partitions.max(initial=0) + 1, dtype=np.int64)
        for partition, end in each.ends.items():
            if partition < len(ends):
                ends[partition] = end
        numbers += offsets >= ends[partitions]
    return numbers


def _in_columns_of(event_type: EventType, part: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    stored = [each for each in event_type.stored_schema if columns is None or each.name in columns]
    schema = pa.schema([*stored, pa.field("invalid", pa.string())])
    present = set(part.schema.names)
    arrays = [part[f.name] if f.name in present else pa.nulls(part.num_rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
