"""Exports the rows of a view as Parquet, with typed columns."""

import re
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from truelog.exports.rows import Rows
from truelog.storage import exact_json
from truelog.support.errors import BadInput

_ROWS = 10_000  # in a row group
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_PLAIN = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp with time zone": pa.timestamp("us", tz="UTC"),
}
_TEXT = pa.string()


def write_parquet(found: Rows, file: IO[bytes]) -> None:
    """Write the rows. A column whose type is not listed here becomes text: as it is, or as JSON.

    Raises:
        BadInput: Parquet cannot store one of the values.
    """
    types = [_arrow_type(str(each["type"])) for each in found.columns]
    schema = pa.schema(list(zip(found.names, types, strict=True)))
    with pq.ParquetWriter(file, schema) as writer:
        while rows := list(islice(found.rows, _ROWS)):
            columns = [_array(*each) for each in zip(found.names, types, zip(*rows, strict=True), strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _arrow_type(type_: str) -> pa.DataType:
    if type_.endswith("[]"):
        return pa.list_(_arrow_type(type_.removesuffix("[]")))
    if decimal := _NUMERIC.fullmatch(type_):
        return pa.decimal128(*map(int, decimal.groups()))
    return _PLAIN.get(type_, _TEXT)


def _array(name: str, type_: pa.DataType, texts: Iterable[str | None]) -> pa.Array:
    convert = _converter(type_)
    try:
        return pa.array([None if text is None else convert(exact_json.read(text)) for text in texts], type_)
    except (ValueError, pa.ArrowException) as wrong:
        raise BadInput(f"Parquet cannot store a value of {name}: {wrong}. Use CSV or JSON") from wrong


def _converter(type_: pa.DataType) -> Callable[[Any], Any]:
    """How to convert a JSON value to a value that Arrow converts to this type."""
    if pa.types.is_list(type_):
        convert = _converter(type_.value_type)
        return lambda values: [None if each is None else convert(each) for each in values]
    converters: dict[pa.DataType, Callable[[Any], Any]] = {
        pa.float32(): float,  # NaN and infinity are text in JSON
        pa.float64(): float,
        pa.binary(): lambda text: bytes.fromhex(text.removeprefix("\\x")),
        pa.date32(): date.fromisoformat,
        pa.timestamp("us", tz="UTC"): datetime.fromisoformat,
        pa.string(): exact_json.text,
    }
    if pa.types.is_decimal(type_):
        return lambda value: Decimal(exact_json.text(value))
    return converters.get(type_, lambda value: value)
