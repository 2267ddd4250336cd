"""The records of rules in PostgreSQL, and which groups a change of rules touches."""

import json
from collections.abc import Sequence

from psycopg import sql

from truelog.patterns.versions import Change, Difference, Ends, differences
from truelog.storage.database import Connection, names
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold.compiled import group_of, inputs_of
from truelog.tables.fold.inputs import state
from truelog.tables.patterns.compiled import matching_of
from truelog.tables.stage import StagedRows


def stored_changes(connection: Connection, compiled: CompiledView) -> list[Change]:
    """The records of rules that the view has counted."""
    return _changes(connection, state(matching_of(compiled.own).rules), sql.SQL("true"))


def staged_changes(connection: Connection, compiled: CompiledView, staged: StagedRows) -> list[Change]:
    """The staged records of rules."""
    condition = sql.SQL("_attempt = ANY({})").format(sql.Literal(list(staged.attempts)))
    return _changes(connection, stage.table(matching_of(compiled.own).rules), condition)


def touched_groups(compiled: CompiledView, before: Sequence[Change], after: Sequence[Change]) -> sql.Composed:
    """The query of the groups whose matches may change if the rules change."""
    matching, by = matching_of(compiled.own), names(group_of(compiled).by)
    found = differences(matching.versions(before), matching.versions(after))
    events = [sql.SQL("SELECT {} FROM {} AS t WHERE false").format(by, state(inputs_of(compiled)))]
    events.extend(
        sql.SQL("SELECT {} FROM {} AS t WHERE {}").format(by, state(inputs_of(compiled)), _is_from(cut))
        for cut in _distinct_cuts(found)
    )
    matches = [
        sql.SQL("SELECT {} FROM {} WHERE (rule, rule_version) = ({}, {})").format(
            by, state(compiled.own), sql.Literal(each.rule), sql.Literal(each.number)
        )
        for each in found
    ]
    return sql.SQL(" UNION ").join([*events, *matches])


def delete_touched(
    connection: Connection, compiled: CompiledView, before: Sequence[Change], after: Sequence[Change]
) -> None:
    """Delete the matches of the groups that a change of rules touches."""
    delete = sql.SQL("DELETE FROM {} WHERE ({}) IN ({})")
    by, touched = names(group_of(compiled).by), touched_groups(compiled, before, after)
    connection.execute(delete.format(state(compiled.own), by, touched))


def _changes(connection: Connection, table: sql.Identifier, condition: sql.Composable) -> list[Change]:
    query = sql.SQL("SELECT {} FROM {} WHERE {}").format(names(Change._fields), table, condition)
    return [Change(*row) for row in connection.execute(query).fetchall()]


def _distinct_cuts(found: Sequence[Difference]) -> list[str]:
    """Where the differences begin, as JSON."""
    return sorted({_as_json(cut) for each in found for cut in each.cuts})


def _as_json(cut: Ends) -> str:
    return json.dumps(cut, sort_keys=True)


def _is_from(cut: str) -> sql.Composed:
    """The SQL condition that an input `t` is at or past a cut."""
    return sql.SQL('t."offset" >= coalesce(({}::jsonb -> t.topic ->> t.partition::text)::bigint, 0)').format(
        sql.Literal(cut)
    )
