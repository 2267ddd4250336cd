"""Joins: when rows of a table change, the tables that follow from it change by the difference.

The tables of a Join are processed one after another, each before the tables that follow from it. For each table:

1. note the rows with the keys that are about to change, with weight -1 (`changing`)
2. change the table
3. note the rows with these keys again, with weight +1; unchanged rows cancel out
4. match the noted rows with the other tables as they are now, and keep the resulting counts for the tables that follow

Step 4 sees the earlier tables after their change and the later ones before it, so the differences add up to
`Q(new tables) - Q(old tables)` exactly. A match may contain a table A several times. With the noted rows D, the
difference is then `Q(A, A) - Q(A - D, A - D) = Q(D, A) + Q(A, D) - Q(D, D)`, and so on for more than two.

Everything happens in the merge's transaction.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, combinations

from psycopg import sql

from truelog.measures.columns import sql_type
from truelog.storage.database import Connection, definitions, names
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.join.compile import Joined, joined_of, live_sql, relation
from truelog.tables.stage import NO_ROWS, StagedRows
from truelog.tables.table import Table
from truelog.views.join import Match, split

_PENDING = StagedRows(("changes",), 0, 0)  # the staged counts that follow from earlier tables
_WEIGHT = "_weight"
_MANY = 100  # noted rows, above which the wrong order of a match is slow


def create(connection: Connection, compiled: CompiledView) -> None:
    """Create what a Join needs beside its tables: a table for noted rows, and an index for each match."""
    for table in compiled.tables:
        if not _followers(compiled, table):
            continue
        columns = {name: sql_type(dtype) for name, dtype in relation(table).items()} | {_WEIGHT: "int NOT NULL"}
        noted = sql.SQL("CREATE UNLOGGED TABLE {} ({})")
        connection.execute(noted.format(_changes(table), definitions(columns)))
        for number, looked_up_by in enumerate(_looked_up_by(compiled, table)):
            index = sql.Identifier(f"{table.name}_{number}")
            connection.execute(sql.SQL("CREATE INDEX {} ON {} ({})").format(index, _state(table), names(looked_up_by)))
            connection.execute(sql.SQL("CREATE INDEX ON {} ({})").format(_changes(table), names(looked_up_by)))
        connection.execute(sql.SQL("CREATE INDEX ON {} ({})").format(_changes(table), names(table.key_columns)))


def add_batch(connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
    """Add staged rows to the sides, and change the tables that follow from them."""
    for table in in_order(compiled):
        rows = staged.sides.get(table.side, NO_ROWS)
        if table.derivation is not None:
            settle(connection, compiled, table)
        elif rows.attempts:
            with changing(connection, compiled, table, _staged_keys(table, sql.Placeholder("attempts")), rows):
                stage.add(connection, table, "state", rows)


def settle(connection: Connection, compiled: CompiledView, table: Table) -> None:
    """Add to a table of counts what follows from the changes of earlier tables, and delete the rows without a match."""
    keys = pending_keys(table)
    if connection.execute(sql.SQL("SELECT FROM ({}) AS pending LIMIT 1").format(keys)).fetchone() is None:
        return
    with changing(connection, compiled, table, keys):
        _add_pending(connection, table)
        no_match = (sql.SQL("{} = 0").format(sql.Identifier(name)) for name in table.view.measures)
        with stage.by_index(connection):
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE {} AND ({}) IN ({})").format(
                    _state(table), sql.SQL(" AND ").join(no_match), names(table.key_columns), _fallen_keys(table)
                )
            )
    discard_pending(connection, table)


def replace_counts(connection: Connection, compiled: CompiledView, table: Table, keys: sql.Composable) -> None:
    """Compute the rows of a table of counts with these keys again, from the tables that it follows from."""
    joined = joined_of(table)
    with changing(connection, compiled, table, keys), stage.by_index(connection):
        delete = sql.SQL("DELETE FROM {} WHERE ({}) IN ({})")
        connection.execute(delete.format(_state(table), names(table.key_columns), keys))
        for name, match in joined.counts.items():
            _stage_counts(connection, table, name, _counts(table, match, _all_live(joined, match), keys))
        _add_pending(connection, table)
    discard_pending(connection, table)


def pending_keys(table: Table) -> sql.Composed:
    """The query of the keys whose counts earlier tables have changed."""
    return _staged_keys(table, sql.Literal([*_PENDING.attempts]))


def _fallen_keys(table: Table) -> sql.Composed:
    """The query of the keys that may have lost their last match: those with a pending count that is not positive.

    The matches of a timeline's new entries are all positive, and looking their rows up again would cost as much as
    adding them.
    """
    grown = (sql.SQL("{} > 0").format(sql.Identifier(name)) for name in table.view.measures)
    return sql.SQL("{} AND NOT ({})").format(pending_keys(table), sql.SQL(" OR ").join(grown))


def discard_pending(connection: Connection, table: Table) -> None:
    stage.clear_table(connection, table, _PENDING)


@contextmanager
def changing(
    connection: Connection, compiled: CompiledView, table: Table, keys: sql.Composable, staged: StagedRows = NO_ROWS
) -> Iterator[None]:
    """Change rows of a table in the block; then stage the counts that follow.

    `keys` is a query of the changed keys. Its parameter `attempts` has the attempts of `staged`, which differ in each
    batch, so that the statements do not: PostgreSQL plans a repeated statement once.
    """
    followers = _followers(compiled, table)
    if not followers:
        yield
        return
    with stage.by_index(connection):
        noted = _note(connection, table, keys, staged, weight=-1)
    yield
    with stage.by_index(connection):
        noted += _note(connection, table, keys, staged, weight=1)
        # Autovacuum sees an empty table, so PostgreSQL would expect one row and read all of them again.
        if noted > _MANY:
            connection.execute(sql.SQL("ANALYZE {}").format(_changes(table)))
        for each in followers:
            _stage_differences(connection, each, table)
    connection.execute(sql.SQL("DELETE FROM {}").format(_changes(table)))


def in_order(compiled: CompiledView) -> tuple[Table, ...]:
    """The tables of a Join, each after the tables that it follows from."""
    return *compiled.sides, compiled.own


def _followers(compiled: CompiledView, table: Table) -> list[Table]:
    """The tables that follow directly from a table."""
    return [each for each in in_order(compiled) if table.side in (before.side for before in each.follows_from)]


def _looked_up_by(compiled: CompiledView, table: Table) -> list[tuple[str, ...]]:
    """The columns by which matches look up a table, except the columns that its key begins with."""
    matches = [match for each in _followers(compiled, table) for match in joined_of(each).counts.values()]
    columns = (
        tuple(mine for mine, _ in match.pairs(name, [other]))
        for match in matches
        for name in match.names(table.side)
        for other in match.tables
    )
    return [each for each in dict.fromkeys(columns) if each and each != table.view.key[: len(each)]]


def _note(connection: Connection, table: Table, keys: sql.Composable, staged: StagedRows, *, weight: int) -> int:
    """Note the rows of a table with these keys, and return their number."""
    columns = names(relation(table))
    return connection.execute(
        sql.SQL("INSERT INTO {} ({columns}, {}) SELECT {columns}, {} FROM {} WHERE {} AND ({}) IN ({})").format(
            _changes(table),
            sql.Identifier(_WEIGHT),
            sql.Literal(weight),
            _state(table),
            sql.SQL(live_sql(table)),
            names(table.key_columns),
            keys,
            columns=columns,
        ),
        {"attempts": list(staged.attempts)},
    ).rowcount


def _stage_differences(connection: Connection, follower: Table, changed: Table) -> None:
    """Stage the counts of a table that change because of the noted rows of another."""
    joined = joined_of(follower)
    for counted, match in joined.counts.items():
        for chosen in _subsets(match.names(changed.side)):
            first, *others = chosen
            rows = _all_live(joined, match) | {each: _noted_again(changed, match, each) for each in others}
            rows[first] = _noted(changed, match, first, sign=1 if len(chosen) % 2 else -1)
            _stage_counts(connection, follower, counted, _counts(follower, match, rows))


def _subsets(found: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each subset that is not empty."""
    return chain.from_iterable(combinations(found, size) for size in range(1, len(found) + 1))


