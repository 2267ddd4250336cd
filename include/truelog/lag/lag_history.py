"""The history of lag: what each poll saw, a row for each reader, kept in PostgreSQL for `lag_keep_seconds`.

A new version of a view begins its history anew: its positions are those of another table.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from truelog.lag.lag import Partition
from truelog.lag.lag_verdict import Sample
from truelog.storage.database import Connection

History = dict[Partition, list[Sample]]  # the newest last

# Of all partitions alike, so they have columns of their own.
_SHARED = ("at", "batch_at")


@dataclass(frozen=True)
class Reading:
    """What one poll saw of one reader; all its samples are of one moment."""

    reader: str
    version: int
    at: float
    batch_at: float | None
    samples: Mapping[Partition, Sample] = field(default_factory=dict)


def append(connection: Connection, readings: Iterable[Reading], seconds: float) -> None:
    """Add these, and forget what is older than so many seconds, or of a clock that was set back since."""
    with connection.cursor() as cursor:
        for each in readings:
            cursor.execute(
                "INSERT INTO truelog.lag_sample (reader, version, at, batch_at, partitions) "
                "VALUES (%s, %s, to_timestamp(%s), to_timestamp(%s), %s) ON CONFLICT DO NOTHING",
                (each.reader, each.version, each.at, each.batch_at, _text(each.samples)),
            )
        cursor.execute(
            "DELETE FROM truelog.lag_sample "
            "WHERE at < now() - make_interval(secs => %s) OR at > now() + interval '5 s'",
            (seconds,),
        )


def since(connection: Connection, moment: float) -> dict[str, list[Reading]]:
    """By reader, what was seen from then to now of its newest version; the newest last."""
    rows: Iterable[tuple[Any, ...]] = connection.execute(
        "SELECT reader, version, extract(epoch FROM at)::float8, extract(epoch FROM batch_at)::float8, partitions "
        "FROM truelog.lag_sample WHERE at >= to_timestamp(%s) AND at <= now() + interval '5 s' ORDER BY reader, at",
        (moment,),
    )
    found: dict[str, list[Reading]] = {}
    for reader, version, at, batch_at, partitions in rows:
        samples = {(each.pop("topic"), each.pop("partition")): _sample(each, at, batch_at) for each in partitions}
        before = [each for each in found.get(reader, []) if each.version == version]
        found[reader] = [*before, Reading(reader, version, at, batch_at, samples)]
    return found


def by_partition(readings: Iterable[Reading]) -> History:
    """The history of each partition that the newest reading still has."""
    found: History = {}
    newest: Mapping[Partition, Sample] = {}
    for reading in readings:
        newest = reading.samples
        for place, sample in reading.samples.items():
            found.setdefault(place, []).append(sample)
    return {place: found[place] for place in newest}


def _text(samples: Mapping[Partition, Sample]) -> str:
    rows = [
        {"topic": topic, "partition": partition} | {n: v for n, v in asdict(sample).items() if n not in _SHARED}
        for (topic, partition), sample in samples.items()
    ]
    return json.dumps(rows, separators=(",", ":"))


def _sample(values: dict[str, Any], at: float, batch_at: float | None) -> Sample:
    return Sample(at=at, batch_at=batch_at, **values)
