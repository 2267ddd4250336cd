"""Hashes a table's rows by key bucket. If the hashes of two tables are equal, the tables contain the same rows.

PostgreSQL and Spark encode a row as the same text and hash the text to 128 bits. A bucket hash consists of the number
of rows and the sums of both halves of the row hashes, so the row order does not matter. The encoding writes the length
of each value before the value. This distinguishes different rows, and NULL from an empty text. Values that compare as
equal have the same encoding: all NaNs, and both zeros. docs/certificates.md specifies the encoding for other
implementations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    TimestampType,
)

from truelog.measures.columns import float_bits
from truelog.storage.database import Connection
from truelog.tables.row_filter import RowFilter
from truelog.tables.table import Table

# The bits of a float. All NaNs have the same encoding, and so do both zeros.
_FLOAT_SQL = (
    "CASE WHEN {0}::double precision = 'NaN' THEN '7ff8000000000000' "
    "ELSE encode(float8send({0}::double precision + 0), 'hex') END"
)
BUCKETS = 256  # the first 16 bits of the key's hash choose the bucket
_NULL = "-"
_HALF = 1 << 64


@dataclass(frozen=True)
class BucketHash:
    """The number of rows in a bucket, and the sums of the high and low halves of the row hashes modulo 2^64."""

    rows: int
    high: int
    low: int

    @staticmethod
    def of(rows: object, high: object, low: object) -> "BucketHash":
        """The hash from sums as an engine returns them."""
        return BucketHash(int(str(rows)), int(str(high)) % _HALF, int(str(low)) % _HALF)

    @staticmethod
    def parse(rows: int, text: str) -> "BucketHash":
        """The hash with these rows and the text of `hash`."""
        return BucketHash(rows, int(text[:16], 16), int(text[16:], 16))

    @property
    def hash(self) -> str:
        """Both sums as 32 hex digits."""
        return f"{self.high:016x}{self.low:016x}"

    def __add__(self, other: "BucketHash") -> "BucketHash":
        return BucketHash(self.rows + other.rows, (self.high + other.high) % _HALF, (self.low + other.low) % _HALF)

    def __sub__(self, other: "BucketHash") -> "BucketHash":
        return BucketHash(self.rows - other.rows, (self.high - other.high) % _HALF, (self.low - other.low) % _HALF)


NO_ROWS = BucketHash(0, 0, 0)

TableHash = Mapping[int, BucketHash]  # empty buckets are absent


def unequal_buckets(one: TableHash, other: TableHash) -> list[int]:
    """The buckets whose hashes differ."""
    return sorted(bucket for bucket in one.keys() | other.keys() if one.get(bucket) != other.get(bucket))


def count_rows(digests: TableHash) -> int:
    return sum(each.rows for each in digests.values())


def sum_of(hashes: Iterable[BucketHash]) -> BucketHash:
    """The hash of the rows of several buckets."""
    return sum(hashes, NO_ROWS)


def total(hashes: Iterable[TableHash]) -> TableHash:
    """The hash of all rows, given the hashes of parts of a table."""
    sums: dict[int, BucketHash] = {}
    for part in hashes:
        for number, each in part.items():
            sums[number] = sums.get(number, NO_ROWS) + each
    return sums


def replaced(whole: TableHash, before: TableHash, after: TableHash) -> TableHash:
    """The hash of a table in which other rows have replaced some of its rows."""
    added = total([whole, after])
    left = {number: each - before.get(number, NO_ROWS) for number, each in added.items()}
    return {number: each for number, each in left.items() if each != NO_ROWS}


def hash_table(connection: Connection, table: Table, rows: sql.Composable) -> TableHash:
    """Hash the rows of a PostgreSQL table with the columns of `table`."""
    query = sql.SQL(
        "SELECT bucket, count(*), sum(('x' || left(hash, 16))::bit(64)::bigint::numeric), "
        "sum(('x' || right(hash, 16))::bit(64)::bigint::numeric) "
        "FROM (SELECT {bucket} AS bucket, md5({row}) AS hash FROM {table}) AS hashed GROUP BY bucket"
    ).format(bucket=bucket_sql(table), row=_row_sql(table.stored_columns), table=rows)
    found = connection.execute(query).fetchall()
    return {int(str(number)): BucketHash.of(*sums) for number, *sums in found}


def hash_frame(table: Table, stored: DataFrame) -> TableHash:
    """Hash a Spark frame that has the table's stored columns."""
    return hash_parts(table, stored, F.lit(0)).get(0, {})


