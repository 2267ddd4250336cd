"""The records of rules in PostgreSQL, and which groups a change of rules touches."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from psycopg import sql

from truelog.patterns.versions import Book, Change, Difference, differences
from truelog.storage.database import Connection, names, read_value
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold.compiled import Fold, group_of, inputs_of
from truelog.tables.fold.inputs import state
from truelog.tables.patterns.judging import Judging, columns_of, judging_of
from truelog.tables.stage import StagedRows

_KEPT = 8  # tables of rules that a process keeps in memory, each in one state


@dataclass(frozen=True)
class Rules:
    """The records of rules that a view has counted with their versions, and the fold for these."""

    book: Book[Any]
    fold: Fold

    def with_changes(self, judging: Judging, changes: Sequence[Change]) -> "Rules":
        """The rules with further records."""
        book = self.book.with_changes(changes, judging.read)
        return Rules(book, judging.with_book(book, self.book, self.fold))


class _Read(NamedTuple):
    """What a process has read of a table: how many rows, and the sum and the greatest of their transactions."""

    rows: int
    total: str
    newest: int


_NOTHING = _Read(0, "0", -1)
_known: dict[tuple[Any, ...], tuple[_Read, Rules]] = {}  # by the place of a table; the newest last


def stored(connection: Connection, compiled: CompiledView) -> Rules:
    """The rules that the view has counted.

    Their table is read only if it has changed. If it only has more rows, these are read alone.
    """
    judging = judging_of(compiled.own)
    place = _place_of(connection, state(judging.rules), compiled)
    read, found = _known.pop(place, (_NOTHING, None))
    now, is_longer = _look(connection, state(judging.rules), read)
    if found is None or not is_longer:
        book = judging.book(_changes(connection, compiled, state(judging.rules), _between(_NOTHING, now)))
        found = Rules(book, judging.with_versions(book.every()))
    elif read != now:
        new = _changes(connection, compiled, state(judging.rules), _between(read, now))
        found = found.with_changes(judging, new)
    for old in list(_known)[: max(0, len(_known) - _KEPT + 1)]:
        _known.pop(old, None)
    _known[place] = (now, found)
    # What has expired and what is left out belong to the batch, and not to the rules.
    return replace(found, fold=replace(found.fold, since=judging.since, failed=judging.failed))


def staged_changes(connection: Connection, compiled: CompiledView, staged: StagedRows) -> list[Change]:
    """The staged records of rules."""
    condition = sql.SQL("_attempt = ANY({})").format(sql.Literal(list(staged.attempts)))
    return _changes(connection, compiled, stage.table(judging_of(compiled.own).rules), condition)


def touched_groups(compiled: CompiledView, before: Book[Any], after: Book[Any]) -> sql.Composed:
    """The query of the groups whose rows may change if the rules change. `after` was made from `before`."""
    by = names(group_of(compiled).by)
    changed = after.changed_since(before)
    found = differences(before.of(changed), after.of(changed))
    touched = _groups_from(compiled, found)
    if judging_of(compiled.own).is_local:
        return touched
    rows = sql.SQL(
        "SELECT {} FROM {} WHERE (rule, rule_version) IN (SELECT * FROM unnest({}::text[], {}::int[]))"
    ).format(
        by,
        state(compiled.own),
        sql.Literal([each.rule for each in found]),
        sql.Literal([each.number for each in found]),
    )
    return sql.SQL("{} UNION {}").format(touched, rows)


def delete_touched(connection: Connection, compiled: CompiledView, before: Book[Any], after: Book[Any]) -> None:
    """Delete the rows of the groups that a change of rules touches."""
    delete = sql.SQL("DELETE FROM {} WHERE ({}) IN ({})")
    by, touched = names(group_of(compiled).by), touched_groups(compiled, before, after)
    connection.execute(delete.format(state(compiled.own), by, touched))


def _place_of(connection: Connection, table: sql.Identifier, compiled: CompiledView) -> tuple[Any, ...]:
    """Where a table is."""
    query = sql.SQL("SELECT {}::regclass::oid::bigint").format(sql.Literal(table.as_string(None)))
    info = connection.info
    return (info.host, info.port, info.dbname, compiled.fingerprint, read_value(connection, query))


def _look(connection: Connection, table: sql.Identifier, before: _Read) -> tuple[_Read, bool]:
    """What there is to read, and whether all that was read before is still there and has not changed.

    Each write has a transaction of its own, so a changed row is a new one. The rows of a transaction that began earlier
    and ended later change the sum of the old ones.
    """
    query = sql.SQL(
        "SELECT count(*), coalesce(sum(x), 0)::text, coalesce(max(x), -1), count(*) FILTER (WHERE x <= {newest}), "
        "coalesce(sum(x) FILTER (WHERE x <= {newest}), 0)::text "
        "FROM (SELECT xmin::text::bigint AS x FROM {table}) AS t"
    )
    newest = sql.Literal(before.newest)
    [(*now, rows, total)] = connection.execute(query.format(newest=newest, table=table)).fetchall()
    return _Read(*now), (rows, total) == before[:2]


def _between(before: _Read, now: _Read) -> sql.Composed:
    """The SQL condition that a row is new since `before`."""
    written = sql.SQL("(xmin::text::bigint > {} AND xmin::text::bigint <= {})")
    return written.format(sql.Literal(before.newest), sql.Literal(now.newest))


def _changes(
    connection: Connection, compiled: CompiledView, table: sql.Identifier, condition: sql.Composable
) -> list[Change]:
    columns = names(columns_of(judging_of(compiled.own).rules))
    query = sql.SQL("SELECT {} FROM {} WHERE {}").format(columns, table, condition)
    return [Change(*row) for row in connection.execute(query).fetchall()]


def _groups_from(compiled: CompiledView, found: Sequence[Difference]) -> sql.Composed:
    """The query of the groups with events, of the types that the versions judge, from a cut of these versions on."""
    cuts = _earliest(found)
    topics, partitions, offsets = (
        zip(*((*place, offset) for place, offset in cuts.items()), strict=True) if cuts else [()] * 3
    )
    return sql.SQL(
        "SELECT {by} FROM {inputs} AS t LEFT JOIN unnest({topics}::text[], {partitions}::int[], {offsets}::bigint[]) "
        "AS c (topic, partition, begins) ON (t.topic, t.partition) = (c.topic, c.partition) "
        'WHERE t.topic = ANY({types}::text[]) AND t."offset" >= coalesce(c.begins, 0)'
    ).format(
        by=names(group_of(compiled).by),
        inputs=state(inputs_of(compiled)),
        topics=sql.Literal(list(topics)),
        partitions=sql.Literal(list(partitions)),
        offsets=sql.Literal(list(offsets)),
        types=sql.Literal(sorted(frozenset().union(*(each.event_types for each in found)))),
    )


def _earliest(found: Sequence[Difference]) -> dict[tuple[str, int], int]:
    """The earliest cut of each partition that all cuts of its topic name. A cut begins other partitions at 0."""
    offsets: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    reading: Counter[str] = Counter()
    for each in found:
        for cut in each.cuts:
            reading.update(each.event_types)
            for topic in each.event_types & cut.keys():
                for partition, offset in cut[topic].items():
                    offsets[topic, int(partition)].append(offset)
    return {place: min(of_place) for place, of_place in offsets.items() if len(of_place) == reading[place[0]]}
