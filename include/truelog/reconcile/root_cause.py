"""Inquiry: evidence for why rows differ. Each cause is named only where it was proved; else it is unknown.

1. the files of the archive: one that is gone, or fewer records than were committed, explains any difference
2. what each record below the positions adds to the keys that differ, read from the archive by offset
3. a partial is wrong: all that the records add comes to the streamed rows, and only the rebuild says otherwise
4. by hand: a row under whose key no event falls, or one with a sum that is more than its events counted twice
5. lost or counted twice, all that is left: ranges of records (`cause`) without which, or with which twice, the
   records come to exactly the streamed rows, in every column
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from typing import Any

from psycopg import sql
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType

from truelog.archive import audit_evidence
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import clock
from truelog.log.positions import Positions, Range
from truelog.reconcile import row_diff, table_hash
from truelog.reconcile.offset_search import (
    Cause,
    Contribution,
    ContributionRun,
    Explanation,
    exceeds_recount,
    search_ranges,
)
from truelog.reconcile.provenance_frame import ProvenanceFrame
from truelog.support.settings import Settings
from truelog.views.compiled_view import Compiled, RowFilter, extend_view
from truelog.views.measures import Sum

log = logging.getLogger("truelog.inquiry")

_ROWS = 10_000  # that differ; of more nobody asks for each
_FAULTS = 3  # that are named
_RECORDS = 100_000  # in the ranges that may explain them
_PLACE = ("_topic", "_partition", "_offset")  # the topic by its number among those that the view reads
_KEY = "_key"  # hash of the row's key

ExplanationByKey = dict[str, Explanation]  # by the hash of the key


def find_root_causes(rebuilder: Rebuilder, positions: Positions, unequal: int) -> tuple[Explanation, ...]:
    """Why the rows of the view's table of differences differ, so many of them; kept there with each row."""
    faults = explain_failure(rebuilder.context.settings, rebuilder.compiled.view.topics)  # 1
    if unequal > _ROWS:
        unknown = Explanation(Cause.UNKNOWN, 0, f"more than {_ROWS:,} rows differ")
        return tuple(replace(each, rows=unequal) for each in faults or (unknown,))
    rows = _differing(rebuilder)
    try:
        inquiry = _Inquiry(rebuilder, positions, rows)
        causes = _all(rows, Cause.FILE, faults[0].about) if faults else inquiry.causes()
    except Exception as error:  # whatever it may be: that rows differ is known, and stands
        log.exception("why rows of %s differ", rebuilder.compiled.name)
        causes = _all(rows, Cause.UNKNOWN, f"the inquiry failed: {type(error).__name__}")
    row_diff.explain_rows(rebuilder.connection, rebuilder.compiled, {key: f.cause.value for key, f in causes.items()})
    found = Counter((each.cause, each.about) for each in causes.values())
    return tuple(Explanation(cause, n, about) for (cause, about), n in found.most_common())


def explain_failure(settings: Settings, topics: Sequence[str]) -> tuple[Explanation, ...]:
    """Why a view could not even be rebuilt, where the files of the archive say it."""
    try:
        faults = audit_evidence.incomplete_ranges(settings, topics)
    except Exception:  # what failed the rebuild may fail this too
        log.exception("the files of %s", ", ".join(topics))
        return ()
    more = f" and {len(faults) - _FAULTS} more" if len(faults) > _FAULTS else ""
    return (Explanation(Cause.FILE, 0, "; ".join(faults[:_FAULTS]) + more),) if faults else ()


@dataclass(frozen=True)
class _Row:
    streamed: Mapping[str, Any] | None
    rebuilt: Mapping[str, Any] | None


def _differing(rebuilder: Rebuilder) -> dict[str, _Row]:
    query = sql.SQL("SELECT {}, streamed, rebuilt FROM {}").format(
        table_hash.key_sql(rebuilder.compiled), row_diff.diff_table(rebuilder.compiled)
    )
    found: Sequence[tuple[Any, ...]] = rebuilder.connection.execute(query).fetchall()
    return {key: _Row(streamed, rebuilt) for key, streamed, rebuilt in found}


def _all(keys: Collection[str], cause: Cause, about: str) -> ExplanationByKey:
    return dict.fromkeys(keys, Explanation(cause, len(keys), about))


