"""Loads inputs of groups from PostgreSQL into Spark.

Executors run the queries of a large batch. The application runs those of a small one, and puts the rows into a file.

If the Group has steps, the fold of a group that a batch touches continues from a seed: the newest checkpoint before the
group's first staged input. Only the inputs after the seed are loaded then.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StringType, StructField, StructType

from truelog.schema.names import COORDINATES
from truelog.storage.database import names
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold.compiled import checkpoints_of, fold_of, group_of, inputs_of
from truelog.tables.fold.stepped import SEED
from truelog.tables.stage import StagedRows
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.table import Table
from truelog.views.steps import NUMBER

_INPUTS_PER_TASK = 20_000
_GROUPS_PER_TASK = 1_000
_OF_SEED = "_seed_"  # before the names of a seed's columns, which travel beside those of an input

BACKWARDS = sql.SQL(", ").join(sql.SQL("t.{} DESC").format(sql.Identifier(name)) for name in COORDINATES)

_Types = Mapping[str, DataType]
GroupText = tuple[str, ...]  # the columns of a group as texts: PostgreSQL has times that Python has not


def load_touched(
    plans: BatchPlans, compiled: CompiledView, staged: StagedRows, further: sql.Composed | None = None
) -> Callable[[], DataFrame]:
    """The staged inputs and the other inputs of their groups, at most one too many; with seeds, if there are any.

    `further` is the query of further groups, whose inputs one task loads.
    """
    seed = _seed_types(compiled)
    types = _input_types(compiled) | {f"{_OF_SEED}{name}": dtype for name, dtype in seed.items()}
    query = _inputs_after_seeds if seed else partial(_all_inputs, further=further)
    shares = 1 if further is not None else plans.tasks(staged.rows, _INPUTS_PER_TASK)
    queries = [query(compiled, _share(compiled, staged, number, shares)) for number in range(shares)]
    loaded = _load(plans, queries, types)
    return (lambda: _with_seeds(loaded(), seed)) if seed else loaded


def load_groups(plans: BatchPlans, compiled: CompiledView, groups: Sequence[GroupText]) -> Callable[[], DataFrame]:
    """All inputs of these groups."""
    types, by = _input_types(compiled), names(group_of(compiled).by)
    portions = [groups[i : i + _GROUPS_PER_TASK] for i in range(0, len(groups), _GROUPS_PER_TASK)]
    select = sql.SQL("SELECT {} FROM {} AS t WHERE ({}) IN ({})")
    queries = [
        select.format(_columns(types), state(inputs_of(compiled)), by, values(compiled, each)) for each in portions
    ]
    return _load(plans, queries, types)


def _with_seeds(loaded: DataFrame, seed: _Types) -> DataFrame:
    """Loaded rows, with the columns of a seed as one column."""
    number, *state = (F.col(f"{_OF_SEED}{name}").alias(name) for name in seed)
    return loaded.withColumn(SEED, F.when(number.isNotNull(), F.struct(number, F.struct(*state).alias("state"))))


def state(table: Table) -> sql.Identifier:
    return sql.Identifier("state", table.name)


def as_text(compiled: CompiledView) -> sql.Composed:
    """The columns of a group as texts."""
    return sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in group_of(compiled).by)


def values(compiled: CompiledView, groups: Sequence[GroupText]) -> sql.Composed:
    """A VALUES list of groups."""
    types = [sql.SQL(inputs_of(compiled).key_columns[name]) for name in group_of(compiled).by]
    cast = sql.SQL("{}::{}")
    rows = (
        sql.SQL("({})").format(
            sql.SQL(", ").join(cast.format(sql.Literal(text), kind) for text, kind in zip(each, types, strict=True))
        )
        for each in groups
    )
    return sql.SQL("VALUES {}").format(sql.SQL(", ").join(rows))


def same_group(compiled: CompiledView) -> sql.Composed:
    """The SQL condition that a row `t` belongs to a group `g`."""
    by = group_of(compiled).by
    return sql.SQL("({}) = ({})").format(names(by, "t."), names(by, "g."))


def first_inputs(compiled: CompiledView, inputs: sql.Composable) -> sql.Composed:
    """The query of the groups of these inputs, each with the coordinates of its first input. `inputs` is a table."""
    return sql.SQL("SELECT DISTINCT ON ({by}) {by}, {at} FROM {inputs} ORDER BY {by}, {at}").format(
        by=names(group_of(compiled).by), at=names(COORDINATES), inputs=inputs
    )


def _share(compiled: CompiledView, staged: StagedRows, number: int, shares: int) -> sql.Composed:
    """The query that reads the staged inputs for a share of the groups."""
    return sql.SQL(
        "SELECT * FROM {} WHERE _attempt = ANY({}) AND abs(mod(hashtextextended(ROW({})::text, 0), {})) = {}"
    ).format(
        stage.table(inputs_of(compiled)),
        sql.Literal(list(staged.attempts)),
        names(group_of(compiled).by),
        sql.Literal(shares),
        sql.Literal(number),
    )


def _all_inputs(compiled: CompiledView, staged: sql.Composed, further: sql.Composed | None = None) -> sql.Composed:
    first = fold_of(compiled.own).first
    return sql.SQL(
        "WITH staged AS MATERIALIZED ({staged}), touched AS MATERIALIZED (SELECT {by} FROM staged UNION {further}) "
        "SELECT {columns} FROM touched AS g CROSS JOIN LATERAL ("
        "SELECT * FROM {state} AS t WHERE {same}{first} LIMIT {enough}) AS t "
        "UNION ALL SELECT {columns} FROM staged AS t"
    ).format(
        staged=staged,
        further=sql.SQL("SELECT {} FROM staged").format(names(group_of(compiled).by)) if further is None else further,
        by=names(group_of(compiled).by),
        columns=_columns(_input_types(compiled)),
        state=state(inputs_of(compiled)),
        same=same_group(compiled),
        first=sql.SQL(" ORDER BY {}").format(names(first, "t.")) if first else sql.SQL(""),
        enough=sql.Literal(group_of(compiled).most + 1),
    )


def _inputs_after_seeds(compiled: CompiledView, staged: sql.Composed) -> sql.Composed:
    """The query of the seeds, the inputs after them, and the staged inputs. All have the same columns."""
    inputs, seed = _input_types(compiled), _seed_types(compiled)
    located, no_seed = (*group_of(compiled).by, *COORDINATES), sql.SQL(", ").join([sql.NULL] * len(seed))
    of_seed = sql.SQL(", ").join(
        (sql.SQL("t.{}") if name in located else sql.SQL("NULL AS {}")).format(sql.Identifier(name)) for name in inputs
    )
    selects = [
        sql.SQL("SELECT {}, {} FROM begun AS t WHERE {} IS NOT NULL").format(
            of_seed, _columns(seed, _OF_SEED), sql.Identifier(NUMBER)
        ),
        sql.SQL("SELECT {}, {} FROM begun AS g CROSS JOIN LATERAL ({}) AS t").format(
            _columns(inputs), no_seed, _inputs_after_seed(compiled)
        ),
        sql.SQL("SELECT {}, {} FROM staged AS t").format(_columns(inputs), no_seed),
    ]
    begun = _seeds(compiled, first_inputs(compiled, sql.Identifier("staged")))
    common = sql.SQL("WITH staged AS MATERIALIZED ({}), begun AS MATERIALIZED ({}) ").format(staged, begun)
    return common + sql.SQL(" UNION ALL ").join(selects)


def _seeds(compiled: CompiledView, groups: sql.Composed) -> sql.Composed:
    """The query of the newest checkpoint before the first staged input of each group. All is NULL if there is none."""
    checkpoints = checkpoints_of(compiled)
    assert checkpoints is not None  # noqa: S101
    return sql.SQL(
        "SELECT {by}, {columns} FROM ({groups}) AS g LEFT JOIN LATERAL ("
        "SELECT * FROM {checkpoints} AS t WHERE {same} AND {before} ORDER BY {backwards} LIMIT 1) AS t ON true"
    ).format(
        by=names(group_of(compiled).by, "g."),
        columns=names((*COORDINATES, *_seed_types(compiled)), "t."),
        groups=groups,
        checkpoints=state(checkpoints),
        same=same_group(compiled),
        before=sql.SQL("({}) < ({})").format(names(COORDINATES, "t."), names(COORDINATES, "g.")),
        backwards=BACKWARDS,
    )


def _inputs_after_seed(compiled: CompiledView) -> sql.Composed:
    """The query of the inputs after the seed `g`, or of all inputs of the group if there is none."""
    return sql.SQL(
        "SELECT * FROM {} AS t WHERE {} AND ({at}) > (coalesce(g.topic, ''), coalesce(g.partition, -1), "
        'coalesce(g."offset", -1)) ORDER BY {at} LIMIT {} - coalesce(g.{}, 0)'
    ).format(
        state(inputs_of(compiled)),
        same_group(compiled),
        sql.Literal(group_of(compiled).most + 1),
        sql.Identifier(NUMBER),
        at=names(COORDINATES, "t."),
    )


def _input_types(compiled: CompiledView) -> dict[str, DataType]:
    """The columns of an input."""
    inputs = inputs_of(compiled)
    return {name: inputs.dtypes[name] for name in inputs.stored_columns}


def _seed_types(compiled: CompiledView) -> dict[str, DataType]:
    """The columns of a seed beside its key: its number, then the fields of its state, in their order."""
    checkpoints = checkpoints_of(compiled)
    if checkpoints is None:
        return {}
    return {n: t for n, t in checkpoints.dtypes.items() if n in checkpoints.view.measures}


def _columns(types: _Types, prefix: str = "") -> sql.Composed:
    """The columns of a row `t`. A numeric has no Arrow type, so it travels as text."""
    text, plain = sql.SQL("t.{}::text AS {}"), sql.SQL("t.{} AS {}")
    return sql.SQL(", ").join(
        (text if isinstance(dtype, DecimalType) else plain).format(sql.Identifier(n), sql.Identifier(prefix + n))
        for n, dtype in types.items()
    )


def _load(plans: BatchPlans, queries: Sequence[sql.Composed], types: _Types) -> Callable[[], DataFrame]:
    """The rows that the queries select, each query in a task of its own. `types` are those of the columns in order."""
    travels = StructType([StructField(n, StringType() if isinstance(t, DecimalType) else t) for n, t in types.items()])
    loaded = plans.load(queries, travels)
    return lambda: loaded.select(*(F.col(n).cast(t).alias(n) for n, t in types.items()))
