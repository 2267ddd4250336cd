"""Groups: when a batch touches groups, their inputs are loaded and folded, and the result replaces their rows.

The executors load the inputs from the side table and add the batch's staged inputs, so the driver collects none. The
merge decides whether the loaded inputs are current: it applies only if the view is where the batch begins, and if no
repair has changed an input since then.
"""

from collections.abc import Sequence
from typing import Any

from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StringType, StructField, StructType

from truelog.kernel import stage
from truelog.kernel.stage import NO_ROWS, StagedRows
from truelog.storage.database import Connection, names
from truelog.support.settings import Settings
from truelog.views.compiled_view import CompiledView
from truelog.views.group import INPUTS

_INPUTS_PER_TASK = 20_000
_GROUPS_PER_TASK = 1_000


def stage_touched(spark: SparkSession, compiled: CompiledView, settings: Settings, staged: StagedRows) -> StagedRows:
    """Stage the rows of the groups to which the staged inputs belong, as they are with these inputs."""
    if not staged.attempts:
        return NO_ROWS
    shares = max(1, min(spark.sparkContext.defaultParallelism, staged.rows // _INPUTS_PER_TASK))
    queries = [_touched(compiled, staged, share, shares) for share in range(shares)]
    return _stage_folded(spark, compiled, settings, queries)


def stage_groups(
    spark: SparkSession, compiled: CompiledView, settings: Settings, groups: Sequence[tuple[Any, ...]]
) -> StagedRows:
    """Stage the rows of these groups, as they follow from the inputs in the side table."""
    if not groups:
        return NO_ROWS
    portions = [groups[i : i + _GROUPS_PER_TASK] for i in range(0, len(groups), _GROUPS_PER_TASK)]
    return _stage_folded(spark, compiled, settings, [_of_groups(compiled, each) for each in portions])


def replace_touched(connection: Connection, compiled: CompiledView, schema: str, staged: StagedRows) -> None:
    """Delete the rows of the groups to which the view's staged inputs belong. The staged rows are added then."""
    touched = sql.SQL("SELECT {} FROM {} WHERE attempt = ANY({})").format(
        names(compiled.group.by), stage.table(inputs_of(compiled)), sql.Literal(list(staged.sides[INPUTS].attempts))
    )
    delete_groups(connection, compiled, schema, touched)


def record_oversized(connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
    """Record which of the touched groups have too many inputs. Such a group has no staged rows."""
    inputs, by = inputs_of(compiled), compiled.group.by
    most = sql.Literal(compiled.group.most)
    parts = {
        "view": sql.Literal(compiled.name),
        "version": sql.Literal(compiled.view.version),
        "group": sql.SQL("jsonb_build_array({})").format(names(by, "g.")),
        "touched": _staged_groups(inputs, by, staged.sides[INPUTS]),
        "with_rows": _staged_groups(compiled, by, staged),
        "is_oversized": sql.SQL(
            "{most} < (SELECT count(*) FROM (SELECT FROM {} AS t WHERE {} LIMIT {most} + 1) AS first)"
        ).format(sql.Identifier("state", inputs.table), _same(by), most=most),
    }
    recovered = sql.SQL(
        "DELETE FROM truelog.oversized_group AS o USING ({touched}) AS g "
        "WHERE (o.view, o.version, o.group) = ({view}, {version}, {group}) AND NOT {is_oversized}"
    )
    connection.execute(recovered.format(**parts))
    oversized = sql.SQL(
        'INSERT INTO truelog.oversized_group (view, version, "group") SELECT {view}, {version}, {group} '
        "FROM ({touched} EXCEPT {with_rows}) AS g WHERE {is_oversized} ON CONFLICT DO NOTHING"
    )
    connection.execute(oversized.format(**parts))


def delete_groups(connection: Connection, compiled: CompiledView, schema: str, groups: sql.Composable) -> None:
    """Delete the rows of these groups. `groups` is a query or a VALUES list of the columns in `by`."""
    query = sql.SQL("DELETE FROM {} WHERE ({}) IN ({})")
    target = sql.Identifier(schema, compiled.table)
    connection.execute(query.format(target, names(compiled.group.by), groups))


def values(groups: Sequence[tuple[Any, ...]]) -> sql.Composed:
    """A VALUES list of groups."""
    rows = (sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, each))) for each in groups)
    return sql.SQL("VALUES {}").format(sql.SQL(", ").join(rows))