@dataclass(frozen=True)
class _Inquiry:
    rebuilder: Rebuilder
    positions: Positions
    rows: Mapping[str, _Row]

    @property
    def compiled(self) -> Compiled:
        return self.rebuilder.compiled

    def causes(self) -> ExplanationByKey:
        added = self.placed.totals(self.selected, self._among(self.rows)).persist()  # 2
        try:
            return self._by_records(added)
        finally:
            added.unpersist()

    def _by_records(self, added: DataFrame) -> ExplanationByKey:
        if self._comes_to(added, self.rows):  # 3
            return _all(self.rows, Cause.PARTIAL, "what the records add comes to the streamed rows: a partial is wrong")
        counted = self._counted(added)
        causes = self._by_hand(added, counted)  # 4
        left = self.rows.keys() - causes.keys()
        why = "no range of records, lost or counted twice, comes to these rows; the files of the archive are whole"
        return causes | (self._by_ranges(added, left, counted) or _all(left, Cause.UNKNOWN, why))  # 5

    def _by_hand(self, added: DataFrame, counted: Sequence[str]) -> ExplanationByKey:
        having = {row[0] for row in added.select(self._key(added)).distinct().collect()}
        nobodys = self.rows.keys() - having
        beyond = {k for k in having if any(_is_beyond(self.rows[k], measure) for measure in counted)}
        too_much = "a sum is more than the events under the key come to, each counted twice"
        return _all(nobodys, Cause.HAND, "no event falls under the key") | _all(beyond, Cause.HAND, too_much)

    def _counted(self, added: DataFrame) -> list[str]:
        """The measures that add up whole numbers, none of them negative."""
        compiled = self.compiled
        sums = [name for name, measure in compiled.view.measures.items() if isinstance(measure, Sum)]
        whole = [name for name in sums if compiled.measure_columns[name] in ("bigint", "numeric(38,0)")]
        if not whole:
            return []
        [least] = added.agg(*(F.min(name).alias(name) for name in whole)).collect()
        return [name for name in whole if (least[name] or 0) >= 0]

    @cached_property
    def placed(self) -> Compiled:
        """The view with the record as part of its key."""
        kinds = list(zip(_PLACE, (IntegerType(), IntegerType(), LongType()), strict=True))
        return reduce(lambda compiled, column: extend_view(compiled, *column), reversed(kinds), self.compiled)

    @cached_property
    def selected(self) -> DataFrame:
        """What the transform selects from all records, beside the record."""
        events = self.rebuilder.countable_events(Positions(), self.positions)
        frames: list[Any] = []
        for number, topic in enumerate(self.compiled.view.reads):
            place = (F.lit(number), F.col("partition"), F.col("offset"))
            frames.append(ProvenanceFrame(events[topic].withColumns(dict(zip(_PLACE, place, strict=True))), _PLACE))
        carrying: Any = self.compiled.view.transform(*frames)
        selected: DataFrame = carrying.frame
        return selected

    def _key(self, frame: DataFrame) -> Column:
        return table_hash.key(self.compiled, frame).alias(_KEY)

    def _among(self, keys: Collection[str]) -> RowFilter:
        wanted = F.broadcast(self.rebuilder.context.spark.createDataFrame([(key,) for key in keys], f"{_KEY} string"))
        return lambda frame: frame.join(wanted, self._key(frame) == wanted[_KEY], "left_semi")

    def _comes_to(self, added: DataFrame, keys: Collection[str]) -> bool:
        """Whether what was added comes to the streamed rows of these keys, in every column."""
        if not keys:
            return False
        compiled, connection = self.compiled, self.rebuilder.connection
        states = compiled.plus(added.drop(*_PLACE))
        kept = clock.without_expired(connection, compiled, states, self.positions)
        streamed = sql.SQL("(SELECT * FROM {} WHERE {} IN ({})) AS differing").format(
            row_diff.streamed_table(compiled), table_hash.key_sql(compiled), sql.SQL(", ").join(map(sql.Literal, keys))
        )
        told = table_hash.hash_table(connection, compiled, streamed)
        return not table_hash.unequal_buckets(told, table_hash.hash_frame(compiled, compiled.stored(kept)))

    def _by_ranges(self, added: DataFrame, keys: Collection[str], counted: Sequence[str]) -> ExplanationByKey:
        """All of these rows by one cause, or none of them."""
        if not keys or not counted:
            return {}
        added = self._among(keys)(added)
        for measure, each in self._runs(added, keys, counted).items():
            surplus = {key: _surplus(self.rows[key], measure) for key in keys}
            for cause, from_right in product((Cause.LOST, Cause.DUPLICATE), (False, True)):
                sign = -1 if cause is Cause.LOST else 1
                found = search_ranges(each, {k: sign * n for k, n in surplus.items()}, from_right=from_right)
                if found and self._comes_to(self._as_if(added, found, cause), keys):
                    return _all(keys, cause, _named(found))
        return {}

    def _as_if(self, added: DataFrame, found: Sequence[Range], cause: Cause) -> DataFrame:
        inside = reduce(Column.__or__, (self._lies_in(each) for each in found))
        return added.where(~inside) if cause is Cause.LOST else added.unionByName(added.where(inside))

    def _lies_in(self, found: Range) -> Column:
        topic, partition, offset = map(F.col, _PLACE)
        number = self.compiled.view.reads.index(found.topic)
        return (topic == number) & (partition == found.partition) & offset.between(found.start, found.end - 1)

    def _runs(
        self, added: DataFrame, keys: Collection[str], counted: Sequence[str]
    ) -> dict[str, list[ContributionRun]]:
        """By measure: the longest run of each partition, with what its records add."""
        longest = self._longest(keys)
        if not longest:
            return {}
        inside = reduce(Column.__or__, map(self._lies_in, longest))
        stored = self.placed.stored(added.where(inside))
        rows = stored.select(*_PLACE, self._key(stored), *counted).orderBy(*_PLACE).limit(_RECORDS + 1).collect()
        return {} if len(rows) > _RECORDS else {m: _as_runs(self.compiled, rows, m) for m in counted}

    def _longest(self, keys: Collection[str]) -> list[Range]:
        """Of each partition the most records in a row all of whose keys are among these."""
        prepared = self.placed.prepared(self.selected)
        among = self._among(keys)(prepared.select(*_PLACE, *self.compiled.view.key)).select(*_PLACE)
        flagged = prepared.select(*_PLACE, F.lit(0).alias("_in")).unionByName(among.select("*", F.lit(1).alias("_in")))
        records = flagged.groupBy(*_PLACE).agg((2 * F.sum("_in") == F.count("_in")).alias("_whole"))
        before = Window.partitionBy(*_PLACE[:2]).orderBy(_PLACE[2])
        breaks = F.sum(F.when(F.col("_whole"), 0).otherwise(1)).over(before).alias("_run")
        first, last = F.min("_offset").alias("first"), F.max("_offset").alias("last")
        runs = records.select("*", breaks).where("_whole").groupBy(*_PLACE[:2], "_run")
        sized = runs.agg(F.count("_offset").alias("n"), first, last)
        found = sized.groupBy(*_PLACE[:2]).agg(F.max(F.struct("n", "first", "last")).alias("run")).collect()
        reads = self.compiled.view.reads
        return [Range(reads[r["_topic"]], r["_partition"], r["run"]["first"], r["run"]["last"] + 1) for r in found]


