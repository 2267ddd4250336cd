"""Sends the events of a step and waits until the views have merged them, and times the reads of views."""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import LiteralString

from bench import streaming
from bench.row import OURS, Row
from tests.beat import every
from tests.scenes.applications import Application
from truelog.log import topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.storage.database import Connection
from truelog.support import timestamps
from truelog.support.settings import Settings
from truelog.traffic import community
from truelog.views import catalogue

TOPICS = community.TOPICS

_WITHIN_SECONDS = 600.0
_LOOK_SECONDS = 0.02
_READS = 20

Step = tuple[str, Iterable[OutgoingRecord]]


@dataclass(frozen=True)
class Merged:
    """Sends the events of a step and waits until the views of the application have merged them."""

    settings: Settings
    application: Application
    connection: Connection
    views: Sequence[str]

    def step(self, name: str, records: Iterable[OutgoingRecord]) -> Row:
        """A row with the seconds from the last acknowledgement to the merge, and the seconds of all merges."""
        before, reads = self._merging(), {view: catalogue.load_view(view).reads for view in self.views}
        with KafkaSender(self.settings, TOPICS) as sender:
            for record in records:
                sender.send(record)
        begin, ends = time.time(), topics.end_offsets(self.settings, TOPICS)
        for now in every(_LOOK_SECONDS, within=_WITHIN_SECONDS, what=name):
            streaming.require_running(self.application)
            reached = (streaming.positions(self.connection, view).covers(ends.only(reads[view])) for view in self.views)
            if all(reached):
                seconds = now - begin
                more = {"events": sender.sent, "seconds": seconds, "merge_seconds": self._merging() - before}
                note = "from the last acknowledgement to the merge"
                return Row(name, OURS, sender.sent / seconds, "alone", note, more=more)
        raise AssertionError("every() raises at its limit")

    def _merging(self) -> float:
        """The seconds that all merges of the views took."""
        row = self.connection.execute("SELECT coalesce(sum(merging), 0) FROM truelog.merge_tally").fetchone()
        return float(str(row and row[0]))


def read(connection: Connection, what: str, query: LiteralString, rows: int) -> Row:
    """The median time of a query that finds so many rows."""
    times = []
    for _ in range(_READS):
        begin = time.perf_counter()
        found = connection.execute(query).fetchall()
        times.append(time.perf_counter() - begin)
    if len(found) != rows:
        raise RuntimeError(f"a read of {what} found {len(found)} rows instead of {rows}")
    seconds = sorted(times)[_READS // 2]
    return Row(f"read {what}", OURS, 1 / seconds, "alone", f"median of {_READS}", more={"seconds": seconds})


def event(topic: str, key: str, **fields: object) -> OutgoingRecord:
    """An event of now, whose id is its key."""
    values = {"event_id": key, "occurred_at": timestamps.to_text(datetime.now(UTC)), **fields}
    return OutgoingRecord(topic, key, json.dumps(values).encode())