def inputs_of(compiled: CompiledView) -> CompiledView:
    """The side table with the inputs of a Group."""
    assert compiled.inputs is not None  # noqa: S101
    return compiled.inputs


def _staged_groups(table: CompiledView, by: Sequence[str], staged: StagedRows) -> sql.Composed:
    """The query of the groups of a table's staged rows."""
    return sql.SQL("SELECT DISTINCT {} FROM {} WHERE attempt = ANY({})").format(
        names(by), stage.table(table), sql.Literal(list(staged.attempts))
    )


def _touched(compiled: CompiledView, staged: StagedRows, share: int, shares: int) -> sql.Composed:
    """The query of a share of the touched groups: their inputs, at most one too many, and the staged inputs."""
    inputs, by = inputs_of(compiled), names(compiled.group.by)
    return sql.SQL(
        "WITH staged AS MATERIALIZED (SELECT * FROM {stage} WHERE attempt = ANY({attempts}) "
        "AND abs(mod(hashtextextended(ROW({by})::text, 0), {shares})) = {share}), "
        "touched AS MATERIALIZED (SELECT DISTINCT {by} FROM staged) "
        "SELECT {columns} FROM touched AS g CROSS JOIN LATERAL ("
        "SELECT * FROM {state} AS t WHERE {same} LIMIT {enough}) AS t UNION ALL SELECT {columns} FROM staged AS t"
    ).format(
        stage=stage.table(inputs),
        attempts=sql.Literal(list(staged.attempts)),
        by=by,
        shares=sql.Literal(shares),
        share=sql.Literal(share),
        columns=_columns(inputs),
        state=sql.Identifier("state", inputs.table),
        same=_same(compiled.group.by),
        enough=sql.Literal(compiled.group.most + 1),
    )


def _same(by: Sequence[str]) -> sql.Composed:
    """The SQL condition that an input `t` belongs to a group `g`."""
    return sql.SQL("({}) = ({})").format(names(by, "t."), names(by, "g."))


def _of_groups(compiled: CompiledView, groups: Sequence[tuple[Any, ...]]) -> sql.Composed:
    inputs = inputs_of(compiled)
    return sql.SQL("SELECT {} FROM {} AS t WHERE ({}) IN ({})").format(
        _columns(inputs), sql.Identifier("state", inputs.table), names(compiled.group.by), values(groups)
    )


def _columns(inputs: CompiledView) -> sql.Composed:
    """The stored columns. A numeric has no Arrow type, so it travels as text."""
    text = sql.SQL("t.{0}::text AS {0}")
    plain = sql.SQL("t.{0}")
    columns = (
        (text if isinstance(inputs.dtypes[c], DecimalType) else plain).format(sql.Identifier(c))
        for c in inputs.stored_columns
    )
    return sql.SQL(", ").join(columns)


def _stage_folded(
    spark: SparkSession, compiled: CompiledView, settings: Settings, queries: Sequence[sql.Composed]
) -> StagedRows:
    """Fold the inputs that the queries select, each in a task of its own, and stage the rows."""
    inputs = inputs_of(compiled)
    types = {name: inputs.dtypes[name] for name in inputs.stored_columns}
    travels = StructType([StructField(n, StringType() if isinstance(t, DecimalType) else t) for n, t in types.items()])
    loaded = stage.load(spark, settings, queries, travels)
    rows = compiled.folded(loaded.select(*(F.col(n).cast(t).alias(n) for n, t in types.items())))
    return stage.stage_rows(rows, compiled, settings)