def _surplus(row: _Row, measure: str) -> int:
    """How much more was streamed than rebuilt."""
    streamed, rebuilt = (int((side or {}).get(measure) or 0) for side in (row.streamed, row.rebuilt))
    return streamed - rebuilt


def _is_beyond(row: _Row, measure: str) -> bool:
    """Of a row that both sides have."""
    if row.streamed is None or row.rebuilt is None:
        return False
    return exceeds_recount(row.streamed[measure], row.rebuilt[measure])


def _as_runs(compiled: Compiled, rows: Sequence[Any], measure: str) -> list[ContributionRun]:
    """Rows in the order of their records, several for a record with several keys."""
    records: dict[tuple[int, int], dict[int, dict[str, int]]] = defaultdict(dict)
    for row in rows:
        amounts = records[row["_topic"], row["_partition"]].setdefault(row["_offset"], {})
        amounts[row[_KEY]] = int(row[measure] or 0)
    return [
        ContributionRun(
            compiled.view.reads[topic], partition, [Contribution(offset, amounts) for offset, amounts in each.items()]
        )
        for (topic, partition), each in records.items()
    ]


def _named(found: Sequence[Range]) -> str:
    named = (f"{each.topic} {each.partition}:[{each.start}, {each.end})" for each in found)
    return f"exactly the records {', '.join(sorted(named))}"
