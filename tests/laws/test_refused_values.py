"""Values that PostgreSQL refuses: each has a canonical form that PostgreSQL stores, or its record is excluded.

The transform alone decides, without a database. Streams, rebuilds and certificates therefore exclude the same records.
"""

from collections.abc import Mapping, Sequence

import pytest
from psycopg import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from tests.laws.bench import Bench, make_bench, starting
from tests.nightly_cases import nightly_except
from truelog import First, Latest, Max, Min, Sum, View, latest
from truelog.kernel import bad_records
from truelog.measures import columns
from truelog.measures.measure import Measure
from truelog.storage.database import names


def _holding(*held: tuple[Measure, str], keys: Sequence[str] = ("'all'",)) -> View:
    """A view with these measures of these values, and these values as its key."""

    def transform(page_view: DataFrame) -> DataFrame:
        key = (F.expr(value).alias(f"key{n}") for n, value in enumerate(keys))
        values = (_selected(measure, value, f"held{n}").alias(f"held{n}") for n, (measure, value) in enumerate(held))
        return page_view.select(*key, F.lit(1).alias("views"), *values)

    measures: Mapping[str, Measure] = {"views": Sum()} | {f"held{n}": measure for n, (measure, _) in enumerate(held)}
    return View(
        reads=("page_view",),
        transform=transform,
        key=tuple(f"key{n}" for n in range(len(keys))),
        measures=measures,
    )


def _selected(measure: Measure, value: str, name: str) -> Column:
    return latest("offset", **{f"{name}_value": F.expr(value)}) if isinstance(measure, Latest) else F.expr(value)


def _seventh(hostile: str, fine: str) -> str:
    return f"CASE WHEN offset = 7 THEN {hostile} ELSE {fine} END"


def _require_excluded(bench: Bench, reason: str) -> None:
    """Require that record 7 alone was excluded, for this reason, and that the transform alone shows why."""
    assert (bench.counted(), bench.excluded()) == (19, [7])
    query = "SELECT error FROM truelog.exclusion WHERE view = %s"
    [(error,)] = bench.lab.connection.execute(query, (bench.compiled.name,)).fetchall()
    assert reason in str(error)
    assert bad_records.unfounded_exclusions(bench.compiled, bench.events(0, 20), [("page_view", 0, 7)]) == []


_PATTERN = _seventh("'('", "'a'")
_LARGE = f"CAST('1{'0' * 28}' AS DECIMAL(38,0))"
_REFUSED = {
    "a sum that would overflow": (_holding((Sum(), _seventh(_LARGE, "CAST(1 AS DECIMAL(38,0))"))), "a sum cannot take"),
    "the same with a fraction": (
        _holding((Sum(), _seventh(f"-{_LARGE}/10", "CAST(1 AS DECIMAL(38,1))"))),
        "a sum cannot take",
    ),
    "a long text": (_holding((Max(), _seventh("repeat('x', 4194305)", "'x'"))), "4194305 bytes"),
    "long bytes": (_holding((Latest(), _seventh("CAST(repeat('x', 4194305) AS BINARY)", "X'00'"))), "4194305 bytes"),
    "a long array": (_holding((Latest(), _seventh("array_repeat('x', 200000)", "array('x')"))), "bytes are too long"),
    "a text that fills a state": (
        _holding((First(1_000), _seventh("struct(repeat('x', 268436) AS x)", "struct('x' AS x)"))),
        "268436 bytes",
    ),
    "an early time in an array": (
        _holding((Latest(), _seventh("array(timestamp_millis(-1000000000000000))", "array(event_time)"))),
        "cannot store the time",
    ),
    "a message with U+0000": (starting(_seventh("CAST('a\\u0000b' AS INT)", "1")), "CAST_INVALID_INPUT"),
    "a message that is not UTF-8": (starting(_seventh("CAST(CAST(X'ff61' AS STRING) AS INT)", "1")), "CAST_INVALID"),
    "an invalid pattern": (
        # The offset keeps Spark from compiling both patterns when it plans.
        starting(f"rlike('a', concat({_PATTERN}, left(CAST(offset AS STRING), 0)))"),
        "INVALID_PARAMETER_VALUE.PATTERN",
    ),
    "an invalid format": (
        starting("format_string(CASE WHEN offset = 7 THEN '%q' ELSE 'a' END, offset)"),
        "UnknownFormat",
    ),
    "JSON that must be valid": (
        starting("from_json(CASE WHEN offset = 7 THEN '{' ELSE '{}' END, 'a int', map('mode', 'FAILFAST')).a"),
        "MALFORMED_RECORD",
    ),
}


