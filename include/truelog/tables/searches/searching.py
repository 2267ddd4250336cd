"""Searching: how hits follow from the texts of events and from stored searches.

The driver sends the searches to the executors once, whatever number of batches follow. The Python processes of the
executors make an index of them, and keep it. Searches that change later travel with the plan of a batch, until they
are many.
"""

import json
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import SparkContext
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from truelog.patterns.versions import Version
from truelog.searches.document import Document
from truelog.searches.percolator import Known, Percolator
from truelog.searches.search import Search, reader
from truelog.tables.patterns.judging import Judging, Run
from truelog.tables.table import Table
from truelog.views.searches import Searches

_TIME = pa.timestamp("us", "UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = pa.schema(
    [
        ("document", pa.string()),
        ("logged_at", _TIME),
        ("search", pa.string()),
        ("search_version", pa.int32()),
        ("event_type", pa.string()),
        ("event_time", _TIME),
        ("snippet", pa.string()),
    ]
)
_Fields = Mapping[str, Sequence[str]]  # the text fields of each event type
_PORTION = 4_096  # hits in one Arrow batch, because a text may be found by very many searches
_MOST_SENT = 32  # sets of searches; each has a file as long as all searches
_MOST_CHANGED = 200  # searches that travel with a plan; if more have changed, all searches are sent again
_all_sent: "deque[Broadcast[list[Known]]]" = deque()
_in_use: dict[str, Percolator] = {}  # of this process; at most one, by the key of its searches
_changed_in_use: dict[str, str] = {}  # the key of the changed searches in this percolator, by its key
_Changed = Mapping[str, Sequence[Known]]  # all versions of searches that have changed, by name


class Place(NamedTuple):
    """The coordinates of an event."""

    topic: str
    partition: int
    offset: int


def compile_searching(view: Searches, inputs: Table, rules: Table) -> Judging:
    """How the hits of a view of searches come about."""
    fields = {event_type: tuple(source.fields) for event_type, source in view.sources.items()}

    def judge(known: Sequence[Version[Search]]) -> Run:
        return Finder(fields, Sent([_known(each) for each in known]), {})

    return Judging(
        inputs,
        view.by,
        view.fold,
        lambda rows: rows,
        rules=rules,
        read=reader(view.sources),
        judge=judge,
        judge_changed=Finder.with_changed,
        is_local=True,
    )


class Sent:
    """Searches that the driver sends to the executors once."""

    def __init__(self, known: Sequence[Known]) -> None:
        self.known = known
        self.key = uuid.uuid4().hex
        self._sent: Broadcast[list[Known]] | None = None

    def send(self, context: SparkContext) -> "Broadcast[list[Known]]":
        """The searches in the executors. The oldest of all are dropped in the end, when no job needs them."""
        if self._sent is None or self._sent not in _all_sent:
            self._sent = context.broadcast(list(self.known))
            _all_sent.append(self._sent)
            if len(_all_sent) > _MOST_SENT:
                _forget(_all_sent.popleft())
        return self._sent


class Finder:
    """The fold for versions of searches: the searches that were sent, and changes to some of them."""

    def __init__(self, fields: _Fields, sent: Sent, changed: _Changed) -> None:
        self._fields = fields
        self._sent = sent
        self._changed = changed
        self._key = uuid.uuid4().hex

    def __call__(self, inputs: DataFrame) -> DataFrame:
        sent = self._sent.send(inputs.sparkSession.sparkContext)
        known = _Known(self._sent.key, sent, self._key, self._changed)
        return inputs.mapInArrow(_finding(self._fields, known), from_arrow_schema(ROWS))

    def with_changed(self, names: Collection[str], versions: Sequence[Version[Search]]) -> "Finder":
        """The fold for the same searches, but for those of these names, all of whose versions are given."""
        made: dict[str, list[Known]] = {name: [] for name in names}
        for each in versions:
            made[each.rule.name].append(_known(each))
        changed = {**self._changed, **made}
        if len(changed) <= _MOST_CHANGED:
            return Finder(self._fields, self._sent, changed)
        same = [each for each in self._sent.known if each.search not in changed]
        return Finder(self._fields, Sent([*same, *chain.from_iterable(changed.values())]), {})


@dataclass(frozen=True)
class _Known:
    """The searches of a plan, for the executors."""

    key: str
    sent: "Broadcast[list[Known]]"
    key_of_changed: str
    changed: _Changed


def _known(version: Version[Search]) -> Known:
    search = version.rule
    return Known(search.name, version.number, search.event_type, search.query, version.begins, version.ends)


def _forget(sent: "Broadcast[Any]") -> None:
    with suppress(Exception):  # Spark may have stopped
        sent.destroy()


def _finding(fields: _Fields, known: _Known) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that runs in the executors' Python: texts in, hits out."""

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        percolator = _percolator(known)
        for batch in batches:
            found = hits(percolator, fields, batch.to_pylist())
            while portion := list(islice(found, _PORTION)):
                yield pa.RecordBatch.from_pylist(portion, ROWS)

    return find


def _percolator(known: _Known) -> Percolator:
    """The searches of this process. It keeps them, because each batch has a call of its own."""
    if known.key not in _in_use:
        before = next(iter(_in_use.values()), None)
        _in_use.clear()
        _changed_in_use.clear()
        _in_use[known.key] = Percolator(known.sent.value, before)
    if _changed_in_use.get(known.key) != known.key_of_changed:
        _in_use[known.key].replace(known.changed)
        _changed_in_use[known.key] = known.key_of_changed
    return _in_use[known.key]


def hits(percolator: Percolator, fields: _Fields, inputs: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows of the events of these inputs."""
    for row in inputs:
        place, texts = Place(row["topic"], row["partition"], row["offset"]), json.loads(row["event"])
        document = Document({name: texts[name] for name in fields[place.topic] if name in texts})
        for found in percolator.found(place, document):
            yield {
                "document": row["document"],
                "logged_at": row["logged_at"],
                "search": found.search,
                "search_version": found.version,
                "event_type": place.topic,
                "event_time": _EPOCH + timedelta(microseconds=row["at"]),
                "snippet": document.snippet(found.query),
            }
