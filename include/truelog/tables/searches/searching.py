"""Searching: how hits follow from the texts of events and from stored searches.

The driver sends the searches to the executors once, whatever number of batches follow. The Python processes of the
executors make an index of them, and keep it until the searches change.
"""

import json
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
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
_MOST_SENT = 32  # changes of searches; each has a file as long as all searches
_all_sent: "deque[Broadcast[list[Known]]]" = deque()
_in_use: dict[str, Percolator] = {}  # of this process; at most one, by the key of its searches


class Place(NamedTuple):
    """The coordinates of an event."""

    topic: str
    partition: int
    offset: int


def compile_searching(view: Searches, inputs: Table, rules: Table) -> Judging:
    """How the hits of a view of searches come about."""
    fields = {event_type: tuple(source.fields) for event_type, source in view.sources.items()}

    def judge(known: Sequence[Version[Search]]) -> Run:
        return Finder(fields, known)

    return Judging(
        inputs,
        view.by,
        view.fold,
        lambda rows: rows,
        rules=rules,
        read=reader(view.sources),
        judge=judge,
        is_local=True,
    )


class Finder:
    """The fold for these versions of searches."""

    def __init__(self, fields: _Fields, known: Sequence[Version[Search]]) -> None:
        self._fields = fields
        self._known = [_known(each) for each in known]
        self._key = uuid.uuid4().hex
        self._sent: Broadcast[list[Known]] | None = None

    def __call__(self, inputs: DataFrame) -> DataFrame:
        sent = self._send(inputs.sparkSession.sparkContext)
        return inputs.mapInArrow(_finding(self._fields, self._key, sent), from_arrow_schema(ROWS))

    def _send(self, context: SparkContext) -> "Broadcast[list[Known]]":
        """The searches in the executors. The oldest of them are dropped after many changes, when no job needs them."""
        if self._sent is None or self._sent not in _all_sent:
            self._sent = context.broadcast(self._known)
            _all_sent.append(self._sent)
            if len(_all_sent) > _MOST_SENT:
                _forget(_all_sent.popleft())
        return self._sent


def _known(version: Version[Search]) -> Known:
    search = version.rule
    return Known(search.name, version.number, search.event_type, search.query, version.begins, version.ends)


def _forget(sent: "Broadcast[Any]") -> None:
    with suppress(Exception):  # Spark may have stopped
        sent.destroy()


def _finding(
    fields: _Fields, key: str, sent: "Broadcast[list[Known]]"
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that runs in the executors' Python: texts in, hits out."""

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        percolator = _percolator(key, sent)
        for batch in batches:
            found = hits(percolator, fields, batch.to_pylist())
            while portion := list(islice(found, _PORTION)):
                yield pa.RecordBatch.from_pylist(portion, ROWS)

    return find


def _percolator(key: str, sent: "Broadcast[list[Known]]") -> Percolator:
    """The searches of this process. It keeps them, because each batch has a call of its own."""
    if key not in _in_use:
        before = next(iter(_in_use.values()), None)
        _in_use.clear()
        _in_use[key] = Percolator(sent.value, before)
    return _in_use[key]


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