# A sum, a text, a time and an error of Spark.
_OFTEN = ("a sum that would overflow", "a long text", "an early time in an array", "a message with U+0000")


@pytest.mark.parametrize("refused", nightly_except(_OFTEN, _REFUSED))
def test_the_record_of_a_refused_value_is_excluded(lab: Lab, refused: str) -> None:
    view, reason = _REFUSED[refused]
    bench = make_bench(lab, view)
    bench.apply_batch(0, 20)
    _require_excluded(bench, reason)


_CANONICAL = {
    "CAST(X'6100' AS STRING)": "a\u2400",  # U+0000
    "CAST(X'ff61' AS STRING)": "\ufffda",  # a stray byte
    "CAST(X'eda080' AS STRING)": "\ufffd",  # a lone surrogate
    "CAST(X'f48fbfbf' AS STRING)": "\U0010ffff",  # the last character
}


def test_text_that_postgresql_refuses_has_a_canonical_form(lab: Lab) -> None:
    """In a key as well as in a measure."""
    bench = make_bench(lab, _holding(*((Min(), text) for text in _CANONICAL), keys=tuple(_CANONICAL)))
    bench.apply_batch(0, 20)
    assert (bench.counted(), bench.excluded()) == (20, [])
    stored = [f"{kind}{n}" for kind in ("key", "held") for n in range(len(_CANONICAL))]
    query = sql.SQL("SELECT {} FROM {}").format(names(stored), sql.Identifier("state", bench.compiled.own.name))
    [row] = lab.connection.execute(query).fetchall()
    # Java may write several replacement characters for one.
    assert [str(text).rstrip("\ufffd") for text in row] == [text.rstrip("\ufffd") for text in _CANONICAL.values()] * 2


_GREATEST = (
    (Sum(), "CAST('9999999999999999999999999999' AS DECIMAL(38,0))"),
    (Sum(), "CAST(-9223372036854775808 AS BIGINT)"),
    (Sum(), "CAST(-128 AS TINYINT)"),
    (Max(), "CAST('99999999999999999999999999999999999999' AS DECIMAL(38,0))"),
    (Min(), "CAST('-0.00000000000000000000000000000000000001' AS DECIMAL(38,38))"),
    (Max(), "CAST('NaN' AS DOUBLE)"),
    (Min(), "CAST('-Infinity' AS FLOAT)"),
    (Max(), "repeat('x', 4194304)"),
    (Latest(), "array(CAST('NaN' AS DOUBLE), NULL, -0.0D)"),
    (Latest(), "CAST(array() AS ARRAY<STRING>)"),
    (Latest(), "array(CAST(X'00ff' AS STRING), NULL)"),
)


def test_the_greatest_values_that_postgresql_stores_are_counted(lab: Lab) -> None:
    bench = make_bench(lab, _holding(*_GREATEST))
    bench.apply_batch(0, 20)
    bench.apply_batch(20, 40)
    assert (bench.counted(), bench.excluded()) == (40, [])


def test_the_longest_keys_fit_the_index(lab: Lab) -> None:
    """31 keys of random text: incompressible, and as long as a key may be."""
    names = [f"k{n:02}" for n in range(31)]

    def transform(page_view: DataFrame) -> DataFrame:
        texts = [F.concat_ws("", *(F.sha2(F.lit(f"{name}{n}"), 512) for n in range(20))) for name in names]
        return page_view.select(*(t.alias(n) for t, n in zip(texts, names, strict=True)), F.lit(1).alias("views"))

    view = View(reads=("page_view",), transform=transform, key=tuple(names), measures={"views": Sum()})
    bench = make_bench(lab, view)
    bench.apply_batch(0, 20)
    assert (bench.counted(), bench.excluded()) == (20, [])


def test_every_type_of_a_column_is_covered_here() -> None:
    """A new type of column needs its hostile values above."""
    names = {each.__name__.removesuffix("Type") for each in columns._PLAIN}
    known = "String Byte Short Integer Long Boolean Date Timestamp Float Double Binary"
    assert names == set(known.split())
