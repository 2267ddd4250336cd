"""Corpus: the traffic that every job is given, in Kafka and, for DuckDB, the same bytes in a file.

Its page views are keyed by the cell of the cube that they fall in. Truelog groups by itself and gains nothing by it;
Quix Streams counts by the key of a record, and is spared a second topic through which it would have to send them all.
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
RATE = 5_000  # events a second of the traffic's own time

_SEED = 7
_NO_YEAR = 9999  # of a clock gone wild


@dataclass(frozen=True)
class Corpus:
    """How many good events lie in each topic, and the file that holds the page views."""

    counts: Mapping[str, int]
    ndjson: Path

    @property
    def events(self) -> int:
        return sum(self.counts.values())


def preload(settings: Settings, events: int) -> Corpus:
    """Send so many events of traffic that ends now; keep the page views in a file too."""
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
    """Without what is no event: peers stumble over it, each in its own way."""
    models = {name: each.model for name, each in load_events().items()}
    for record in records:
        try:
            event: Any = models[record.topic].model_validate_json(record.value)
        except ValidationError:
            continue
        if event.occurred_at.year < _NO_YEAR:
            yield record._replace(key=f"{event.url} {event.browser}") if record.topic == "page_view" else record
