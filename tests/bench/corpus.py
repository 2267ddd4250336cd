"""The corpus: the traffic that every job reads, stored in Kafka and, for DuckDB, as the same bytes in a file.

A page view's key is its cell in the cube. Truelog groups the events itself and gains nothing from this key. Quix
Streams groups by the record key, so it can count without sending every record through a second topic.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from truelog.ingest import generator
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.schema.event import load_events
from truelog.support.settings import Settings

TOPICS = ("page_view", "search", "click")
RATE = 5_000  # events per second of event time

_SEED = 7
_NO_YEAR = 9999  # the year that a broken clock reports


@dataclass(frozen=True)
class Corpus:
    """The number of valid events in each topic, and the file with the page views."""

    counts: Mapping[str, int]
    ndjson: Path

    @property
    def events(self) -> int:
        return sum(self.counts.values())


def preload(settings: Settings, events: int) -> Corpus:
    """Send the given number of events, ending at the current time, and write the page views to a file."""
    begin = datetime.now(UTC) - timedelta(seconds=events / RATE)
    counts: Counter[str] = Counter()
    file = settings.home / "page_view.ndjson"
    with KafkaSender(settings, TOPICS) as sender, file.open("wb") as output:
        for record in good(generator.generate(seed=_SEED, begin=begin, rate=RATE, seconds=events / RATE)):
            sender.send(record)
            counts[record.topic] += 1
            if record.topic == "page_view":
                output.write(record.value + b"\n")
    return Corpus(counts, file)


def good(records: Iterator[OutgoingRecord]) -> Iterator[OutgoingRecord]:
    """Yield only the valid events, because the other engines fail on invalid events."""
    models = {name: each.model for name, each in load_events().items()}
    for record in records:
        try:
            event: Any = models[record.topic].model_validate_json(record.value)
        except ValidationError:
            continue
        if event.occurred_at.year < _NO_YEAR:
            yield record._replace(key=f"{event.url} {event.browser}") if record.topic == "page_view" else record
