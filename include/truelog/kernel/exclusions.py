"""Exclusions: records that a view leaves out, because its transform fails on them.

The stream and every rebuild leave out the same records, so an exclusion must be right. It names the topic, the record,
and the reading under which the record was judged. A comparison proves it once for the code that it uses: it runs the
transform on the record alone. If the transform does not fail, the exclusion is refuted, and no rebuild uses it.

A view that excludes many records has lost its sense, although both sides agree. So there is a limit, which is judged
over the records that the view has merged lately: a batch alone may be too small to show it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark import __version__ as spark_version

from truelog.log.positions import Positions
from truelog.log.records import Coordinates
from truelog.storage.database import Connection
from truelog.support.errors import TooManyExcluded
from truelog.tables.compiled_view import CompiledView

_WINDOW = 10_000  # records
_MOST_SHARE = 0.01
_FEW = 10  # a few hostile records must not stop a view that has read little

# What a view has excluded and merged lately: of its last records, and in this and the last hour.
_LATELY = """
    SELECT count(*) FILTER (WHERE e.merged > t.records - %(window)s), least(t.records, %(window)s),
        count(*) FILTER (WHERE e.noticed_at >= t.hour - interval '1 hour'), t.hour_records + t.earlier_records,
        (array_agg(e.error ORDER BY e.noticed_at DESC))[1]
    FROM truelog.merge_tally t JOIN truelog.exclusion e USING (view, version)
    WHERE (t.view, t.version) = (%(view)s, %(version)s) GROUP BY t.view, t.version
"""
_OF_VIEW = (
    'SELECT topic, partition, "offset", topic_id, reading, proved_at FROM truelog.exclusion '
    "WHERE (view, version) = (%s, %s)"
)
_REFUTED = "AND refuted"
_OF_RECORD = 'WHERE (view, version, topic_id, partition, "offset", reading) = (%s, %s, %s, %s, %s, %s)'


@dataclass(frozen=True)
class Excluded:
    """A record on which a view's transform fails, and the error."""

    topic: str
    partition: int
    offset: int
    error: str

    @property
    def coordinates(self) -> Coordinates:
        return self.topic, self.partition, self.offset


