"""Finds out why rows differ. A cause is reported only if it is proved, or if everything else was searched.

1. Check the archive's files. A missing file, or a file with fewer records than were committed, explains any difference.
2. Read from the archive, by offset, what each record below the positions adds to the differing keys.
3. Wrong partial: all records add up to the streamed rows, so only the rebuild from partials is wrong.
4. Wrong exclusion: without records whose exclusion was refuted, the records add up to the streamed rows.
5. Wrong clock: the rows expire by one clock and not by the other, and otherwise the records add up to them.
6. Wrong value by hand: no event has the row's key, or a sum is negative or more than twice what its events add.
7. Lost batch or duplicate, for the remaining rows: if some ranges of records (`offset_search`) are left out or counted
   twice, the records add up to the streamed rows in every column. First all rows together, then the rows that lack
   something, then the rows that have too much.
8. Wrong value by hand, for the rows that no such range explains.

The investigation of a view has a time limit. A row that it does not reach is unknown, and so is a row of a view without
a measure by which ranges can be searched. For a view with `dedupe`, only steps 1 to 5 are a proof.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, reduce
from threading import Event
from typing import Any

from psycopg import sql
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from truelog.archive import audit_evidence
from truelog.archive.reader import Wanted
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import clock
from truelog.log.positions import Positions, Range
from truelog.reconcile import row_diff
from truelog.reconcile.offset_search import (
    Cause,
    Contribution,
    ContributionRun,
    Explanation,
    exceeds_recount,
    search_ranges,
)
from truelog.spark.time_limit import time_limit
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables import kinds, table_hash
from truelog.tables.row_filter import RowFilter
from truelog.tables.table import Table
from truelog.tables.tracing.contributions import COORDINATES, RECORD, by_record, totals_by_record

log = logging.getLogger("truelog.root_cause")

_MAX_ROWS = 10_000  # if more rows than this differ, they are not investigated
_MAX_FAULTS = 3  # archive faults listed in an explanation
_MAX_RECORDS = 100_000  # maximum number of records to search for ranges that explain the rows
_KEY = "_key"  # hash of the row's key

ExplanationByKey = dict[str, Explanation]  # by the key's hash


def find_root_causes(rebuilder: Rebuilder, table: Table, positions: Positions, unequal: int) -> tuple[Explanation, ...]:
    """Explain the `unequal` rows in a table's diff table, and store each row's cause in that table."""
    faults = explain_failure(rebuilder.context.settings, table.view.topics)  # 1
    if unequal > _MAX_ROWS:
        unknown = Explanation(Cause.UNKNOWN, 0, f"not searched: more than {_MAX_ROWS:,} rows differ")
        return tuple(replace(each, rows=unequal) for each in faults or (unknown,))
    rows = _differing(rebuilder.connection, table)
    if faults:
        causes = _all(rows, Cause.FILE, faults[0].about)
    elif kinds.kind_of(table).is_chained():
        causes = _all(rows, Cause.UNKNOWN, "not searched: a row follows from earlier rows")
    elif table.follows_from:
        causes = _of_derived(rebuilder.connection, rows, table.follows_from)
    else:
        causes = _investigate(rebuilder, table, positions, rows)
    row_diff.save_causes(rebuilder.connection, table, {key: f.cause.value for key, f in causes.items()})
    counts = Counter((each.cause, each.about) for each in causes.values())
    return tuple(Explanation(cause, n, about) for (cause, about), n in counts.most_common())


def _of_derived(connection: Connection, rows: Mapping[str, "_Row"], before: Sequence[Table]) -> ExplanationByKey:
    """Explain rows that follow from other tables by these tables, which were cleared of earlier differences before."""
    if different := [each.side for each in before if row_diff.has_differences(connection, each)]:
        return _all(rows, Cause.UNKNOWN, f"they follow from {', '.join(different)}, whose rows differ too")
    names = ", ".join(each.side for each in before)
    return _all(rows, Cause.HAND, f"the rows of {names} are equal, but these rows do not follow from them")


def _investigate(
    rebuilder: Rebuilder, table: Table, positions: Positions, rows: Mapping[str, "_Row"]
) -> ExplanationByKey:
    """Explain these rows. What was found before an error or the time limit stays."""
    limit = rebuilder.context.settings.cause_seconds
    with time_limit(rebuilder.context.spark, limit) as time_is_up:
        investigation = _Investigation(rebuilder, table, positions, rows, time_is_up)
        try:
            return investigation.explain()
        except Exception as error:  # the DIFFERENT verdict does not depend on the explanation
            why = f"not searched further: the investigation took more than {limit:g} s"
            if isinstance(error, TooManyRecordsError):
                why = f"not searched further: {error}"
            elif not time_is_up.is_set():
                log.exception("the investigation of differing rows in %s failed", rebuilder.compiled.name)
                why = f"the investigation failed: {type(error).__name__}"
            return _all(rows, Cause.UNKNOWN, why) | investigation.found


def explain_failure(settings: Settings, topics: Sequence[str]) -> tuple[Explanation, ...]:
    """Explain why a view could not be rebuilt, if the archive's files are incomplete."""
    try:
        faults = audit_evidence.incomplete_ranges(settings, topics)
    except Exception:  # the error that made the rebuild fail may make this check fail too
        log.exception("the check of the archive files for %s failed", ", ".join(topics))
        return ()
    more = f" and {len(faults) - _MAX_FAULTS} more" if len(faults) > _MAX_FAULTS else ""
    return (Explanation(Cause.FILE, 0, "; ".join(faults[:_MAX_FAULTS]) + more),) if faults else ()


