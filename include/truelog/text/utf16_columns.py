"""UTF-16 columns: places in a text as JavaScript counts them, in native Spark expressions.

A character beyond U+FFFF, such as an emoji, is one code point and two UTF-16 units, a surrogate pair.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

_ENCODING = "UTF-16BE"
_BYTES = 2  # of a unit
_SECOND = ("DC", "DF")  # the first byte of the second unit of a pair


def encoded(text: Column) -> Column:
    """The text as bytes, which the other functions read."""
    return F.encode(text, _ENCODING)


def units(text: Column) -> Column:
    """The length of the text in UTF-16 units."""
    return (F.length(encoded(text)) / _BYTES).cast("bigint")


def splits_pair(text: Column, at: Column) -> Column:
    """Whether a place, in units, is between the two units of a surrogate pair. `text` is encoded."""
    return F.hex(F.substring(text, _byte(at) + 1, F.lit(1))).between(*_SECOND)


def code_points(text: Column, at: Column) -> Column:
    """The code points before a place, in units. A place within a pair counts as the place before it."""
    before = _byte(at) - F.when(splits_pair(text, at), _BYTES).otherwise(0)
    return F.length(F.decode(F.substring(text, F.lit(1), before), _ENCODING)).cast("bigint")


def _byte(at: Column) -> Column:
    return (at * _BYTES).cast("int")
