"""Events of many groups as columns, in the order in which a search reads the events of each group."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from truelog.patterns.evaluate import Values
from truelog.patterns.matcher import Event

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

EXACT = 2.0**53  # smaller whole numbers are the same as floats
_decode = json.JSONDecoder().raw_decode


class Numbers(NamedTuple):
    """Numbers of events as floats. `is_known` is false where a float could not say the same as the value."""

    values: Floats
    is_null: Bools
    is_known: Bools

    def of(self, numbers: Ints) -> "Numbers":
        """The numbers of these events."""
        return Numbers(self.values[numbers], self.is_null[numbers], self.is_known[numbers])


class Column:
    """A column's values, one for each event."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    @cached_property
    def numbers(self) -> Numbers:
        try:
            found = pa.array(self._values, pa.float64())
        except (TypeError, ValueError, OverflowError):
            found = pa.array([_number(each) for each in self._values], pa.float64())
            is_null = np.array([each is None for each in self._values], bool)
        else:
            is_null = np.asarray(found.is_null().to_numpy(zero_copy_only=False), bool)
        values = np.asarray(found.fill_null(0.0).to_numpy(), np.float64)
        is_given = np.asarray(found.is_valid().to_numpy(zero_copy_only=False), bool)
        return Numbers(values, is_null, is_null | (is_given & (np.abs(values) < EXACT)))

    @cached_property
    def coded(self) -> tuple[Ints, list[Any]] | None:
        """The different values, and the number of each event's value; None if the values have no order or equality."""
        try:
            texts = pa.array(self._values, pa.string()).dictionary_encode(null_encoding="encode")
            return np.asarray(texts.indices.to_numpy(), np.int64), texts.dictionary.to_pylist()
        except (TypeError, ValueError, OverflowError):
            return self._coded_one_by_one()

    def _coded_one_by_one(self) -> tuple[Ints, list[Any]] | None:
        """In Python, 1, 1.0 and True are equal, so the type is a part of what differs."""
        known: dict[tuple[type, Any], int] = {}
        try:
            codes = [known.setdefault((type(each), each), len(known)) for each in self._values]
        except TypeError:  # a list or an object
            return None
        return np.array(codes, np.int64), [each for _, each in known]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < EXACT else None


def read_values(text: str) -> Any:
    """What `json.loads` makes of a text, in half the time if the text is short."""
    try:
        value, end = _decode(text)
    except ValueError:
        return json.loads(text)
    return value if end == len(text) else json.loads(text)


@dataclass(frozen=True)
class Events:
    """The columns have the same length, and are ordered by group, then as events are. Times are in microseconds.

    place: the number of each event's topic and partition among `places`, which are in order.
    """

    group: Ints
    at: Ints
    logged_at: Ints
    place: Ints
    offset: Ints
    places: Sequence[tuple[str, int]]
    values: Sequence[Values]
    _columns: dict[str, Column] = field(default_factory=dict, compare=False)
    _listed: dict[int, list[Event]] = field(default_factory=dict, compare=False)

    def __len__(self) -> int:
        return len(self.group)

    @staticmethod
    def of(inputs: pa.Table, group: Ints) -> "Events":
        """The events of inputs, given the number of each input's group."""
        at, logged_at, partition, offset = (_ints(inputs, name) for name in ("at", "logged_at", "partition", "offset"))
        topic, topics = _ranked(inputs.column("topic"))
        span = int(partition.max(initial=0)) + 1
        found, place = np.unique(topic * span + partition, return_inverse=True)
        order = np.lexsort((offset, place, at, group))
        texts = inputs.column("event").to_pylist()
        return Events(
            group[order],
            at[order],
            logged_at[order],
            place[order],
            offset[order],
            [(topics[each // span], each % span) for each in found.tolist()],
            [read_values(texts[number]) for number in order.tolist()],
        )

    def column(self, name: str) -> Column:
        if name not in self._columns:
            self._columns[name] = Column([each.get(name) for each in self.values])
        return self._columns[name]

    @cached_property
    def ranges(self) -> Mapping[int, slice]:
        """The events of each group that has any."""
        groups, first = np.unique(self.group, return_index=True)
        bounds = [*first.tolist(), len(self)]
        return {group: slice(*each) for group, each in zip(groups.tolist(), pairwise(bounds), strict=True)}

    def listed(self, group: int) -> list[Event]:
        """The events of a group, in order."""
        if group not in self._listed:
            chosen = self.ranges[group]
            columns = (self.at, self.place, self.offset, self.logged_at)
            rows = zip(*(each[chosen].tolist() for each in columns), self.values[chosen], strict=True)
            self._listed[group] = [
                Event(at, topic, partition, offset, logged_at, values)
                for at, place, offset, logged_at, values in rows
                for topic, partition in [self.places[place]]
            ]
        return self._listed[group]


def _ints(inputs: pa.Table, name: str) -> Ints:
    return np.asarray(inputs.column(name).to_numpy(), np.int64)


def _ranked(topics: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """The number of each topic in the order of the names, and the names."""
    coded = topics.combine_chunks().dictionary_encode()
    names = sorted(coded.dictionary.to_pylist())
    ranks = np.array([names.index(each) for each in coded.dictionary.to_pylist()], np.int64)
    return ranks[coded.indices.to_numpy()], names
