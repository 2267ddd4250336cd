"""The feed of a published view: the rows of its outbox, as records of its output topic.

One transaction of Kafka publishes whole transactions of the view, so that readers never see a part of one. Only a
transaction with more than a hundred thousand rows is split.

The first records of a beginning are tombstones, for the keys that the topic has and the view has not: rows that
vanished while the view did not publish, or that a database restored from a backup lacks.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from truelog.log import topics
from truelog.log.kafka_reader import messages
from truelog.relay import trace
from truelog.relay.feed import Beginning, Row
from truelog.relay.publish_spans import PublishSpan, begin_publish
from truelog.relay.step_trace import StepTraces, Transaction
from truelog.schema.names import OUTPUT
from truelog.storage.database import Connection, read_value
from truelog.support.settings import Settings

OUTPUT_CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
_PORTION = 5_000  # rows in one transaction of Kafka
_MOST = 100_000  # the rows of a single transaction of the view that are not split
_KEPT = "1 hour"  # how long published rows stay, for readers of the outbox
_KEPT_FOR_NOTIFIER = "7 days"  # and how long at most, if the notifier has not read them

_ROWS = """
    WITH steps AS (
        SELECT last FROM truelog.output_step WHERE view = %(view)s AND version = %(version)s AND last >= %(number)s
        ORDER BY last LIMIT %(portion)s
    ), bound AS (
        SELECT least(
            %(number)s::bigint + %(most)s - 1,
            coalesce(max(last) FILTER (WHERE last < %(number)s::bigint + %(portion)s), min(last))
        ) AS number FROM steps
    )
    SELECT o.number, s.id::text, o.key, o.value, s.last, s.positions::text, s.made_at, s.records
    FROM truelog.outbox o JOIN truelog.output_step s ON (s.view, s.version, s.last) = (o.view, o.version, o.step)
    WHERE o.view = %(view)s AND o.version = %(version)s AND o.number BETWEEN %(number)s AND (SELECT number FROM bound)
    ORDER BY o.number
"""
_TRIM = """
    WITH gone AS (
        DELETE FROM truelog.output_step WHERE view = %(view)s AND version = %(version)s AND last < %(number)s
            AND last IN (
                SELECT last FROM truelog.output_step WHERE view = %(view)s AND version = %(version)s
                ORDER BY last LIMIT %(steps)s::bigint
            ) AND made_at < now() - %(kept)s::interval
            AND (made_at < now() - %(longest)s::interval OR NOT EXISTS (
                SELECT FROM truelog.notification_place p
                WHERE (p.view, p.version) = (output_step.view, output_step.version) AND p.number < output_step.last
            )) RETURNING last
    )
    DELETE FROM truelog.outbox
    WHERE view = %(view)s AND version = %(version)s AND number <= (SELECT max(last) FROM gone)
"""

_PUBLISHED = 'CREATE TEMPORARY TABLE published ("offset" bigint, key text, is_live boolean) ON COMMIT DROP'
_UNKNOWN = """
    SELECT key FROM (SELECT DISTINCT ON (key) key, is_live FROM published ORDER BY key, "offset" DESC) AS last
    WHERE is_live AND NOT EXISTS (
        SELECT FROM truelog.outbox o WHERE (o.view, o.version, o.key) = (%(view)s, %(version)s, last.key)
    ) ORDER BY key COLLATE "C"
