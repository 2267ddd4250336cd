"""Erasures: which records of the log each covers.

An erasure covers the records below its ends that name one of its subjects. Later records about the same person count
again. The erasures of a home are a set: to apply one twice, or two in another order, covers the same records.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from truelog.erasure.dead_letter import DEAD_LETTER, named_in_letter
from truelog.erasure.framed import named_in_frame
from truelog.erasure.subject import HASH_BYTES, Named, Subject, named_in_text, named_values
from truelog.log.positions import Positions
from truelog.schema.event import EventType, EventTypes
from truelog.schema.frames.kept_schema import KeptSchema
from truelog.schema.frames.unframe import is_framed
from truelog.support.errors import BadInput

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Erasure:
    """The subjects, the fields of each topic that may name them, and the first offsets that are not covered."""

    id: UUID
    subjects: frozenset[Subject]
    fields: Mapping[str, tuple[str, ...]] = field(hash=False)
    ends: Positions = field(hash=False)
    secret_check: bytes = bytes(HASH_BYTES)  # by which another secret than that of the hashes is noticed

    def end_of(self, topic: str, topic_id: str, partition: int, name: str) -> int:
        """The first offset that is not covered if a record names a subject in this field; 0 if none is covered."""
        if self.ends.ids.get(topic) != topic_id or name not in self.fields.get(topic, ()):
            return 0
        return self.ends.at(topic, partition)

    def as_text(self) -> str:
        """One text, which `from_text` parses. Equal erasures have equal texts."""
        subjects = [[each.field, each.hash.hex()] for each in sorted(self.subjects)]
        fields = {topic: list(names) for topic, names in self.fields.items()}
        content = {"id": str(self.id), "subjects": subjects, "fields": fields, "ends": self.ends.with_ids()}
        content["secret_check"] = self.secret_check.hex()
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> "Erasure":
        content = json.loads(text)
        subjects = frozenset(Subject(name, bytes.fromhex(each)) for name, each in content["subjects"])
        fields = {topic: tuple(names) for topic, names in content["fields"].items()}
        ends, secret_check = Positions.from_text(content["ends"]), bytes.fromhex(content["secret_check"])
        return Erasure(UUID(content["id"]), subjects, fields, ends, secret_check)


def subject_fields(types: EventTypes, wanted: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The wanted fields that identify a person in each topic, without topics that have none.

    A dead letter may have any of them.

    Raises:
        BadInput: no event type declares one of the fields as its subject.
    """
    declared = {name for each in types.values() for name in each.topic.subject}
    if unknown := sorted({*wanted} - declared):
        raise BadInput(
            f"no event type has the subject {', '.join(unknown)}. Subjects are: {', '.join(sorted(declared))}."
        )
    found = {
        topic: tuple(name for name in sorted({*wanted}) if topic == DEAD_LETTER or name in each.topic.subject)
        for topic, each in types.items()
    }
    return {topic: names for topic, names in found.items() if names}


@dataclass(frozen=True)
class Erasures:
    """All erasures of a home, with the secret of their hashes."""

    secret: bytes = field(repr=False, default=b"")
    all: tuple[Erasure, ...] = ()

    def covered(self, event_type: EventType, topic_id: str, records: pa.RecordBatch) -> Bools:
        """Which of these records of one topic are covered.

        The columns are `partition`, `offset` and `value`; without `key`, a record without a value is not covered.
        """
        found = np.zeros(records.num_rows, np.bool_)
        name, fields = event_type.name, self._fields(event_type.name)
        if not fields or topic_id not in self._topic_ids(name):
            return found
        ends, hashes = _Ends(self, name, topic_id), dict[Named, Subject]()
        kept = {each.id: each for each in event_type.frames}
        columns = [records.column(each) for each in ("partition", "offset", "value")]
        keys = records.column("key") if "key" in records.schema.names else pa.nulls(records.num_rows, pa.binary())
        rows = zip(*(column.to_pylist() for column in (*columns, keys)), strict=True)
        for number, (partition, offset, value, key) in enumerate(rows):
            if offset < ends.latest(partition):
                names = _named(event_type, fields, kept, value, key)
                found[number] = names is None  # such a record may name anyone
                for named in names or ():
                    subject = hashes.get(named)
                    if subject is None:
                        subject = hashes[named] = Subject.of(self.secret, *named)
                    found[number] |= offset < ends.of(partition, subject)
        return found

    def names_subject(self, text: str) -> bool:
        """Whether a text of the platform names a subject, with any of the fields. A number alone does not."""
        return self._names(text, numbers=False)

    def has_subject(self, text: str) -> bool:
        """The same, but a JSON string that is a number may be a subject too."""
        return self._names(text, numbers=True)

    def is_subject(self, text: str) -> bool:
        """Whether a text is the value of a subject, in any of the fields."""
        return any(Subject.of(self.secret, each.field, text) in self._subjects for each in self._subjects)

    def _names(self, text: str, *, numbers: bool) -> bool:
        fields = {each.field for each in self._subjects}
        named = named_in_text(fields, text.encode(errors="surrogatepass"), numbers=numbers)
        return any(Subject.of(self.secret, *each) in self._subjects for each in named)

    @cached_property
    def _subjects(self) -> frozenset[Subject]:
        return frozenset(subject for each in self.all for subject in each.subjects)

    def end(self, topic: str, topic_id: str, partition: int) -> int:
        """The first offset from which on no record of the partition is covered."""
        return _Ends(self, topic, topic_id).latest(partition)

    def _fields(self, topic: str) -> frozenset[str]:
        return frozenset(name for each in self.all for name in each.fields.get(topic, ()))

    def _topic_ids(self, topic: str) -> set[str]:
        return {each.ends.ids[topic] for each in self.all if topic in each.ends.ids}


@dataclass(frozen=True)
class _Ends:
    """The ends of one topic, by partition and subject."""

    erasures: Erasures
    topic: str
    topic_id: str

    def of(self, partition: int, subject: Subject) -> int:
        return self._by_subject.get((partition, subject), 0)

    def latest(self, partition: int) -> int:
        return self._latest.get(partition, 0)

    @cached_property
    def _by_subject(self) -> dict[tuple[int, Subject], int]:
        found: dict[tuple[int, Subject], int] = {}
        for each in self.erasures.all:
            for partition in each.ends.offsets.get(self.topic, {}):
                for subject in each.subjects:
                    end = each.end_of(self.topic, self.topic_id, partition, subject.field)
                    found[partition, subject] = max(end, found.get((partition, subject), 0))
        return found

    @cached_property
    def _latest(self) -> dict[int, int]:
        return _greatest((partition, end) for (partition, _), end in self._by_subject.items())


def _named(
    event_type: EventType,
    fields: Collection[str],
    kept: Mapping[int, KeptSchema],
    value: bytes | None,
    key: bytes | None,
) -> Collection[Named] | None:
    """What a record names. None if it is in the frame of a schema registry, and nothing can read it."""
    if event_type.name == DEAD_LETTER and value is not None:
        return named_in_letter(fields, value)
    if is_framed(value):
        return named_in_frame(fields, kept, value or b"")
    if value is None and is_framed(key):
        return None
    return named_values(fields, value, key, event_type.topic.key)


def _greatest(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for partition, end in pairs:
        found[partition] = max(end, found.get(partition, 0))
    return found
