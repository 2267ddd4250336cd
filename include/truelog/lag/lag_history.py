"""The lag history in PostgreSQL: one row for each reader and poll, deleted after `lag_keep_seconds`.

A new version of a view starts a new history, because its positions belong to another table.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from truelog.lag.lag import Partition
from truelog.lag.lag_verdict import Sample
from truelog.storage.database import Connection

History = dict[Partition, list[Sample]]  # newest last

_SHARED = ("at", "batch_at")  # the same in all partitions of a poll, so each has its own column


@dataclass(frozen=True)
class ReaderPoll:
    """The result of one poll for one reader. All samples have the same time."""

    reader: str
    version: int
    at: float
    batch_at: float | None
    samples: Mapping[Partition, Sample] = field(default_factory=dict)


def append(connection: Connection, readings: Iterable[ReaderPoll], seconds: float) -> None:
    """Store readings. Delete readings older than `seconds`, and readings in the future because a clock was set back."""
    with connection.cursor() as cursor:
        for each in readings:
            cursor.execute(
                "INSERT INTO truelog.lag_sample (reader, version, at, batch_at, partitions) "
                "VALUES (%s, %s, to_timestamp(%s), to_timestamp(%s), %s) ON CONFLICT DO NOTHING",
                (each.reader, each.version, each.at, each.batch_at, _as_json(each.samples)),
            )
        cursor.execute(
            "DELETE FROM truelog.lag_sample "
            "WHERE at < now() - make_interval(secs => %s) OR at > now() + interval '5 s'",
            (seconds,),
        )


def since(connection: Connection, moment: float) -> dict[str, list[ReaderPoll]]:
    """The readings of each reader's last polled version from `moment` to now, newest last."""
    rows: Iterable[tuple[Any, ...]] = connection.execute(
        "SELECT reader, version, extract(epoch FROM at)::float8, extract(epoch FROM batch_at)::float8, partitions "
        "FROM truelog.lag_sample WHERE at >= to_timestamp(%s) AND at <= now() + interval '5 s' ORDER BY reader, at",
        (moment,),
    )
    found: dict[str, list[ReaderPoll]] = {}
    for reader, version, at, batch_at, partitions in rows:
        samples = {(each.pop("topic"), each.pop("partition")): _sample(each, at, batch_at) for each in partitions}
        before = [each for each in found.get(reader, []) if each.version == version]
        found[reader] = [*before, ReaderPoll(reader, version, at, batch_at, samples)]
    return found


def by_partition(readings: Iterable[ReaderPoll]) -> History:
    """The history of each partition in the newest reading."""
    found: History = {}
    newest: Mapping[Partition, Sample] = {}
    for reading in readings:
        newest = reading.samples
        for partition, sample in reading.samples.items():
            found.setdefault(partition, []).append(sample)
    return {partition: found[partition] for partition in newest}


def _as_json(samples: Mapping[Partition, Sample]) -> str:
    rows = [
        {"topic": topic, "partition": partition} | {n: v for n, v in asdict(sample).items() if n not in _SHARED}
        for (topic, partition), sample in samples.items()
    ]
    return json.dumps(rows, separators=(",", ":"))


def _sample(values: dict[str, Any], at: float, batch_at: float | None) -> Sample:
    return Sample(at=at, batch_at=batch_at, **values)