"""


def output_config(settings: Settings) -> dict[str, str]:
    """The configuration of output topics, which bounds how long Kafka keeps a row that another one has replaced."""
    longest = str(int(settings.output_compaction_seconds * 1_000))
    return {"max.compaction.lag.ms": longest, "segment.ms": longest, **OUTPUT_CONFIG}


def topic_of(view: str, version: int) -> str:
    """The output topic of a version of a view."""
    return f"{OUTPUT}{view}.v{version}"


class _Stored(NamedTuple):
    """A row of the outbox."""

    number: int
    step: str  # the id of the view's transaction
    key: str
    value: str | None
    last: int  # the number of the transaction's last row
    positions: str
    made_at: datetime
    records: str | None  # that alone have changed the rows of the transaction, if they are known


class ViewFeed:
    """The feed of one version of a view."""

    def __init__(
        self, settings: Settings, connection: Connection, view: str, version: int, traces: StepTraces | None = None
    ) -> None:
        """Without `traces`, records have no `traceparent`."""
        self._settings, self._connection, self._traces = settings, connection, traces
        self.view, self.version = view, version

    @property
    def name(self) -> str:
        """The name of the topic too."""
        return topic_of(self.view, self.version)

    def beginning(self) -> Beginning | None:
        found: list[Any] = self._connection.execute(
            "SELECT beginning::text, first FROM truelog.output "
            "WHERE (view, version) = (%(view)s, %(version)s) AND beginning IS NOT NULL",
            self._own,
        ).fetchall()
        return Beginning(*found[0]) if found else None

    def id_of(self, number: int) -> str | None:
        step = read_value(
            self._connection,
            "SELECT s.id::text FROM truelog.outbox o "
            "JOIN truelog.output_step s ON (s.view, s.version, s.last) = (o.view, o.version, o.step) "
            "WHERE (o.view, o.version, o.number) = (%(view)s, %(version)s, %(number)s)",
            self._own | {"number": number},
        )
        return None if step is None else _id(step, number)

    def next_rows(self, number: int) -> Sequence[Row]:
        given = self._own | {"number": number, "portion": _PORTION, "most": _MOST}
        stored = [_Stored(*each) for each in self._connection.execute(_ROWS, given).fetchall()]
        beginning = self.beginning()
        removed = self._unknown_keys(stored) if stored and beginning and beginning.number == number else ()
        steps = groupby((*removed, *stored), key=lambda each: each.step)
        return [row for _, rows in steps for row in self._traced(list(rows))]

    def trim(self, number: int, *, at_once: bool = False, steps: int | None = None) -> int:
        """Delete published rows before this number, and return how many there were.

        at_once: also delete rows that readers may still need.
        steps: of how many transactions at most; None for all.
        """
        kept, longest = ("0", "0") if at_once else (_KEPT, _KEPT_FOR_NOTIFIER)
        given = {"number": number, "kept": kept, "longest": longest, "steps": steps}
        return self._connection.execute(_TRIM, self._own | given).rowcount

    @property
    def _own(self) -> dict[str, Any]:
        return {"view": self.view, "version": self.version}

    def _unknown_keys(self, stored: Sequence[_Stored]) -> Iterable[_Stored]:
        """A removal of each key that is live in the topic, and that the whole table lacks.

        PostgreSQL finds them, because both may have more keys than this process has memory for.
        """
        with self._connection.transaction():
            self._connection.execute(_PUBLISHED)
            with self._connection.cursor() as cursor, cursor.copy("COPY published FROM STDIN") as copy:
                for offset, key, is_live in self._published():
                    copy.write_row((offset, key, is_live))
            unknown: list[Any] = self._connection.execute(_UNKNOWN, self._own).fetchall()
        return [stored[0]._replace(key=key, value=None) for (key,) in unknown]

    def _published(self) -> Iterator[tuple[int, str, bool]]:
        """The offset and the key of each record in the topic, and whether it has a row."""
        broker = topics.client(self._settings)
        begins, ends = topics.begins(broker, [self.name]), topics.ends(broker, [self.name])
        for each in messages(self._settings, self.name, 0, begins.at(self.name, 0), ends.at(self.name, 0)):
            key = each.key()
            yield each.offset() or 0, key.decode() if isinstance(key, bytes) else str(key), each.value() is not None

    def _traced(self, stored: Sequence[_Stored]) -> Iterable[Row]:
        """Rows of one transaction, with its trace."""
        first = stored[0]
        found = self._traces and self._traces.of(first.step, first.records, first.made_at)
        if not self._traces or not found:
            return self._rows(stored)
        step = Transaction(self.view, self.version, first.last, first.made_at)
        span = begin_publish(self._traces.spans, found, step, len(stored))
        if span:
            span.on_published = partial(self._store_trace, first.last)
        return self._rows(stored, span.traceparent if span else found.traceparent, span)

    def _store_trace(self, last: int, span: PublishSpan) -> None:
        """Let the API find the trace of the transaction with this last row."""
        self._connection.execute(
            "UPDATE truelog.output_step SET traceparent = %(trace)s "
            "WHERE (view, version, last) = (%(view)s, %(version)s, %(last)s)",
            self._own | {"last": last, "trace": span.of_merge},
        )

    def _rows(self, stored: Sequence[_Stored], traceparent: str = "", span: PublishSpan | None = None) -> Iterator[Row]:
        """The records of one transaction. Most of their headers are the same, which are encoded once."""
        first = stored[0]
        same = {
            "truelog.view": self.view,
            "truelog.version": str(self.version),
            "truelog.last": str(first.last),
            "truelog.positions": json.dumps(json.loads(first.positions), separators=(",", ":")),
            "content-type": "application/json",
            "ce_specversion": "1.0",
            "ce_source": f"/views/{self.view}/v{self.version}",
            "ce_time": first.made_at.isoformat(),
        }
        if traceparent:
            same[trace.NAME] = traceparent
        encoded = {name: text.encode() for name, text in same.items()}
        for each in stored:
            identity = _id(each.step, each.number)
            own = {
                "truelog.number": str(each.number).encode(),
                "ce_id": identity.encode(),
                "ce_type": b"truelog.row.changed" if each.value is not None else b"truelog.row.removed",
            }
            value = None if each.value is None else each.value.encode()
            yield Row(each.number, identity, self.name, each.key.encode(), value, encoded | own, span)


def _id(step: str, number: int) -> str:
    return f"{step}:{number}"