@dataclass(frozen=True)
class Exclusions:
    """The exclusions of a view in these topics, which are judged under these readings; an absent reading is 0."""

    connection: Connection
    compiled: CompiledView
    topic_ids: Mapping[str, str]
    readings: Mapping[str, int]

    def add(self, excluded: Sequence[Excluded]) -> None:
        """Exclude records; excluding a record twice changes nothing."""
        rows = [(*self._record(each.coordinates), each.topic, each.error) for each in excluded]
        with self.connection.cursor() as cursor:
            cursor.executemany(
                'INSERT INTO truelog.exclusion (view, version, topic_id, partition, "offset", reading, topic, error, '
                "merged) SELECT v.*, coalesce((SELECT records FROM truelog.merge_tally t "
                "WHERE (t.view, t.version) = (v.view, v.version)), 0) "
                "FROM (VALUES (%s, %s::integer, %s, %s::integer, %s::bigint, %s::integer, %s, %s)) "
                'AS v (view, version, topic_id, partition, "offset", reading, topic, error) ON CONFLICT DO NOTHING',
                rows,
            )

    def below(self, positions: Positions) -> list[Coordinates]:
        """The coordinates of the records below `positions` that the view leaves out."""
        return self._select(positions, "AND NOT refuted", ())

    def unproved(self, positions: Positions, *, every: bool) -> list[Coordinates]:
        """Those below `positions` that were not proved under this code; with `every`, the proved ones too."""
        return self._select(positions, "AND NOT refuted AND (%s OR proof IS DISTINCT FROM %s)", (every, self._proof))

    def refuted(self, positions: Positions) -> list[Coordinates]:
        """The records below `positions` on which the transform does not fail, although they were excluded."""
        return self._select(positions, _REFUTED, ())

    def last_refuted(self, positions: Positions) -> datetime | None:
        """When the last exclusion below `positions` was refuted; None if none is refuted."""
        return max((at for _, at in self._rows(positions, _REFUTED, ()) if at is not None), default=None)

    def record_proof(self, checked: Sequence[Coordinates], refuted: Sequence[Coordinates]) -> None:
        """Record which of the checked exclusions are right."""
        rows = [(each in refuted, self._proof, *self._record(each)) for each in checked]
        with self.connection.cursor() as cursor:
            cursor.executemany(
                f"UPDATE truelog.exclusion SET refuted = %s, proof = %s, proved_at = now() {_OF_RECORD}",  # noqa: S608
                rows,
            )

    def drop(self, records: Sequence[Coordinates]) -> None:
        """Delete the exclusions of these records."""
        with self.connection.cursor() as cursor:
            cursor.executemany(f"DELETE FROM truelog.exclusion {_OF_RECORD}", map(self._record, records))  # noqa: S608

    def drop_earlier(self) -> None:
        """Delete the exclusions under earlier readings of these topics, whose records were read again."""
        with self.connection.cursor() as cursor:
            cursor.executemany(
                "DELETE FROM truelog.exclusion WHERE (view, version, topic_id) = (%s, %s, %s) AND reading < %s",
                [(*self._view, topic_id, self.readings.get(topic, 0)) for topic, topic_id in self.topic_ids.items()],
            )

    def _select(self, positions: Positions, condition: str, values: Sequence[object]) -> list[Coordinates]:
        return [coordinates for coordinates, _ in self._rows(positions, condition, values)]

    def _rows(
        self, positions: Positions, condition: str, values: Sequence[object]
    ) -> list[tuple[Coordinates, datetime | None]]:
        """The coordinates below `positions`, each with the time of its proof."""
        rows: Sequence[Any] = self.connection.execute(f"{_OF_VIEW} {condition}", (*self._view, *values)).fetchall()
        return [
            ((topic, partition, offset), proved_at)
            for topic, partition, offset, topic_id, reading, proved_at in rows
            if topic_id == self.topic_ids.get(topic) and reading == self.readings.get(topic, 0)
            if offset < positions.at(topic, partition)
        ]

    def _record(self, coordinates: Coordinates) -> tuple[object, ...]:
        topic, partition, offset = coordinates
        return *self._view, self.topic_ids[topic], partition, offset, self.readings.get(topic, 0)

    @property
    def _view(self) -> tuple[str, int]:
        return self.compiled.name, self.compiled.view.version

    @property
    def _proof(self) -> str:
        """What decides whether the transform fails on a record: the view's code, and Spark."""
        return f"{self.compiled.fingerprint} {spark_version}"


def prove(
    exclusions: Exclusions,
    positions: Positions,
    find_unfounded: Callable[[list[Coordinates]], list[Coordinates]],
    *,
    every: bool,
) -> None:
    """Check the exclusions below `positions` that are not proved yet, and record the result.

    `find_unfounded` returns those of these records on which the transform does not fail.
    """
    checked = exclusions.unproved(positions, every=every)
    refuted = find_unfounded(checked) if checked else []
    exclusions.record_proof(checked, refuted)


def require_few(connection: Connection, compiled: CompiledView, batch_records: int) -> None:
    """Require that the view has not excluded too many records lately.

    It may exclude one percent of its last 10,000 records, or of the batch if the batch is larger, and one percent of
    the records of this and the last hour. Ten records are always allowed.

    Raises:
        TooManyExcluded: the transform is broken, or a producer sends other values than before.
    """
    values = {"view": compiled.name, "version": compiled.view.version, "window": max(_WINDOW, batch_records)}
    found = connection.execute(_LATELY, values).fetchone()
    if found is None:
        return
    excluded, records, hour_excluded, hour_records, error = found
    for number, of, what in (
        (excluded, records, f"the last {records:,} records"),
        (hour_excluded, hour_records, f"{hour_records:,} records of this and the last hour"),
    ):
        if number > max(_FEW, _MOST_SHARE * of):
            raise TooManyExcluded(
                f"{compiled.name} fails on {number:,} of {what}, so it stops instead of leaving them out. Mend the "
                f"transform under the next version, or the producer. The last error: {error}"
            )