class TooManyRecordsError(Exception):
    """The records that may explain some rows are too many to search."""


class TimeIsUpError(Exception):
    """The time for the investigation is up. Spark's jobs are cancelled, but short jobs may end before that."""


@dataclass(frozen=True)
class _Row:
    streamed: Mapping[str, Any] | None
    rebuilt: Mapping[str, Any] | None


def _differing(connection: Connection, table: Table) -> dict[str, _Row]:
    query = sql.SQL("SELECT {}, _streamed, _rebuilt FROM {}").format(
        table_hash.key_sql(table), row_diff.diff_table(table)
    )
    rows: Sequence[tuple[Any, ...]] = connection.execute(query).fetchall()
    return {key: _Row(streamed, rebuilt) for key, streamed, rebuilt in rows}


def _all(keys: Collection[str], cause: Cause, about: str) -> ExplanationByKey:
    return dict.fromkeys(keys, Explanation(cause, len(keys), about))


@dataclass(frozen=True)
class _Investigation:
    """The differing rows of one table, and the records that may explain them."""

    rebuilder: Rebuilder
    table: Table
    positions: Positions
    rows: Mapping[str, _Row]
    time_is_up: Event
    found: ExplanationByKey = field(default_factory=dict)  # filled step by step

    def explain(self) -> ExplanationByKey:
        everything = self._transformed(Wanted.between(Positions(), self.positions))
        added = totals_by_record(self.table, everything, self._with_keys(self.rows)).persist()  # 2
        try:
            self._by_records(added)
        finally:
            added.unpersist()
        return self.found

    def _by_records(self, added: DataFrame) -> None:
        if self._equals_streamed(added, self.rows, self._limit):  # 3
            about = "the records add up to the streamed rows, so a partial is wrong"
            self.found.update(_all(self.rows, Cause.PARTIAL, about))
            return
        self._by_exclusions(added)  # 4
        self._by_clock(added)  # 5
        if kinds.lookback_seconds(self.table) is not None:
            why = "not searched: without an event, its copies would count, so that a lost batch could explain any row"
            self.found.update(_all(self._unexplained(), Cause.UNKNOWN, why))
            return
        sums = self._nonnegative_sums(added)
        self.found.update(self._by_hand(added, sums) | self.found)  # 6
        if not sums:
            why = "not searched: the view has no sum of whole, nonnegative numbers"
            self.found.update(_all(self._unexplained(), Cause.UNKNOWN, why))
            return
        for cause in (Cause.LOST, Cause.DUPLICATE):  # 7
            self._by_ranges(added, self._unexplained(), cause, sums)
        for cause in (Cause.LOST, Cause.DUPLICATE):
            some = {key for key in self._unexplained() if self._is_possible({key}, cause, sums)}
            if some != self._unexplained():
                self._by_ranges(added, some, cause, sums)
        why = "not searched: some of the key's events add nothing to any sum"
        self.found.update(_all(self._unexplained() & self._with_empty_events(added, sums), Cause.UNKNOWN, why))
        why = "no lost or duplicated range of records explains these rows; the archive's files are complete"
        self.found.update(_all(self._unexplained(), Cause.HAND, why))  # 8

    def _by_exclusions(self, added: DataFrame) -> None:
        """Explain the rows that lack just the records whose exclusion was refuted."""
        refuted = self.rebuilder.exclusions(self.positions).refuted(self.positions)
        ranges = [Range(t, p, offset, offset + 1) for t, p, offset in refuted if t in self.table.view.reads]
        if not ranges:
            return
        inside = reduce(Column.__or__, map(self._lies_in, ranges))
        keys = {row[0] for row in added.where(inside).select(self._key(added)).distinct().collect()}
        if self._equals_streamed(self._simulate(self._with_keys(keys)(added), ranges, Cause.LOST), keys, self._limit):
            about = f"the stream left out {_evidence(ranges)}, but the transform does not fail on them"
            self.found.update(_all(keys, Cause.EXCLUSION, about))

    def _by_clock(self, added: DataFrame) -> None:
        """Explain the rows that the stream has dropped too early, or has not dropped yet."""
        right, age = self._limit, self.table.age_column
        topic_id = self.positions.ids.get(clock.TOPIC)
        if age is None or right is None or topic_id is None:
            return
        wrong = clock.cutoff_at(self.table, clock.last_wrong(self.rebuilder.connection, topic_id))
        early = added.where((F.col(age) >= F.lit(right)) & (F.col(age) < F.lit(wrong or right)))
        about = "the rows had expired by a clock that the archive's ticks do not give"
        self._expired(early, wrong or right, about)
        self._expired(added.where(F.col(age) < F.lit(right)), None, "the rows have expired by the archive's ticks")

    def _expired(self, added: DataFrame, limit: datetime | None, about: str) -> None:
        """Explain these records' rows, if the records add up to the streamed rows when the limit is this one."""
        keys = {row[0] for row in added.select(self._key(added)).distinct().collect()} & self._unexplained()
        if not keys:
            return
        if self._equals_streamed(added, keys, limit):
            self.found.update(_all(keys, Cause.CLOCK, about))
        else:
            why = f"not searched: {about}, so any of their events may be missing"
            self.found.update(_all(keys, Cause.UNKNOWN, why))

    @cached_property
    def _limit(self) -> datetime | None:
        return self.rebuilder.cutoff(self.table, self.positions)

    def _unexplained(self) -> set[str]:
        """The rows that still need an explanation, before each further step."""
        if self.time_is_up.is_set():
            raise TimeIsUpError
        return self.rows.keys() - self.found.keys()

    def _is_possible(self, keys: Collection[str], cause: Cause, sums: Sequence[str]) -> bool:
        """Whether no sum of these rows speaks against the cause, and one speaks for it."""
        sign = -1 if cause is Cause.LOST else 1
        surplus = [sign * _surplus(self.rows[key], measure) for key in keys for measure in sums]
        return min(surplus, default=0) >= 0 < max(surplus, default=0)

    def _by_hand(self, added: DataFrame, sums: Sequence[str]) -> ExplanationByKey:
        keys_of_events = {row[0] for row in added.select(self._key(added)).distinct().collect()}
        without_event = self.rows.keys() - keys_of_events
        excessive = {k for k in keys_of_events if any(_is_excessive(self.rows[k], measure) for measure in sums)}
        reason = "a sum is negative, or more than twice what the key's events add"
        return _all(without_event, Cause.HAND, "no event has the key") | _all(excessive, Cause.HAND, reason)

    def _with_empty_events(self, added: DataFrame, sums: Sequence[str]) -> set[str]:
        """The keys with an event that adds nothing to any sum, so that its loss would leave the sums as they are."""
        nothing = reduce(Column.__and__, (F.coalesce(F.col(name), F.lit(0)) == 0 for name in sums))
        return {row[0] for row in added.where(nothing).select(self._key(added)).distinct().collect()}

    def _nonnegative_sums(self, added: DataFrame) -> list[str]:
        """The measures that sum only whole, nonnegative numbers."""
        table = self.table
        sums = [name for name, measure in table.view.measures.items() if measure.is_additive]
        whole = [name for name in sums if table.measure_columns[name] in ("bigint", "numeric(38,0)")]
        if not whole:
            return []
        [least] = added.agg(*(F.min(name).alias(name) for name in whole)).collect()
        return [name for name in whole if (least[name] or 0) >= 0]

    @cached_property
    def by_record(self) -> Table:
        return by_record(self.table)

    def _transformed(self, wanted: Wanted) -> DataFrame:
        return self.rebuilder.transformed_by_record(self.table, wanted, self.positions)

    def _key(self, frame: DataFrame) -> Column:
        return table_hash.key(self.table, frame).alias(_KEY)

    def _with_keys(self, keys: Collection[str]) -> RowFilter:
        return table_hash.rows_with_keys(self.rebuilder.context.spark, self.table, keys)

    def _equals_streamed(self, added: DataFrame, keys: Collection[str], limit: datetime | None) -> bool:
        """Whether the records add up to the streamed rows of these keys, in every column.

        Older rows than `limit` do not count.
        """
        if not keys:
            return False
        table, connection = self.table, self.rebuilder.connection
        states = table.plus(added.drop(*RECORD))
        kept = clock.rows_since(table, states, limit)
        streamed = sql.SQL("(SELECT * FROM {} WHERE {} IN ({})) AS differing").format(
            row_diff.streamed_table(table), table_hash.key_sql(table), sql.SQL(", ").join(map(sql.Literal, keys))
        )
        hashes = table_hash.hash_table(connection, table, streamed)
        return not table_hash.unequal_buckets(hashes, table_hash.hash_frame(table, table.stored(kept)))

    def _by_ranges(self, added: DataFrame, keys: Collection[str], cause: Cause, sums: Sequence[str]) -> None:
        """Explain all these rows by one loss or one duplicate, or explain none of them."""
        if not self._is_possible(keys, cause, sums):
            return
        added, sign = self._with_keys(keys)(added), -1 if cause is Cause.LOST else 1
        for measure, runs in self._runs(added, keys, sums).items():
            wanted = {key: sign * _surplus(self.rows[key], measure) for key in keys}
            for from_right in (False, True):
                ranges = search_ranges(runs, wanted, from_right=from_right)
                if ranges and self._equals_streamed(self._simulate(added, ranges, cause), keys, self._limit):
                    self.found.update(_all(keys, cause, _evidence(ranges)))
                    return

    def _simulate(self, added: DataFrame, ranges: Sequence[Range], cause: Cause) -> DataFrame:
        """What the records would add up to if these ranges were lost or counted twice."""
        inside = reduce(Column.__or__, (self._lies_in(each) for each in ranges))
        return added.where(~inside) if cause is Cause.LOST else added.unionByName(added.where(inside))

    def _lies_in(self, span: Range) -> Column:
        topic, partition, offset = map(F.col, COORDINATES)
        number = self.table.view.reads.index(span.topic)
        return (topic == number) & (partition == span.partition) & offset.between(span.start, span.end - 1)

    def _runs(self, added: DataFrame, keys: Collection[str], sums: Sequence[str]) -> dict[str, list[ContributionRun]]:
        """For each measure, the longest run in each partition, with the amounts that its records add.

        Raises:
            TooManyRecordsError: the runs are too long to search.
        """
        longest = self._longest_runs(keys, self._spans(added))
        if not longest:
            return {}
        inside = reduce(Column.__or__, map(self._lies_in, longest))
        stored = self.by_record.stored(added.where(inside))
        columns = stored.select(*COORDINATES, self._key(stored), *sums)
        rows = columns.orderBy(*COORDINATES).limit(_MAX_RECORDS + 1).collect()
        if len(rows) > _MAX_RECORDS:
            raise TooManyRecordsError(f"more than {_MAX_RECORDS:,} consecutive records add to the rows")
        return {measure: _as_runs(self.table, rows, measure) for measure in sums}

    def _spans(self, added: DataFrame) -> list[Range]:
        """In each partition, the range from the first to the last of these records."""
        first, last = F.min("_offset").alias("first"), F.max("_offset").alias("last")
        spans = added.groupBy(*COORDINATES[:2]).agg(first, last).collect()
        return [Range(self.table.view.reads[r["_topic"]], r["_partition"], r["first"], r["last"] + 1) for r in spans]

    def _longest_runs(self, keys: Collection[str], spans: Sequence[Range]) -> list[Range]:
        """The longest series of records in each of these ranges that only add to these keys.

        The archive reads only the files that have records of the ranges.
        """
        prepared = self.by_record.prepared(self._transformed(Wanted(spans, self.positions.ids)))
        among = self._with_keys(keys)(prepared.select(*COORDINATES, *self.table.view.key)).select(*COORDINATES)
        outside = prepared.select(*COORDINATES, F.lit(0).alias("_in"))
        flagged = outside.unionByName(among.select("*", F.lit(1).alias("_in")))
        records = flagged.groupBy(*COORDINATES).agg((2 * F.sum("_in") == F.count("_in")).alias("_whole"))
        before = Window.partitionBy(*COORDINATES[:2]).orderBy(COORDINATES[2])
        breaks = F.sum(F.when(F.col("_whole"), 0).otherwise(1)).over(before).alias("_run")
        first, last = F.min("_offset").alias("first"), F.max("_offset").alias("last")
        runs = records.select("*", breaks).where("_whole").groupBy(*COORDINATES[:2], "_run")
        sized = runs.agg(F.count("_offset").alias("n"), first, last)
        longest = sized.groupBy(*COORDINATES[:2]).agg(F.max(F.struct("n", "first", "last")).alias("run")).collect()
        reads = self.table.view.reads
        return [Range(reads[r["_topic"]], r["_partition"], r["run"]["first"], r["run"]["last"] + 1) for r in longest]


