"""The difference between two versions of a view, by key, as readers see their rows.

Rows are compared in the columns that both versions have. Hashes of buckets of keys are compared first, and rows only in
unequal buckets. Everything comes from one snapshot, in which both versions should be at the same positions: a record
that only one of them has counted would look like a difference.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from truelog.storage import exact_json
from truelog.storage.database import Connection, connect, names
from truelog.support import wait
from truelog.support.errors import BadInput
from truelog.support.settings import Settings
from truelog.views.catalogue import table_name

_LEVEL_SECONDS = 5.0  # how long to wait for a snapshot in which both are at the same positions
_POLL_SECONDS = 0.05
_BUCKETS = 256

_COLUMNS = """
    SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_KEY = """
    SELECT a.attname::text FROM pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
    JOIN pg_attribute a ON (a.attrelid, a.attnum) = (i.indrelid, k.number)
    WHERE i.indrelid = to_regclass(%s) AND i.indisunique ORDER BY k.place
"""
_POSITIONS = """
    SELECT topic, partition, 0 AS first_offset, next_offset FROM truelog.served_position
    WHERE (view, version) = ({}, {})
"""
_APART = """
    SELECT coalesce(sum(
        abs(coalesce(a.next_offset, 0) - coalesce(b.next_offset, 0))
        + abs(coalesce(a.first_offset, 0) - coalesce(b.first_offset, 0))
    ), 0)::bigint
    FROM ({one}) a FULL JOIN ({other}) b USING (topic, partition)
"""
_ROWS = """
    SELECT to_jsonb(_key) AS key, to_jsonb(_row) AS row,
        mod(('x' || left(md5(to_jsonb(_key)::text), 4))::bit(16)::int, {buckets}) AS bucket
    FROM {relation} AS t CROSS JOIN LATERAL (SELECT {key}) AS _key CROSS JOIN LATERAL (SELECT {shared}) AS _row
"""
_HASHES = """
    WITH one AS ({one}), other AS ({other}),
    hashed AS (
        SELECT 1 AS side, bucket, md5(row::text) AS hash FROM one UNION ALL SELECT -1, bucket, md5(row::text) FROM other
    )
    SELECT bucket, count(*) FILTER (WHERE side = 1), count(*) FILTER (WHERE side = -1),
        sum(side * ('x' || left(hash, 16))::bit(64)::bigint::numeric) <> 0
        OR sum(side * ('x' || right(hash, 16))::bit(64)::bigint::numeric) <> 0
    FROM hashed GROUP BY bucket
"""
_COUNTED = "count(*) FILTER (WHERE one IS NOT NULL AND other IS NOT NULL AND one -> {0} IS DISTINCT FROM other -> {0})"
_DIFFERENCES = """
    WITH one AS (SELECT * FROM ({one}) AS rows WHERE bucket = ANY(%(unequal)s)),
    other AS (SELECT * FROM ({other}) AS rows WHERE bucket = ANY(%(unequal)s)),
    pairs AS (
        SELECT coalesce(one.key, other.key) AS key, one.row AS one, other.row AS other
        FROM one FULL JOIN other ON one.key = other.key WHERE one.row IS DISTINCT FROM other.row
    )
    SELECT count(*) FILTER (WHERE other IS NULL), count(*) FILTER (WHERE one IS NULL),
        count(*) FILTER (WHERE one IS NOT NULL AND other IS NOT NULL), {columns},
        (SELECT coalesce(jsonb_agg(jsonb_build_object('one', one, 'other', other)), '[]')::text
         FROM (SELECT * FROM pairs ORDER BY key::text LIMIT %(limit)s) AS first)
    FROM pairs
"""


@dataclass(frozen=True)
class VersionDifference:
    """How the rows of `other` differ from the rows of `one`, both as readers see them: two versions, or a replay.

    missing, extra: keys that only `one`, or only `other`, has. different: keys whose rows differ in a shared column.
    columns: how many rows differ in each shared column. added, removed: the columns that only one of both has.
    apart: the records that only one of both has counted, which may explain differences. 0 in most snapshots.
    key: the columns of the key. sample: the first differing rows by key, with the row of each side, or None.
    """

    view: str
    one: int | str
    other: int | str
    rows: tuple[int, int]
    missing: int
    extra: int
    different: int
    columns: dict[str, int]
    added: list[str]
    removed: list[str]
    apart: int
    key: Sequence[str] = ()
    sample: list[dict[str, Any]] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.different or self.added or self.removed)

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return {**asdict(self), "equal": self.equal}


@dataclass(frozen=True)
class Side:
    """Rows that are compared: their name in the result, what readers see, the table with the key, and the positions.

    positions: SQL for the topics and partitions, with the first offset that was counted and the next one.
    """

    name: int | str
    relation: sql.Identifier
    table: sql.Identifier
    positions: sql.Composed

    @property
    def title(self) -> str:
        """The name in a sentence."""
        return f"Version {self.name}" if isinstance(self.name, int) else self.name

    @classmethod
    def of_version(cls, view: str, version: int) -> "Side":
        table = table_name(view, version)
        positions = sql.SQL(_POSITIONS).format(sql.Literal(view), sql.Literal(version))
        return cls(version, sql.Identifier("views", table), sql.Identifier("state", table), positions)


