"""The row encoding and the row hash are fixed: Spark, PostgreSQL and plain Python compute the numbers in this file.

Certificates contain these hashes and are valid for years. A change to any hash makes every certificate worthless and
requires a new `FORMAT` in `truelog.reconcile.certificate`.
"""

import hashlib
import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from psycopg import sql
from pyspark.sql import types as t

from tests.beds.lab import Lab
from truelog import Latest, View
from truelog.measures import columns
from truelog.storage.database import names
from truelog.support.errors import BadDeclaration
from truelog.tables import deploy as table
from truelog.tables import table_hash
from truelog.tables.table import Table

NAN, INFINITY = math.nan, math.inf
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
HOSTILE = "😀𐍈e\u0301\u2400\r\n\t'\"\\{},:- NULL"

PLAIN: dict[str, t.DataType] = {
    "tiny": t.ByteType(),
    "small": t.ShortType(),
    "whole": t.IntegerType(),
    "large": t.LongType(),
    "flag": t.BooleanType(),
    "day": t.DateType(),
    "moment": t.TimestampType(),
    "short": t.FloatType(),
    "float": t.DoubleType(),
    "bytes": t.BinaryType(),
    "words": t.StringType(),
    "sum": t.DecimalType(38, 0),
    "money": t.DecimalType(38, 18),
}
COLUMNS = PLAIN | {f"{name}_list": t.ArrayType(kind) for name, kind in PLAIN.items()}

LEAST = {
    "tiny": -(2**7), "small": -(2**15), "whole": -(2**31), "large": -(2**63), "flag": False, "day": date(1, 1, 1),
    "moment": FIRST, "short": -3.4028234663852886e38, "float": -1.7976931348623157e308, "bytes": b"\x00",
    "words": "\u0001", "sum": Decimal("-" + "9" * 38), "money": Decimal("-99999999999999999999.999999999999999999"),
}  # fmt: skip
GREATEST = {
    "tiny": 2**7 - 1, "small": 2**15 - 1, "whole": 2**31 - 1, "large": 2**63 - 1, "flag": True,
    "day": date(9999, 12, 31), "moment": LAST, "short": 1.401298464324817e-45, "float": 5e-324,
    "bytes": bytes(range(256)), "words": HOSTILE, "sum": Decimal("9" * 38),
    "money": Decimal("0.000000000000000001"),
}  # fmt: skip
ZERO = {
    "tiny": 0, "small": 0, "whole": 0, "large": 0, "flag": False, "day": EPOCH.date(), "moment": EPOCH, "short": 0.0,
    "float": 0.0, "bytes": b"", "words": "", "sum": Decimal(0), "money": Decimal(0),
}  # fmt: skip


def lists(*rows: dict[str, Any]) -> dict[str, list[Any]]:
    """Each column's values in these rows, as one array."""
    return {f"{name}_list": [row.get(name) for row in rows] for name in PLAIN}


# By key: the values of the columns that are not NULL. Keys 1 and 354 are in the same bucket.
VECTORS: dict[int, dict[str, Any]] = {
    1: {},
    2: ZERO | lists(),
    3: ZERO | lists() | {"short": -0.0, "float": -0.0},
    4: {"short": NAN, "float": NAN} | lists({"float": NAN}, {"float": -0.0}, {"short": INFINITY}),
    5: {"short": INFINITY, "float": -INFINITY},
    6: LEAST | lists(LEAST),
    7: GREATEST | lists(LEAST, {}, GREATEST),
    8: {"moment": EPOCH - timedelta(microseconds=1), "day": date(1969, 12, 31), "words": "-"},
    9: {"words": "1:a-", "words_list": ["", None, "-", "1:-"]},
    10: {"words_list": [None]},
    354: {"words_list": ["", ""], "float": 0.1},
    -(2**31): {"short": 0.5, "money": Decimal("1.5"), "sum": Decimal(12), "flag": True},
}
# By bucket: the number of rows, and the sum of their hashes.
GOLDEN = {
    32: (1, "5cd681f1d485e4049d1cf3067bf9c4d3"),
    46: (1, "a8f1a40d4a016a8c470a9cca5f531998"),
    100: (1, "4446caaedd8521d4c57a6c8734d081f0"),
    106: (1, "15406c1854ce4dd39ae377aad20cd899"),
    129: (1, "33e215dedbb48d66c36049a17169f451"),
    133: (1, "991c3df10d8345f617f64f0f05cd381a"),
    144: (1, "ad7ef15c2d64cd790380e8941e42fcfb"),
    145: (1, "4b01c905bb54210fb8dc251035cc8863"),
    189: (2, "c9ba14b55affd0d0e759f7919d238315"),
    228: (1, "edb3803d9280caf6cffd3c89cdfc6075"),
    244: (1, "353bf847600dedc7bfb0405de0cd62b3"),
}


