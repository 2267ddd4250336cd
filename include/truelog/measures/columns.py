"""Column types that Spark and PostgreSQL share, their SQL names, and the canonical form of their values."""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampType,
)

from truelog.support.errors import BadDeclaration

_PLAIN: dict[type[DataType], str] = {
    StringType: 'text COLLATE "C"',
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    BooleanType: "boolean",
    DateType: "date",
    TimestampType: "timestamptz",
    FloatType: "real",
    DoubleType: "double precision",
    BinaryType: "bytea",
}


# The values that PostgreSQL can store: microseconds and days since 1970. Spark has more.
_FIRST_INSTANT = -210_866_803_200_000_000
_DAYS = (-2_440_588, 2_145_042_905)

LONGEST = 4 * 2**20  # bytes of one value; Kafka's records are shorter, and PostgreSQL stores rows of up to 1 GB
_ELEMENT_BYTES = 24  # of an array's element, besides its text

_HASH_BYTES = len(" …".encode()) + 32
_LONGEST_CHARACTER = 4  # bytes, in UTF-8


class ColumnTypes:
    """Groups of types: the types that a key column may have, the types with an order, and whole numbers."""

    KEY = (StringType, ByteType, ShortType, IntegerType, LongType, BooleanType, DateType, TimestampType, DecimalType)
    ORDERED = (*KEY, FloatType, DoubleType)
    WHOLE = (ByteType, ShortType, IntegerType, LongType)


def sql_type(dtype: DataType) -> str:
    """The PostgreSQL type for a Spark type. Text is compared by its bytes, as in Spark."""
    if isinstance(dtype, DecimalType):
        return f"numeric({dtype.precision},{dtype.scale})"
    if isinstance(dtype, ArrayType) and not isinstance(dtype.elementType, ArrayType):  # PostgreSQL has no ragged arrays
        element, collate, rule = sql_type(dtype.elementType).partition(" COLLATE ")
        return f"{element}[]{collate}{rule}"
    if type(dtype) not in _PLAIN:
        raise BadDeclaration(f"PostgreSQL has no column type for {dtype.simpleString()}; select its fields one by one.")
    return _PLAIN[type(dtype)]


def clean(value: Column, dtype: DataType) -> Column:
    """The canonical form of a value: valid text without U+0000, which PostgreSQL cannot store, and no negative zero.

    A time that PostgreSQL cannot store has no canonical form, so it raises an error and its record is excluded.
    """
    if isinstance(dtype, StringType):
        # Cheap, unlike `translate`. Without generated code, `is_valid_utf8` searches for its Java method in each row.
        is_clean = F.try_validate_utf8(value).isNotNull() & ~F.contains(value, F.lit("\0"))
        return F.when(is_clean, value).otherwise(F.translate(value, "\0", "\u2400"))  # also replaces invalid UTF-8
    if isinstance(dtype, TimestampType):
        return _storable(value, F.unix_micros(value) >= _FIRST_INSTANT)
    if isinstance(dtype, DateType):
        return _storable(value, F.unix_date(value).between(*_DAYS))
    if isinstance(dtype, FloatType | DoubleType):
        return F.when(value == 0, F.lit(0.0).cast(dtype)).otherwise(value)
    if isinstance(dtype, ArrayType):
        return F.transform(value, lambda element: clean(element, dtype.elementType))
    return value


def _storable(value: Column, condition: Column) -> Column:
    return require(value, condition, F.concat(F.lit("PostgreSQL cannot store the time "), value.cast("string")))


def float_bits(value: Column) -> Column:
    """The 64 bits of a float as a bigint. All NaNs have the same bits, and so do both zeros; NULL has none."""
    positive_zero = value.cast("double") + F.lit(0.0)
    bits = F.reflect(F.lit("java.lang.Double"), F.lit("doubleToLongBits"), positive_zero).cast("bigint")
    return F.when(value.isNotNull(), bits)


def limited(value: Column, dtype: DataType, most: int = LONGEST) -> Column:
    """A value of at most `most` bytes. A longer value raises an error, because a row must not exceed 1 GB."""
    size = _size(value, dtype)
    if size is None:
        return value
    return require(value, size <= most, F.concat(size, F.lit(f" bytes are too long: the limit is {most} bytes")))


def _size(value: Column, dtype: DataType) -> Column | None:
    """The bytes of a text or of an array's elements; None if all values of this type are short."""
    if isinstance(dtype, StringType | BinaryType):
        return F.octet_length(value)
    if isinstance(dtype, ArrayType):

        def plus(total: Column, element: Column) -> Column:
            size = _size(element, dtype.elementType)
            return total + _ELEMENT_BYTES + (0 if size is None else F.coalesce(size, F.lit(0)))

        return F.aggregate(value, F.lit(0).cast("bigint"), plus)
    return None


def require(value: Column, condition: Column, refusal: Column) -> Column:
    """The value if it is NULL or meets the condition; otherwise an error, so that its record is excluded."""
    return F.when(value.isNull() | condition, value).otherwise(F.raise_error(refusal))


def comparable(array: Column) -> Column:
    """The canonical form of an array whose order has no meaning."""
    return F.sort_array(array)


def combined(ordered: Column, same: Callable[[Column], Column], combine: Callable[[Column], Column]) -> Column:
    """Neighbours of an array for which `same` is equal → what `combine` makes of the array of them.

    An empty array becomes NULL.
    """

    def begins(element: Column, i: Column) -> Column:
        before = F.get(ordered, i - 1)  # NULL before the first
        return F.when(same(before).eqNullSafe(same(element)), None).otherwise(i)

    def between(begins_at: Column) -> Column:
        ends_at = F.concat(F.slice(begins_at, 2, F.size(ordered)), F.array(F.size(ordered)))
        return F.zip_with(begins_at, ends_at, lambda begin, end: combine(F.slice(ordered, begin + 1, end - begin)))

    # The only element of an array is computed once, wherever `between` uses it.
    found = F.flatten(F.transform(F.array(F.array_compact(F.transform(ordered, begins))), between))
    return F.when(F.size(ordered) > 0, found)


def bounded(text: Column, max_bytes: int) -> Column:
    """Text of at most `max_bytes`: longer text is cut, and a hash of the whole text keeps it distinct."""
    start = F.substring(text, 1, (max_bytes - _HASH_BYTES) // _LONGEST_CHARACTER)
    shortened = F.concat(start, F.lit(" …"), F.md5(text.cast("binary")))
    return F.when(F.octet_length(text) > max_bytes, shortened).otherwise(text)