def hash_parts(table: Table, stored: DataFrame, part: Column) -> dict[int, TableHash]:
    """Hash the parts of a Spark frame that has the table's stored columns. `part` numbers the part of each row."""
    row, place = F.md5(_row(stored, stored.columns)).alias("hash"), bucket(table, stored).alias("bucket")
    hashed = stored.select(part.alias("part"), place, row)
    halves = (F.conv(F.substring("hash", at, 16), 16, -10).cast("decimal(20,0)") for at in (1, 17))
    sums = (F.sum(half).alias(name) for half, name in zip(halves, ("high", "low"), strict=True))
    parts: dict[int, dict[int, BucketHash]] = {}
    for each in hashed.groupBy("part", "bucket").agg(F.count(F.lit(1)).alias("rows"), *sums).collect():
        parts.setdefault(each.part, {})[each.bucket] = BucketHash.of(each.rows, each.high, each.low)
    return dict(parts)


def bucket_sql(table: Table) -> sql.Composable:
    """A row's bucket as a PostgreSQL expression."""
    return sql.SQL("('x' || left({}, 4))::bit(16)::integer % {}").format(key_sql(table), sql.Literal(BUCKETS))


def key_sql(table: Table) -> sql.Composable:
    """The hash of a row's key as a PostgreSQL expression."""
    return sql.SQL("md5({})").format(_row_sql(table.key_columns))


def rows_in_buckets(table: Table, buckets: Sequence[int]) -> RowFilter:
    """A filter that keeps the rows of these buckets."""
    return lambda rows: rows.where(bucket(table, rows).isin(list(buckets)))


def rows_with_keys(spark: SparkSession, table: Table, hashes: Iterable[str]) -> RowFilter:
    """A filter that selects the rows whose keys have these hashes."""
    wanted = F.broadcast(spark.createDataFrame([(each,) for each in hashes], "_hash string"))
    return lambda rows: rows.join(wanted, key(table, rows) == wanted["_hash"], "left_semi")


def bucket(table: Table, frame: DataFrame) -> Column:
    """A row's bucket as a Spark column."""
    return (F.conv(F.substring(key(table, frame), 1, 4), 16, 10).cast("int") % BUCKETS).cast("int")


def key(table: Table, frame: DataFrame) -> Column:
    """The hash of a row's key as a Spark column."""
    return F.md5(_row(frame, table.view.key))


def _row_sql(columns: Mapping[str, str]) -> sql.Composable:
    return sql.SQL(" || ").join(_with_length_sql(_text_sql(sql.Identifier(c), t)) for c, t in columns.items())


def _with_length_sql(text: sql.Composable) -> sql.Composable:
    encoded = sql.SQL("octet_length({0}) || ':' || {0}").format(text)
    return sql.SQL("coalesce({}, {})").format(encoded, sql.Literal(_NULL))


def _text_sql(value: sql.Composable, kind: str) -> sql.Composable:
    if "[]" in kind:
        element = _with_length_sql(_text_sql(sql.SQL("e"), kind.replace("[]", "", 1)))
        return sql.SQL(
            "CASE WHEN {value} IS NOT NULL THEN (SELECT coalesce(string_agg({element}, '' ORDER BY i), '') "
            "FROM unnest({value}) WITH ORDINALITY AS elements(e, i)) END"
        ).format(value=value, element=element)
    forms = {
        "timestamptz": "(extract(epoch FROM {0}) * 1000000)::bigint::text",
        "date": "({0} - date '1970-01-01')::text",
        "real": _FLOAT_SQL,
        "double precision": _FLOAT_SQL,
        "bytea": "encode({0}, 'hex')",
    }
    return sql.SQL(forms.get(kind, "{0}::text")).format(value)


def _row(frame: DataFrame, columns: Sequence[str]) -> Column:
    texts = (_text(F.col(c), frame.schema[c].dataType) for c in columns)
    return F.concat(*(_with_length(text) for text in texts)).cast("binary")


def _with_length(text: Column) -> Column:
    encoded = F.concat(F.octet_length(text).cast("string"), F.lit(":"), text)
    return F.coalesce(encoded, F.lit(_NULL))


def _text(value: Column, kind: DataType) -> Column:
    if isinstance(kind, ArrayType):
        return F.array_join(F.transform(value, lambda e: _with_length(_text(e, kind.elementType))), "")
    return _FORMS.get(type(kind), _as_string)(value)


def _as_string(value: Column) -> Column:
    return value.cast("string")


def _bits(value: Column) -> Column:
    """The bits of a float, because Java and PostgreSQL print floats differently."""
    return F.lower(F.lpad(F.hex(float_bits(value)), 16, "0"))


_FORMS: dict[type[DataType], Callable[[Column], Column]] = {
    TimestampType: lambda value: F.unix_micros(value).cast("string"),
    DateType: lambda value: F.unix_date(value).cast("string"),
    FloatType: _bits,
    DoubleType: _bits,
    BinaryType: lambda value: F.lower(F.hex(value)),
}
