"""The receipt of an erasure: what is gone, and by when the rest is gone.

It follows from the ledger and from the settings of the topics, so it can be made again at any time. It names no person.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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
    "PostgreSQL's files: free space of its pages, and its WAL, until PostgreSQL has written over it.",
    "Files of an archive process that crashed before its commit, and partials of a recompute that was running: "
    "until upkeep deletes them, after three days. Nothing reads them.",
    "Output topics: rows that the view has changed since, and the removals of vanished rows with their keys, until the "
    "broker compacts the topic.",
    "Copies that readers have made: exports, consumers of topics, subscribers, and pages of Airflow.",
    "Logs of processes, and metadata of Airflow: until their retention.",
)


@dataclass(frozen=True)
class Receipt:
    """An erasure as of now. `kafka` has for each topic when its last covered record is gone; None is never.

    unwritten: the output topics that no view writes now.
    """

    entry: Entry
    kafka: Mapping[str, datetime | None]
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
        unwritten = (
            f"Kafka's topic {topic}, an output that no view writes now: for ever. Delete the topic."
            for topic in self.unwritten
        )
        return (*kept, *unwritten, *_NOT_REACHED)

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
            "unwritten_outputs": list(self.unwritten),
            "rest": list(self.rest),
        }


def receipt_of(settings: Settings, entry: Entry) -> Receipt:
    """The receipt of an erasure. A topic without covered records is left out."""
    seconds = topics.longest_seconds(topics.client(settings), entry.records)
    kafka = {t: None if each is None else entry.recorded_at + timedelta(seconds=each) for t, each in seconds.items()}
    with connect(settings) as connection:
        return Receipt(entry, kafka, outputs.unwritten(settings, connection))
