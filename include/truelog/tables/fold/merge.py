"""Groups: when a batch touches groups, their inputs are loaded and folded, and the result replaces their rows.

The merge decides whether the loaded inputs are current: it applies only if the view is where the batch begins, and if
no repair has changed an input or a checkpoint since then.

A Group of steps keeps checkpoints. A batch replaces the checkpoints of a touched group from the batch's first input of
the group on. As long as the events of a key stay in one partition, there are none.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, DateType, TimestampType

from truelog.schema.names import COORDINATES
from truelog.storage.database import Connection, names, read_value
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold import failing
from truelog.tables.fold import inputs as loaded_inputs
from truelog.tables.fold.compiled import checkpoints_of, fold_of, folded_tables, group_of, inputs_of
from truelog.tables.fold.inputs import GroupText, first_inputs, same_group, state
from truelog.tables.stage import NO_ROWS, StagedRows
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.staging.failed_group import FailedGroup
from truelog.tables.table import Table
from truelog.views.group import INPUTS
from truelog.views.steps import NUMBER


def stage_touched(
    plans: BatchPlans, compiled: CompiledView, staged: StagedRows, further: sql.Composed | None = None
) -> StagedRows:
    """Stage what follows for the groups to which the staged inputs belong, if these inputs are added.

    `further` is the query of further groups to fold.
    """
    if not staged.attempts and further is None:
        return NO_ROWS
    return _stage_folded(compiled, plans, loaded_inputs.load_touched(plans, compiled, staged, further))


def stage_groups(plans: BatchPlans, compiled: CompiledView, groups: Sequence[GroupText]) -> StagedRows:
    """Stage what follows for these groups from all their inputs in the side table."""
    if not groups:
        return NO_ROWS
    return _stage_folded(compiled, plans, loaded_inputs.load_groups(plans, compiled, groups))


def replace_touched(connection: Connection, compiled: CompiledView, schema: str, staged: StagedRows) -> None:
    """Delete the rows that the staged rows replace."""
    touched = first_inputs(compiled, _staged(inputs_of(compiled), staged.sides[INPUTS]))
    later = sql.SQL("(({}) >= ({}) OR {})").format(
        names(COORDINATES, "t."), names(COORDINATES, "g."), _is_failed(compiled, staged.failed)
    )
    delete = sql.SQL("DELETE FROM {} AS t USING ({}) AS g WHERE {} AND {}")
    with stage.by_index(connection):
        for table in folded_tables(compiled):
            target, condition = sql.Identifier(schema, table.name), later if table.side else sql.SQL("true")
            connection.execute(delete.format(target, touched, same_group(compiled), condition))


def record_left_out(connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
    """Record which of the groups with staged inputs have too many inputs, and on which the fold has failed."""
    touched = _groups(compiled, _staged(inputs_of(compiled), staged.sides[INPUTS]))
    _record_oversized(connection, compiled, touched, _groups(compiled, _staged(compiled.own, staged)))
    _record_failed(connection, compiled, touched, staged.failed)


def record_repaired(
    connection: Connection, compiled: CompiledView, groups: Sequence[GroupText], staged: StagedRows
) -> None:
    """Record the same of these groups, which were folded again."""
    by = names(group_of(compiled).by)
    touched = sql.SQL("SELECT * FROM ({}) AS listed ({})").format(loaded_inputs.values(compiled, groups), by)
    _record_oversized(connection, compiled, touched, _groups(compiled, _staged(compiled.own, staged)))
    _record_failed(connection, compiled, touched, staged.failed)


def _record_oversized(
    connection: Connection, compiled: CompiledView, touched: sql.Composed, with_rows: sql.Composed
) -> None:
    # A group with rows has not too many inputs, unless the first of them are folded.
    may_be = touched if fold_of(compiled.own).first else sql.SQL("{} EXCEPT {}").format(touched, with_rows)
    parts = {**_record_of(compiled), "touched": touched, "may_be": may_be, "is_oversized": _is_oversized(compiled)}
    recovered = sql.SQL(
        "DELETE FROM truelog.oversized_group AS o USING ({touched}) AS g "
        "WHERE (o.view, o.version, o.group) = ({view}, {version}, {group}) AND NOT {is_oversized}"
    )
    connection.execute(recovered.format(**parts))
    oversized = sql.SQL(
        'INSERT INTO truelog.oversized_group (view, version, "group") SELECT {view}, {version}, {group} '
        "FROM ({may_be}) AS g WHERE {is_oversized} ON CONFLICT DO NOTHING"
    )
    connection.execute(oversized.format(**parts))


def _record_failed(
    connection: Connection, compiled: CompiledView, touched: sql.Composed, failed: Sequence[FailedGroup]
) -> None:
    parts = {
        **_record_of(compiled),
        "touched": touched,
        "values": _values(compiled),
        "failed": _listed(failed),
        "errors": sql.Literal([each.error for each in failed]),
        "is_failed": _is_failed(compiled, failed),
    }
    recovered = sql.SQL(
        "DELETE FROM truelog.failed_group AS f USING ({touched}) AS g "
        "WHERE (f.view, f.version, f.group) = ({view}, {version}, {group}) AND NOT {is_failed}"
    )
    connection.execute(recovered.format(**parts))
    if not failed:
        return
    insert = sql.SQL(
        'INSERT INTO truelog.failed_group (view, version, "group", error) SELECT {view}, {version}, {group}, f.error '
        "FROM ({touched}) AS g JOIN unnest({failed}, {errors}::text[]) AS f (values, error) ON f.values = {values} "
        'ON CONFLICT (view, version, "group") DO UPDATE SET error = excluded.error'
    )
    connection.execute(insert.format(**parts))
    counted = sql.SQL("SELECT count(*) FROM truelog.failed_group WHERE (view, version) = ({view}, {version})")
    failing.require_few(compiled, int(str(read_value(connection, counted.format(**parts)))), failed[-1].error)


def forget_expired(connection: Connection, compiled: CompiledView, limit: datetime) -> None:
    """Delete the records of groups before this time."""
    age = compiled.own.age_column
    if age is None:
        return
    delete = sql.SQL('DELETE FROM truelog.{} WHERE (view, version) = (%s, %s) AND ("group" ->> %s)::timestamptz < %s')
    place = group_of(compiled).by.index(age)
    for table in ("failed_group", "oversized_group"):
        connection.execute(delete.format(sql.Identifier(table)), (compiled.name, compiled.view.version, place, limit))


def _record_of(compiled: CompiledView) -> dict[str, sql.Composable]:
    """The key of the record of a group `g`."""
    return {
        "view": sql.Literal(compiled.name),
        "version": sql.Literal(compiled.view.version),
        "group": sql.SQL("jsonb_build_array({})").format(names(group_of(compiled).by, "g.")),
    }


def _is_failed(compiled: CompiledView, failed: Sequence[FailedGroup]) -> sql.Composed:
    """The SQL condition that a group `g` is one of these."""
    return sql.SQL("{} = ANY({})").format(_values(compiled), _listed(failed))


def _listed(failed: Sequence[FailedGroup]) -> sql.Composed:
    return sql.SQL("{}::text[]::jsonb[]").format(sql.Literal([each.values for each in failed]))


def _values(compiled: CompiledView) -> sql.Composed:
    """The SQL of the values of a group `g`, as a `FailedGroup` has them."""
    types = inputs_of(compiled).dtypes
    texts = (sql.SQL(_as_text(types[name])).format(sql.Identifier("g", name)) for name in group_of(compiled).by)
    return sql.SQL("jsonb_build_array({})").format(sql.SQL(", ").join(texts))


def _as_text(dtype: DataType) -> str:
    if isinstance(dtype, TimestampType):
        return "(extract(epoch FROM {}) * 1000000)::bigint::text"
    return "({} - date '1970-01-01')::text" if isinstance(dtype, DateType) else "{}::text"


def delete_groups(connection: Connection, compiled: CompiledView, groups: Sequence[GroupText]) -> None:
    """Delete what follows from the inputs of these groups."""
    delete = sql.SQL("DELETE FROM {} WHERE ({}) IN ({})")
    for table in folded_tables(compiled):
        connection.execute(
            delete.format(state(table), names(group_of(compiled).by), loaded_inputs.values(compiled, groups))
        )


def changed_keys(compiled: CompiledView, table: Table, groups: Sequence[GroupText], staged: StagedRows) -> sql.Composed:
    """The query of the keys of the rows that change when the staged rows replace those of these groups."""
    [rows] = [rows for each, rows in staged.by_table(compiled) if each.side == table.side]
    return sql.SQL(
        "WITH before AS (SELECT {columns} FROM {state} WHERE ({by}) IN ({groups})), "
        "after AS (SELECT {columns} FROM {staged}) "
        "SELECT {key} FROM (SELECT * FROM before EXCEPT SELECT * FROM after) AS replaced "
        "UNION SELECT {key} FROM (SELECT * FROM after EXCEPT SELECT * FROM before) AS new"
    ).format(
        columns=names(table.stored_columns),
        state=state(table),
        by=names(group_of(compiled).by),
        groups=loaded_inputs.values(compiled, groups),
        staged=_staged(table, rows),
        key=names(table.key_columns),
    )


def _stage_folded(compiled: CompiledView, plans: BatchPlans, inputs: Callable[[], DataFrame]) -> StagedRows:
    """Fold inputs, and stage the rows of each table that follows, without those of groups whose fold fails."""

    def attempt(chosen: CompiledView) -> StagedRows:
        # A plan that is repeated leaves no group out, because it does not know what fails or has expired by then.
        if chosen is compiled:
            return _stage_all(failing.with_expired(chosen), plans, inputs)
        return _stage_all(chosen, BatchPlans(plans.spark, plans.settings), inputs)

    return failing.leaving_out(compiled, inputs, attempt)


def _stage_all(compiled: CompiledView, plans: BatchPlans, inputs: Callable[[], DataFrame]) -> StagedRows:
    tables, fold = folded_tables(compiled), fold_of(compiled.own)
    own, *sides = plans.stage_each(
        tables, lambda: fold.result(inputs()), lambda table, folded: fold_of(table).rows_of(table, folded)
    )
    staged = {table.side: rows for table, rows in zip(tables[1:], sides, strict=True)}
    return replace(own, sides=staged, failed=fold.failed)


def _staged(table: Table, rows: StagedRows) -> sql.Composed:
    """The staged rows of a table, for a FROM clause."""
    return sql.SQL("(SELECT * FROM {} WHERE _attempt = ANY({})) AS staged").format(
        stage.table(table), sql.Literal(list(rows.attempts))
    )


def _groups(compiled: CompiledView, staged: sql.Composed) -> sql.Composed:
    """The query of the groups of staged rows."""
    return sql.SQL("SELECT DISTINCT {} FROM {}").format(names(group_of(compiled).by), staged)


def _is_oversized(compiled: CompiledView) -> sql.Composed:
    """The SQL condition that a group `g` has too many inputs."""
    parts = {
        "inputs": state(inputs_of(compiled)),
        "same": same_group(compiled),
        "most": sql.Literal(group_of(compiled).most),
    }
    checkpoints = checkpoints_of(compiled)
    if checkpoints is None:
        counted = sql.SQL(
            "{most} < (SELECT count(*) FROM (SELECT FROM {inputs} AS t WHERE {same} LIMIT {most} + 1) AS t)"
        )
        return counted.format(**parts)
    after_the_last = sql.SQL(
        "EXISTS (SELECT FROM {checkpoints} AS t WHERE {same} AND t.{number} = {most} AND ({at}) < ("
        "SELECT {at} FROM {inputs} AS t WHERE {same} ORDER BY {backwards} LIMIT 1))"
    )
    return after_the_last.format(
        checkpoints=state(checkpoints),
        number=sql.Identifier(NUMBER),
        at=names(COORDINATES, "t."),
        backwards=loaded_inputs.BACKWARDS,
        **parts,
    )