def _surplus(row: _Row, measure: str) -> int:
    """The difference between the streamed value and the rebuilt value."""
    streamed, rebuilt = (int((side or {}).get(measure) or 0) for side in (row.streamed, row.rebuilt))
    return streamed - rebuilt


def _is_excessive(row: _Row, measure: str) -> bool:
    """Whether both sides have the row and a duplicate batch cannot explain the streamed sum."""
    if row.streamed is None or row.rebuilt is None:
        return False
    return exceeds_recount(row.streamed[measure], row.rebuilt[measure])


def _as_runs(table: Table, rows: Sequence[Any], measure: str) -> list[ContributionRun]:
    """Group rows by partition and record. A record with several keys has several rows."""
    records: dict[tuple[int, int], dict[int, dict[str, int]]] = defaultdict(dict)
    for row in rows:
        amounts = records[row["_topic"], row["_partition"]].setdefault(row["_offset"], {})
        amounts[row[_KEY]] = int(row[measure] or 0)
    return [
        ContributionRun(
            table.view.reads[topic], partition, [Contribution(offset, amounts) for offset, amounts in each.items()]
        )
        for (topic, partition), each in records.items()
    ]


def _evidence(ranges: Sequence[Range]) -> str:
    named = (f"{each.topic} {each.partition}:[{each.start}, {each.end})" for each in ranges)
    return f"exactly the records {', '.join(sorted(named))}"
