"""Quantiles of floats and decimals: golden buckets in Spark, and the values that PostgreSQL reads from them."""

import math
from decimal import Decimal

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

from tests.beds.lab import Lab
from truelog import Bloom, Distinct, First, Latest, Max, Min, Quantiles, Sum
from truelog.measures.columns import clean

ONE_PERCENT = Quantiles(error=0.01)  # 6 bits of the mantissa
# The exponent and the first six bits of the mantissa, as an integer.
GOLDEN = {
    0.0: 0,
    5e-324: 0,
    1.0: 65_472,
    1.5: 65_504,
    -1.0: -65_472,
    -2.5: -65_552,
    0.1: 65_254,
    123_456.789: 66_552,
    1e308: 130_951,
    math.inf: 131_008,
    -math.inf: -131_008,
    math.nan: 131_040,
}


def buckets(lab: Lab, values: list[object], dtype: str, measure: Quantiles = ONE_PERCENT) -> list[int | None]:
    frame = lab.spark.createDataFrame([(value,) for value in values], f"value {dtype}")
    kind = frame.schema["value"].dataType
    prepared = frame.select(measure.prepare(clean(F.col("value"), kind), kind).alias("bucket"))
    return [row.bucket for row in prepared.collect()]


def read(lab: Lab, bucket: int | None, bits: int = ONE_PERCENT.bits) -> float:
    query = "SELECT truelog.float_bucket_middle(%s, %s)"
    [(value,)] = lab.connection.execute(query, (bucket, bits)).fetchall()
    assert isinstance(value, float)
    return value


def test_a_float_has_the_golden_bucket(lab: Lab) -> None:
    assert buckets(lab, list(GOLDEN), "double") == list(GOLDEN.values())
    assert buckets(lab, [-0.0], "double") == [GOLDEN[0.0]]
    assert buckets(lab, [1.5, -0.0, None], "float") == [GOLDEN[1.5], 0, None]


@pytest.mark.parametrize(("value", "bucket"), GOLDEN.items(), ids=str)
def test_a_bucket_is_read_as_a_value_within_the_error(lab: Lab, value: float, bucket: int) -> None:
    found = read(lab, bucket)
    if math.isnan(value):
        assert math.isnan(found)
    else:
        assert math.isclose(found, value, rel_tol=0.01, abs_tol=1e-300)


def test_the_buckets_of_decimals_are_exact_to_their_error(lab: Lab) -> None:
    values = [Decimal("0.01"), Decimal("-99999999.99"), Decimal("12345.67"), Decimal("0.00")]
    fine = Quantiles(error=0.001)
    for value, bucket in zip(values, buckets(lab, list(values), "decimal(10,2)", fine), strict=True):
        assert math.isclose(read(lab, bucket, fine.bits), value, rel_tol=0.001)


@pytest.mark.parametrize(("precision", "scale", "value"), [(6, 2, "9999.99"), (6, 2, "-9999.99"), (38, 38, "0.999")])
def test_a_quantile_near_the_greatest_number_of_its_type_can_be_read(
    lab: Lab, precision: int, scale: int, value: str
) -> None:
    dtype = DecimalType(precision, scale)
    [bucket] = buckets(lab, [Decimal(value)], f"decimal({precision},{scale})")
    expression = ONE_PERCENT.shown("v", dtype)["v_p50"]
    query = f'SELECT {expression} FROM (VALUES (ARRAY[{bucket}, 1]::bigint[]), (NULL)) AS t ("v")'
    [(found,), (nothing,)] = lab.connection.execute(query.encode()).fetchall()
    assert math.isclose(found, Decimal(value), rel_tol=0.01)
    assert nothing is None


def test_buckets_are_in_the_order_of_the_values(lab: Lab) -> None:
    ordered = [-math.inf, -1e308, -1.0, -0.5, 0.0, 1e-300, 0.5, 1.0, 1e308, math.inf, math.nan]
    found = buckets(lab, list(ordered), "double")
    assert sorted(found, key=lambda bucket: bucket or 0) == found
    assert len(set(found)) == len(ordered)


def test_the_text_of_each_measure_stays_because_fingerprints_cover_it() -> None:
    """A new field, even with a default value, would change the fingerprint of every view with the measure."""
    measures = (Sum(), Min(), Max(), Latest(), First(2), Distinct(), Quantiles(), Bloom(9))
    assert [repr(measure) for measure in measures] == [
        "Sum()",
        "Min()",
        "Max()",
        "Latest()",
        "First(most=2)",
        "Distinct(error=0.02)",
        "Quantiles(error=0.01, shows=(0.5, 0.95, 0.99))",
        "Bloom(capacity=9, error=0.01)",
    ]
