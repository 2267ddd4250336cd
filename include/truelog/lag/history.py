"""The lag history in PostgreSQL: one row for each reader and poll, deleted after `lag_keep_seconds`.

The verdicts on a poll are stored with it (`truelog.lag.window`), so that a page reads only the newest poll. A new
version of a view starts a new history, because its positions belong to another table.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import LiteralString

from truelog.lag.unread import Partition
from truelog.lag.verdict import LagAssessment, LagVerdict, Sample
from truelog.storage.database import Connection

_SHARED = ("at", "batch_at")  # the same in all partitions of a poll, so each has its own column
_COLUMNS = "reader, version, extract(epoch FROM at)::float8, extract(epoch FROM batch_at)::float8, partitions"
_SINCE = """
    FROM truelog.lag_sample WHERE at >= to_timestamp(%(moment)s) AND at <= now() + interval '5 s'
    AND (%(reader)s::text IS NULL OR reader = %(reader)s) ORDER BY reader, at
"""


@dataclass(frozen=True)
class ReaderPoll:
    """The result of one poll for one reader, and the verdicts on it. All samples have the same time."""

    reader: str
    version: int
    at: float
    batch_at: float | None
    samples: Mapping[Partition, Sample] = field(default_factory=dict)
    assessments: Mapping[Partition, LagAssessment] = field(default_factory=dict)


def append(connection: Connection, readings: Iterable[ReaderPoll], seconds: float) -> None:
    """Store readings. Delete readings older than `seconds`, and readings in the future because a clock was set back."""
    with connection.cursor() as cursor:
        for each in readings:
            cursor.execute(
                "INSERT INTO truelog.lag_sample (reader, version, at, batch_at, partitions, verdicts) "
                "VALUES (%s, %s, to_timestamp(%s), to_timestamp(%s), %s, %s) ON CONFLICT DO NOTHING",
                (each.reader, each.version, each.at, each.batch_at, _samples_json(each), _verdicts_json(each)),
            )
        cursor.execute(
            "DELETE FROM truelog.lag_sample "
            "WHERE at < now() - make_interval(secs => %s) OR at > now() + interval '5 s'",
            (seconds,),
        )


def since(connection: Connection, moment: float, reader: str | None = None) -> dict[str, list[ReaderPoll]]:
    """The readings of each reader's last polled version from `moment` to now, newest last, without verdicts.

    reader: the only reader whose readings are wanted.
    """
    found: dict[str, list[ReaderPoll]] = {}
    for reading in _readings(connection, f"SELECT {_COLUMNS} {_SINCE}", moment, reader):
        before = found.setdefault(reading.reader, [])
        if before and before[-1].version != reading.version:
            before.clear()
        before.append(reading)
    return found


def newest(connection: Connection, moment: float) -> dict[str, ReaderPoll]:
    """The newest reading of each reader since `moment`, with its verdicts."""
    select = f"SELECT DISTINCT ON (reader) {_COLUMNS}, verdicts {_SINCE} DESC"
    return {reading.reader: reading for reading in _readings(connection, select, moment)}


def _samples_json(reading: ReaderPoll) -> str:
    rows = [
        {"topic": topic, "partition": partition} | {n: v for n, v in asdict(sample).items() if n not in _SHARED}
        for (topic, partition), sample in reading.samples.items()
    ]
    return json.dumps(rows, separators=(",", ":"))


def _verdicts_json(reading: ReaderPoll) -> str:
    """The verdicts, in the order of the samples."""
    rows = [asdict(reading.assessments[each]) for each in reading.samples if each in reading.assessments]
    return json.dumps(rows, separators=(",", ":"))


def _readings(
    connection: Connection, select: LiteralString, moment: float, reader: str | None = None
) -> Iterator[ReaderPoll]:
    rows = connection.execute(select, {"moment": moment, "reader": reader})
    for name, version, at, batch_at, partitions, *verdicts in rows:
        samples = {
            (each.pop("topic"), each.pop("partition")): Sample(at=at, batch_at=batch_at, **each) for each in partitions
        }
        found = (LagAssessment(LagVerdict(each.pop("verdict")), **each) for each in (verdicts and verdicts[0]) or ())
        yield ReaderPoll(name, version, at, batch_at, samples, dict(zip(samples, found, strict=False)))