def _stage_counts(connection: Connection, table: Table, counted: str, counts: sql.Composed) -> None:
    """Stage counts for one column of a table. The other columns get 0."""
    values = (sql.Identifier(_WEIGHT) if name == counted else sql.SQL("0") for name in table.view.measures)
    connection.execute(
        sql.SQL("INSERT INTO {} (_attempt, {columns}) SELECT {}, {}, {} FROM ({}) AS counts").format(
            stage.table(table),
            sql.Literal(_PENDING.attempts[0]),
            names(table.key_columns),
            sql.SQL(", ").join(values),
            counts,
            columns=names(table.stored_columns),
        )
    )


def _add_pending(connection: Connection, table: Table) -> None:
    """Add the staged counts. A key may have several."""
    updates = (sql.SQL("{} = {}").format(sql.Identifier(c), sql.SQL(e)) for c, e in table.merged.items())
    sums = (sql.SQL("sum({})").format(sql.Identifier(name)) for name in table.view.measures)
    connection.execute(
        sql.SQL(
            "INSERT INTO {} AS t ({columns}) SELECT {key}, {} FROM {} WHERE _attempt = {} GROUP BY {key} "
            "ON CONFLICT ({key}) DO UPDATE SET {}"
        ).format(
            _state(table),
            sql.SQL(", ").join(sums),
            stage.table(table),
            sql.Literal(_PENDING.attempts[0]),
            sql.SQL(", ").join(updates),
            columns=names(table.stored_columns),
            key=names(table.key_columns),
        )
    )


