"""The records of rules in PostgreSQL, and which groups a change of rules touches."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from truelog.patterns.versions import Change, Difference, Version, differences
from truelog.storage.database import Connection, names
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold.compiled import Fold, group_of, inputs_of
from truelog.tables.fold.inputs import state
from truelog.tables.patterns.judging import columns_of, judging_of
from truelog.tables.stage import StagedRows

_KEPT = 8  # tables of rules that a process keeps in memory, each in one state


@dataclass(frozen=True)
class Rules:
    """The records of rules that a view has counted, their versions, and the fold for these."""

    changes: Sequence[Change]
    versions: Sequence[Version[Any]]
    fold: Fold


_known: dict[tuple[Any, ...], tuple[Any, Rules]] = {}  # by the place of a table, with its state; the newest last


def stored(connection: Connection, compiled: CompiledView) -> Rules:
    """The rules that the view has counted. They are read again only if their table has changed."""
    judging = judging_of(compiled.own)
    place, at = _state_of(connection, state(judging.rules), compiled)
    before, found = _known.get(place, (None, None))
    if found is None or before != at:
        changes = _changes(connection, compiled, state(judging.rules), sql.SQL("true"))
        versions = judging.versions(changes)
        found = Rules(changes, versions, judging.with_versions(versions))
        _known.pop(place, None)
        for old in list(_known)[: max(0, len(_known) - _KEPT + 1)]:
            _known.pop(old, None)
        _known[place] = (at, found)
    # What has expired and what is left out belong to the batch, and not to the rules.
    return replace(found, fold=replace(found.fold, since=judging.since, failed=judging.failed))


def staged_changes(connection: Connection, compiled: CompiledView, staged: StagedRows) -> list[Change]:
    """The staged records of rules."""
    condition = sql.SQL("_attempt = ANY({})").format(sql.Literal(list(staged.attempts)))
    return _changes(connection, compiled, stage.table(judging_of(compiled.own).rules), condition)


def touched_groups(
    compiled: CompiledView, before: Sequence[Version[Any]], after: Sequence[Version[Any]]
) -> sql.Composed:
    """The query of the groups whose rows may change if the rules change."""
    by = names(group_of(compiled).by)
    found = differences(before, after)
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


def delete_touched(
    connection: Connection, compiled: CompiledView, before: Sequence[Version[Any]], after: Sequence[Version[Any]]
) -> None:
    """Delete the rows of the groups that a change of rules touches."""
    delete = sql.SQL("DELETE FROM {} WHERE ({}) IN ({})")
    by, touched = names(group_of(compiled).by), touched_groups(compiled, before, after)
    connection.execute(delete.format(state(compiled.own), by, touched))


def _state_of(connection: Connection, table: sql.Identifier, compiled: CompiledView) -> tuple[tuple[Any, ...], Any]:
    """Where a table is, and a value that each change of its rows changes: each write has a transaction of its own."""
    query = sql.SQL("SELECT {}::regclass::oid::bigint, count(*), coalesce(sum(xmin::text::bigint), 0)::text FROM {}")
    [(oid, *at)] = connection.execute(query.format(sql.Literal(table.as_string(None)), table)).fetchall()
    return (connection.info.host, connection.info.port, connection.info.dbname, compiled.fingerprint, oid), at


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