def encoded(value: Any, kind: t.DataType) -> str:
    """A value prefixed with its length, in plain Python."""
    if value is None:
        return "-"
    written = text(value, kind)
    return f"{len(written.encode())}:{written}"


def text(value: Any, kind: t.DataType) -> str:
    if isinstance(kind, t.ArrayType):
        return "".join(encoded(each, kind.elementType) for each in value)
    if isinstance(kind, t.DecimalType):
        return f"{value:.{kind.scale}f}"
    return TEXTS.get(type(kind), str)(value)


def bits(value: float) -> str:
    return "7ff8000000000000" if math.isnan(value) else struct.pack(">d", value + 0.0).hex()


TEXTS: dict[type[t.DataType], Callable[[Any], str]] = {
    t.FloatType: bits,
    t.DoubleType: bits,
    t.TimestampType: lambda value: str((value - EPOCH) // timedelta(microseconds=1)),
    t.DateType: lambda value: str((value - EPOCH.date()).days),
    t.BinaryType: lambda value: bytes(value).hex(),
    t.BooleanType: lambda value: str(value).lower(),
}

KINDS: dict[str, t.DataType] = {
    "id": t.IntegerType(),
    "last_at": t.TimestampType(),
    "last_topic": t.StringType(),
    "last_partition": t.IntegerType(),
    "last_offset": t.LongType(),
    "last_deleted": t.BooleanType(),
    **COLUMNS,
}
ROWS = [tuple(({"id": key} | values).get(name) for name in KINDS) for key, values in VECTORS.items()]


def naive(rows: list[tuple[Any, ...]]) -> dict[int, tuple[int, str]]:
    """Each bucket's number of rows, and the sums of the two halves of the row hashes."""
    found: dict[int, tuple[int, int, int]] = {}
    for row in rows:
        hashed = hashlib.md5("".join(map(encoded, row, KINDS.values())).encode()).digest()
        key = hashlib.md5(encoded(row[0], KINDS["id"]).encode()).digest()
        bucket = int.from_bytes(key[:2]) % table_hash.BUCKETS
        n, high, low = found.get(bucket, (0, 0, 0))
        found[bucket] = (n + 1, high + int.from_bytes(hashed[:8]), low + int.from_bytes(hashed[8:]))
    return {b: (n, f"{high % 2**64:016x}{low % 2**64:016x}") for b, (n, high, low) in found.items()}


def hashes(digests: table_hash.TableHash) -> dict[int, tuple[int, str]]:
    return {bucket: (each.rows, each.hash) for bucket, each in digests.items()}


def test_the_vectors_have_every_type_that_a_view_may_store() -> None:
    assert {type(kind) for kind in PLAIN.values()} == {*columns._PLAIN, t.DecimalType}


def test_an_array_of_arrays_is_no_column() -> None:
    """PostgreSQL requires arrays of arrays to be rectangular, and `unnest` flattens them completely."""
    with pytest.raises(BadDeclaration, match="no column type for array<array<int>>"):
        columns.sql_type(t.ArrayType(t.ArrayType(t.IntegerType())))


def test_plain_python_computes_the_golden_numbers() -> None:
    assert naive(ROWS) == GOLDEN
    assert {rows for rows, _ in GOLDEN.values()} == {1, 2}


def test_both_engines_compute_the_golden_numbers(lab: Lab) -> None:
    every = t.StructType([t.StructField(name.removeprefix("last_"), kind) for name, kind in list(KINDS.items())[1:]])
    view = View(reads=(), transform=lambda none: none, key=("id",), measures={"last": Latest()})
    golden = Table("golden", view, {"id": KINDS["id"], "last": every}, "")
    assert list(golden.stored_columns) == list(KINDS)

    schema = t.StructType([t.StructField(name, kind) for name, kind in KINDS.items()])
    assert hashes(table_hash.hash_frame(golden, lab.spark.createDataFrame(ROWS, schema))) == GOLDEN

    stored = sql.Identifier("recon", golden.name)
    lab.connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(stored))
    table.create_table(lab.connection, golden, "recon", golden.name)
    with lab.connection.cursor() as cursor:
        insert = sql.SQL("INSERT INTO {} ({}) VALUES ({})")
        values = sql.SQL(", ").join(sql.Placeholder() * len(KINDS))
        cursor.executemany(insert.format(stored, names(golden.stored_columns), values), ROWS)
    assert hashes(table_hash.hash_table(lab.connection, golden, stored)) == GOLDEN

    # A NaN that the processor computes has its sign bit set.
    negative = sql.SQL(
        "UPDATE {} SET float = 'Infinity'::float8 - 'Infinity' WHERE float = 'NaN' RETURNING float8send(float)"
    )
    assert lab.connection.execute(negative.format(stored)).fetchall() != [(bytes.fromhex("7ff8000000000000"),)]
    assert hashes(table_hash.hash_table(lab.connection, golden, stored)) == GOLDEN