def _noted(table: Table, match: Match, name: str, *, sign: int) -> sql.Composed:
    """The noted rows that fulfil the match's conditions, without the rows that cancel out."""
    return sql.SQL(
        "(SELECT {columns}, {sign} * sum({weight}) AS {weight} FROM {} WHERE {} "
        "GROUP BY {columns} HAVING sum({weight}) <> 0)"
    ).format(
        _changes(table),
        _conditions(match, name),
        columns=names(match.used(name)),
        sign=sql.Literal(sign),
        weight=sql.Identifier(_WEIGHT),
    )


def _noted_again(table: Table, match: Match, name: str) -> sql.Composed:
    """The noted rows for a further name of the same table. PostgreSQL looks them up by index."""
    return sql.SQL("(SELECT {}, {} FROM {} WHERE {})").format(
        names(match.used(name)), sql.Identifier(_WEIGHT), _changes(table), _conditions(match, name)
    )


def _all_live(joined: Joined, match: Match) -> dict[str, sql.Composed]:
    """The live rows of each table in a match."""
    return {name: _live(joined.tables[match.table(name)], match, name) for name in match.tables}


def _live(table: Table, match: Match, name: str) -> sql.Composed:
    """The rows of a table that exist and fulfil the match's conditions, each with weight 1."""
    return sql.SQL("(SELECT {}, 1 AS {} FROM {} WHERE {} AND {})").format(
        names(match.used(name)),
        sql.Identifier(_WEIGHT),
        _state(table),
        sql.SQL(live_sql(table)),
        _conditions(match, name),
    )


def _conditions(match: Match, name: str) -> sql.Composed:
    found = (
        sql.SQL("{} {} {}").format(sql.Identifier(column), sql.SQL(operator), sql.Literal(value))
        for column, operator, value in match.conditions(name)
    )
    return sql.SQL(" AND ").join([sql.SQL("true"), *found])


def _counts(
    table: Table, match: Match, rows: Mapping[str, sql.Composed], keys: sql.Composable | None = None
) -> sql.Composed:
    """The query of a match's counts by key, for these rows of its tables; limited to `keys`, if given."""
    key = {k: _column(match.key[k]) for k in table.view.key}
    conditions = [sql.SQL("{} = {}").format(_column(one), _column(other)) for one, other in match.on]
    conditions += [sql.SQL("{} IS NOT NULL").format(each) for each in key.values()]
    if keys is not None:
        conditions.append(sql.SQL("({}) IN ({})").format(sql.SQL(", ").join(key.values()), keys))
    return sql.SQL("SELECT {}, sum({}) AS {} FROM {} WHERE {} GROUP BY {}").format(
        sql.SQL(", ").join(sql.SQL("{} AS {}").format(each, sql.Identifier(k)) for k, each in key.items()),
        sql.SQL(" * ").join(_column(f"{each}.{_WEIGHT}") for each in match.tables),
        sql.Identifier(_WEIGHT),
        sql.SQL(", ").join(sql.SQL("{} AS {}").format(rows[each], sql.Identifier(each)) for each in match.tables),
        sql.SQL(" AND ").join(conditions),
        sql.SQL(", ").join(key.values()),
    )


def _staged_keys(table: Table, attempts: sql.Composable) -> sql.Composed:
    """The query of the keys of the rows that these attempts have staged."""
    return sql.SQL("SELECT {} FROM {} WHERE _attempt = ANY({})").format(
        names(table.key_columns), stage.table(table), attempts
    )


def _column(column: str) -> sql.Identifier:
    return sql.Identifier(*split(column))


def _state(table: Table) -> sql.Identifier:
    return sql.Identifier("state", table.name)


def _changes(table: Table) -> sql.Identifier:
    return sql.Identifier("stage", f"{table.name}{stage.CHANGES}")
