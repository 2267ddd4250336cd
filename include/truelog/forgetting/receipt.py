"""The receipt of an erasure: what is gone, and by when the rest is gone.

It follows from the ledger and from the settings of the topics, so it can be made again at any time. It names no person.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from truelog.erasure.ledger import Entry
from truelog.forgetting import outputs
from truelog.log import topics
from truelog.storage.database import connect
from truelog.support import timestamps
from truelog.support.settings import Settings

_NOT_REACHED = (
    "Backups of PostgreSQL and of the S3 bucket, replicas, and versions of objects: when they are deleted. "
    "After a restore, `truelog erasures adopt` applies the erasure again.",
    "PostgreSQL's files: free space of its pages, and its WAL, until PostgreSQL has written over it. "
    "Before version 18, also statistics about tables that are empty.",
    "Files of an archive process that crashed before its commit, and partials of a recompute that was running: "
    "until upkeep deletes them, after three days. Nothing reads them.",
    "Texts of statements in PostgreSQL's pg_stat_statements: until `SELECT pg_stat_statements_reset()`.",
    "Temporary files of Spark: until the process ends, or if it was killed, until the next job begins.",
    "Memory of running processes, such as the words that an application has compared last: until the process ends. "
    "None serves it.",
    "Lines that `truelog import access-log` has kept aside, in `imports` in the home: on other machines, and lines "
    "that do not have the value itself. Until the files are deleted.",
    "Copies that readers have made: exports, consumers of topics, subscribers, and pages of Airflow.",
    "Logs of processes, and metadata of Airflow: until their retention.",
)


@dataclass(frozen=True)
class Receipt:
    """An erasure as of now. `kafka` has for each topic when its last covered record is gone; None is never.

    outputs: for each output topic, when replaced and removed rows are gone, with their keys; None is never.
    unwritten: the output topics that no view writes now, since the erasure.
    """

    entry: Entry
    kafka: Mapping[str, datetime | None]
    outputs: Mapping[str, datetime | None] = field(default_factory=dict)
    unwritten: Sequence[str] = ()

    @property
    def rest(self) -> tuple[str, ...]:
        """Where data of the person may still be, and until when, in words."""
        kept = (
            f"Kafka's topic {topic}: until {when:%Y-%m-%d %H:%M} UTC."
            if when
            else f"Kafka's topic {topic}, which is compacted: until its source writes a newer record with the same key."
            for topic, when in sorted(self.kafka.items())
        )
        outputs = (
            f"Kafka's topic {topic}, an output: earlier rows, and the keys of removed rows, "
            + (f"until {when:%Y-%m-%d %H:%M} UTC." if when else "for ever. Start the relay, which sets a limit.")
            for topic, when in sorted(self.outputs.items())
        )
        unwritten = (
            f"Kafka's topic {topic}, an output that no view writes now: for ever. Delete the topic."
            for topic in self.unwritten
        )
        return (*kept, *outputs, *unwritten, *_NOT_REACHED)

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        entry = self.entry
        return {
            "id": str(entry.erasure.id),
            "finished": entry.is_finished,
            "step": entry.step.name.lower(),
            "recorded_at": timestamps.to_text(entry.recorded_at),
            "advanced_at": timestamps.to_text(entry.advanced_at),
            "subjects": [{"field": each.field, "hash": each.hash.hex()} for each in sorted(entry.erasure.subjects)],
            "topics": sorted(entry.erasure.fields),
            "records": dict(sorted(entry.records.items())),
            "kafka": {topic: when and timestamps.to_text(when) for topic, when in sorted(self.kafka.items())},
            "outputs": {topic: when and timestamps.to_text(when) for topic, when in sorted(self.outputs.items())},
            "unwritten_outputs": list(self.unwritten),
            "deleted_outputs": list(entry.deleted),
            "rest": list(self.rest),
        }


def receipt_of(settings: Settings, entry: Entry) -> Receipt:
    """The receipt of an erasure. Topics without covered records are left out, and topics that were deleted since."""
    broker = topics.client(settings)
    found = topics.current_ids(broker, entry.records.keys() & topics.existing_topics(broker))
    here = [topic for topic, topic_id in found.items() if entry.erasure.ends.ids[topic] == topic_id]
    seconds = topics.longest_seconds(broker, here)
    kafka = {t: None if each is None else entry.recorded_at + timedelta(seconds=each) for t, each in seconds.items()}
    with connect(settings) as connection:
        since = entry.advanced_at if entry.is_finished else datetime.now(UTC)
        compacted = outputs.compacted_at(settings, connection, entry.erasure, since)
        return Receipt(entry, kafka, compacted, outputs.unwritten(settings, connection, entry.erasure))
