"""The corpus: the traffic that every job reads, stored in Kafka, and as the same bytes in a file for DuckDB and Polars.

The generator takes 30 microseconds or more for an event, so it makes only the first 50,000 events. All other events are
copies of these bytes with new ids and later times. A copy refers to the searches of the same copy.

A page view's key is its cell in the cube. Truelog groups the events itself and gains nothing from this key. Quix
Streams groups by the record key, so it can count without sending every record through a second topic.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tests.beat import first
from truelog.log import topics
from truelog.log.kafka_producer import OutgoingRecord, make_producer
from truelog.schema.loading.events import load_events
from truelog.support.settings import Settings
from truelog.traffic import generator

TOPICS = ("page_view", "search", "click")
RATE = 5_000  # events per second of event time

_SEED = 7
_ORIGINALS = 50_000
_COPY_SECONDS = _ORIGINALS // RATE  # each copy's events happen this much later than the previous copy's
_NO_YEAR = 9999  # the year that a broken clock reports
_POLL_EVERY = 2_000  # records
_FLUSH_SECONDS = 300.0

# The parts that differ between copies: the first 8 of an id's 32 digits, and a time up to its seconds.
_ID, _TIME = rb'(?<="event_id": ").{8}|(?<="search_id": ").{8}', rb'(?<="occurred_at": ").{19}|(?<="sent_at": ").{19}'
_SLOT = re.compile(rb"(" + _ID + rb"|" + _TIME + rb")")
_ID_DIGITS = 8


@dataclass(frozen=True)
class Original:
    """A record of the first copy, split at the parts that change. Every second part is such a part."""

    topic: str
    key: str
    fixed: tuple[bytes, ...]
    changing: tuple[int | None, ...]  # a time in seconds, or None for an id

    def copy(self, number: bytes, shift: int, texts: Mapping[int, bytes]) -> bytes:
        parts = [self.fixed[0]]
        for when, after in zip(self.changing, self.fixed[1:], strict=True):
            parts += (number if when is None else texts[when + shift], after)
        return b"".join(parts)


class Times(dict[int, bytes]):
    """The text of a time in whole seconds, made once."""

    def __missing__(self, second: int) -> bytes:
        text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
        self[second] = text
        return text


def split(record: OutgoingRecord) -> Original:
    fixed = _SLOT.split(record.value)
    changing = tuple(None if len(each) == _ID_DIGITS else _second(each) for each in fixed[1::2])
    return Original(record.topic, record.key, tuple(fixed[::2]), changing)


def _second(text: bytes) -> int:
    return int(datetime.fromisoformat(text.decode()).replace(tzinfo=UTC).timestamp())


@dataclass
class Corpus:
    """The number of valid events in each topic, and the file with the first page views."""

    ndjson: Path
    ndjson_events: int = 0
    originals: list[Original] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0  # the duration of sending
    _copies: int = 0

    @property
    def events(self) -> int:
        return sum(self.counts.values())

    def records(self, events: int) -> Iterator[tuple[str, str, bytes]]:
        """Topics, keys and values. Each call continues with the next copy."""
        texts, left = Times(), events
        while left > 0:
            number, shift = b"%08x" % self._copies, self._copies * _COPY_SECONDS
            self._copies += 1
            for each in islice(self.originals, left):
                yield each.topic, each.key, each.copy(number, shift, texts)
            left -= len(self.originals)


def preload(settings: Settings, events: int, file_events: int) -> Corpus:
    """Send the given number of events, ending at about the current time, and write the first page views to a file."""
    begin = datetime.now(UTC) - timedelta(seconds=events / RATE)
    made = generator.generate(seed=_SEED, begin=begin, rate=RATE, seconds=1.05 * _COPY_SECONDS)
    corpus = Corpus(settings.home / "page_view.ndjson")
    corpus.originals = [split(record) for record in islice(good(made), _ORIGINALS)]
    with corpus.ndjson.open("wb") as output:

        def keep(topic: str, value: bytes) -> None:
            if topic == "page_view" and corpus.ndjson_events < file_events:
                output.write(value + b"\n")
                corpus.ndjson_events += 1

        send(settings, corpus, events, keep)
    return corpus


def send(
    settings: Settings, corpus: Corpus, events: int, keep: Callable[[str, bytes], None] = lambda topic, value: None
) -> None:
    """Send more copies, and check by the end offsets that Kafka has all of them."""
    before = in_log(settings)
    began = datetime.now(UTC)
    kafka = make_producer(settings)
    for number, (topic, key, value) in enumerate(corpus.records(events)):
        while True:
            try:
                kafka.produce(topic, value, key)
                break
            except BufferError:
                kafka.poll(0.05)
        if number % _POLL_EVERY == 0:
            kafka.poll(0)
        corpus.counts[topic] += 1
        keep(topic, value)
    kafka.flush(_FLUSH_SECONDS)
    first(
        0.2,
        lambda: in_log(settings) == before + events,
        within=30,
        what=f"{events:,} records in the log",
    )
    corpus.seconds += (datetime.now(UTC) - began).total_seconds()


def in_log(settings: Settings, names: Iterable[str] = TOPICS) -> int:
    """The number of records in these topics. Nothing but events is in them: their producers use no transactions."""
    return sum(sum(by.values()) for by in topics.end_offsets(settings, names).offsets.values())


def good(records: Iterable[OutgoingRecord]) -> Iterator[OutgoingRecord]:
    """Yield only the valid events, because the other engines fail on invalid events. A page view's key is its cell."""
    for record, event in _validated(records):
        yield record._replace(key=f"{event.url} {event.browser}") if record.topic == "page_view" else record


def valid(records: Iterable[OutgoingRecord]) -> Iterator[OutgoingRecord]:
    """Yield only the valid events."""
    return (record for record, _ in _validated(records))


def _validated(records: Iterable[OutgoingRecord]) -> Iterator[tuple[OutgoingRecord, Any]]:
    """Yield each valid record with its event."""
    models = {name: each.model for name, each in load_events().items()}
    for record in records:
        try:
            event: Any = models[record.topic].model_validate_json(record.value)
        except ValidationError:
            continue
        if event.occurred_at.year < _NO_YEAR:
            yield record, event