def difference(  # noqa: PLR0913 — what is compared, and how
    settings: Settings, view: str, one: int, other: int, limit: int = 20, *, seconds: int | None = None
) -> VersionDifference:
    """Compare two versions of a view, with at most `limit` differing rows as a sample.

    Raises:
        BadInput: a version has no rows that readers can see, the versions have different keys, or one of the
            statements takes longer than `seconds`.
    """
    sides = Side.of_version(view, one), Side.of_version(view, other)
    try:
        return difference_of(settings, view, *sides, limit, _LEVEL_SECONDS, seconds)
    except psycopg.errors.QueryCanceled as slow:
        cure = f"On the command line: `truelog versions diff {view} --from {one} --version {other}`."
        raise BadInput(f"The comparison takes longer than {seconds} s. {cure}") from slow


def difference_of(  # noqa: PLR0913, PLR0917 — what is compared, and how
    settings: Settings,
    view: str,
    one: Side,
    other: Side,
    limit: int,
    patience: float = 0.0,
    seconds: int | None = None,
) -> VersionDifference:
    """Like `difference`, of any two sides. `patience`: how long to wait until both are at the same positions."""
    with connect(settings, autocommit=True) as connection:
        pair = _Pair.of(connection, view, one, other)
        found: VersionDifference | None = None

        def compare(*, is_last: bool = False) -> bool:
            """Compare in the snapshot that was checked, if both are at the same positions there, or if `is_last`."""
            nonlocal found
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(f"{seconds or 0}s"))
                apart = _apart(connection, pair)
                if not apart or is_last:
                    found = _compare(connection, pair, apart, limit)
            return found is not None

        if not wait.poll(compare, patience, _POLL_SECONDS):
            compare(is_last=True)
        assert found is not None  # noqa: S101
        return found


@dataclass(frozen=True)
class _Pair:
    """Two sides of a view: the key, and the columns that both have."""

    view: str
    one: Side
    other: Side
    key: Sequence[str]
    shared: Sequence[str]
    added: list[str]
    removed: list[str]

    @classmethod
    def of(cls, connection: Connection, view: str, one: Side, other: Side) -> "_Pair":
        (key, columns), (other_key, others) = (_described(connection, view, each) for each in (one, other))
        if key != other_key:
            raise BadInput(
                f"{one.title} of {view} has the key {', '.join(key)}, and {other.title} the key "
                f"{', '.join(other_key)}, so their rows cannot be compared by key."
            )
        shared = [name for name, kind in columns.items() if others.get(name) == kind]
        added = [f"{name} {kind}" for name, kind in others.items() if name not in shared]
        return cls(view, one, other, key, shared, added, [f"{n} {t}" for n, t in columns.items() if n not in shared])

    def rows(self, side: Side) -> sql.Composed:
        return sql.SQL(_ROWS).format(
            buckets=sql.Literal(_BUCKETS),
            relation=side.relation,
            key=names(self.key, "t."),
            shared=names(self.shared, "t."),
        )


def _described(connection: Connection, view: str, side: Side) -> tuple[list[str], dict[str, str]]:
    """The key of a side, and the types of the columns that readers see."""
    relation, table = side.relation.as_string(connection), side.table.as_string(connection)
    columns: dict[str, str] = dict(connection.execute(_COLUMNS, (relation,)).fetchall())
    if not columns:
        raise BadInput(f"{side.title} of {view} has no rows that readers can see: see `truelog versions list`.")
    return [name for (name,) in connection.execute(_KEY, (table,)).fetchall()], columns


def _apart(connection: Connection, pair: _Pair) -> int:
    query = sql.SQL(_APART).format(one=pair.one.positions, other=pair.other.positions)
    found = connection.execute(query).fetchone()
    assert found is not None  # noqa: S101
    return int(str(found[0]))


def _compare(connection: Connection, pair: _Pair, apart: int, limit: int) -> VersionDifference:
    both = {"one": pair.rows(pair.one), "other": pair.rows(pair.other)}
    hashed = connection.execute(sql.SQL(_HASHES).format(**both)).fetchall()
    rows = sum(int(str(row[1])) for row in hashed), sum(int(str(row[2])) for row in hashed)
    unequal = [row[0] for row in hashed if row[3]]
    values = [name for name in pair.shared if name not in pair.key]
    counted = [sql.SQL(_COUNTED).format(sql.Literal(name)) for name in values]
    columns = sql.SQL("jsonb_build_array({})").format(sql.SQL(", ").join(counted))
    query = sql.SQL(_DIFFERENCES).format(**both, columns=columns)
    found = connection.execute(query, {"unequal": unequal, "limit": limit}).fetchone()
    assert found is not None  # noqa: S101
    missing, extra, different, by_column, sample = found
    changed = {name: count for name, count in zip(values, by_column, strict=True) if count}
    return VersionDifference(
        pair.view,
        pair.one.name,
        pair.other.name,
        rows,
        missing,
        extra,
        different,
        changed,
        pair.added,
        pair.removed,
        apart,
        pair.key,
        exact_json.read(sample),
    )
