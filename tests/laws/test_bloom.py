"""Bloom filters: golden codes, no value that was seen is missed, and the stated share of other values is found."""

import hashlib
import random
from collections.abc import Iterable
from functools import reduce

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from psycopg import sql
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType

from tests.beds.lab import Lab
from truelog import Bloom
from truelog.storage.database import read_value
from truelog.support.errors import BadDeclaration

SMALL = Bloom(capacity=20, error=0.02)  # 192 bits; each value sets 6
GOLDEN = {
    "": [0x0_00000800, 0x1_00000020, 0x2_40000010, 0x3_01000000, 0x5_00020000],
    "ann": [0x0_40008000, 0x2_02000000, 0x3_00000100, 0x4_00100000, 0x5_00000008],
    "42": [0x0_00000040, 0x1_00010080, 0x2_00020000, 0x3_08000000, 0x4_10000000],
    "\U0001f600": [0x0_00020000, 0x1_00010000, 0x2_00200000, 0x3_00100000, 0x4_00080000, 0x5_00040000],
    "e\u0301": [0x1_00001002, 0x2_00004000, 0x3_00010000, 0x4_20000000, 0x5_80000000],
}
CASES = 200

State = list[int] | None
Parts = list[list[str | None]]  # the values of each micro-batch


def naive(measure: Bloom, values: Iterable[str]) -> State:
    """The state after these values: a bitmap as one large number, cut into words."""
    bitmap = 0
    for value in values:
        hashed = int(hashlib.md5(value.encode()).hexdigest()[:16], 16)
        first, step = hashed % 2**31, hashed >> 33 | 1
        for i in range(measure.hashes):
            bitmap |= 1 << (first + i * step) % measure.bits
    words = [bitmap >> 32 * word & 0xFFFFFFFF for word in range(measure.bits // 32)]
    return [word << 32 | bits for word, bits in enumerate(words) if bits] or None


def drawn_cases() -> list[Parts]:
    """Hostile values, cut into micro-batches."""
    drawn: list[Parts] = []
    texts = st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4)

    @seed(20260301)
    @settings(max_examples=CASES, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.lists(texts, max_size=8), min_size=1, max_size=6))
    def collect(parts: Parts) -> None:
        drawn.append(parts)

    collect()
    return drawn


def seen_in(parts: Parts) -> list[str]:
    return [value for part in parts for value in part if value is not None]


def states(lab: Lab, measure: Bloom, cases: list[Parts]) -> tuple[list[list[State]], list[State]]:
    """The state of each part of each case, and the sum of each case's parts, as Spark computes them."""
    rows = [(c, p, v) for c, parts in enumerate(cases) for p, values in enumerate(parts) for v in (None, *values)]
    frame = lab.spark.createDataFrame(rows, "c int, p int, v string")
    value, state = measure.prepare(F.col("v"), StringType()).alias("v"), F.col("s")

    def settled(total: Column) -> Column:
        return measure.settle(total).alias("s")

    totals = frame.select("c", "p", value).groupBy("c", "p").agg(measure.total(F.col("v")).alias("s"))
    of_parts = totals.select("c", "p", settled(state)).persist()
    added = of_parts.groupBy("c").agg(measure.plus(state).alias("s")).select("c", settled(state))
    by_part = {(row.c, row.p): row.s for row in of_parts.collect()}
    by_case = {row.c: row.s for row in added.collect()}
    of_parts.unpersist()
    sums = [by_case[c] for c in range(len(cases))]
    return [[by_part[c, p] for p in range(len(parts))] for c, parts in enumerate(cases)], sums


def merged(lab: Lab, parts: list[State]) -> State:
    """The sum of these states, as PostgreSQL merges them, in another order."""

    def plus(one: State, other: State) -> State:
        state: State = read_value(lab.connection, "SELECT truelog.bloom_plus(%s::bigint[], %s)", (one, other))
        return state

    return reduce(plus, random.Random(len(parts)).sample(parts, len(parts)))


def found(lab: Lab, measure: Bloom, state: State, values: list[str | None]) -> list[object]:
    """Whether each value was seen, as a reader asks."""
    query = sql.SQL(
        "SELECT truelog.seen({shown}, value) FROM (SELECT {state}::bigint[] AS state) AS s "
        "CROSS JOIN unnest({values}::text[]) WITH ORDINALITY AS asked(value, i) ORDER BY i"
    ).format(
        shown=sql.SQL(measure.shown("state", StringType())["state"]),
        state=sql.Literal(state),
        values=sql.Literal(values),
    )
    return [seen for (seen,) in lab.connection.execute(query).fetchall()]


def test_a_value_has_the_golden_codes(lab: Lab) -> None:
    of_parts, _ = states(lab, SMALL, [[[value] for value in GOLDEN]])
    assert of_parts == [list(GOLDEN.values())]
    assert [naive(SMALL, [value]) for value in GOLDEN] == list(GOLDEN.values())


def test_whole_numbers_are_asked_for_by_their_text(lab: Lab) -> None:
    numbers = [0, -1, 2**63 - 1, -(2**63), None]
    frame = lab.spark.createDataFrame([(n,) for n in numbers], "n bigint")
    prepared = frame.select(SMALL.prepare(F.col("n"), LongType()).alias("n"))
    [(state,)] = prepared.agg(SMALL.total(F.col("n")).alias("n")).select(SMALL.settle(F.col("n"))).collect()
    assert state == naive(SMALL, (str(n) for n in numbers if n is not None))
    assert found(lab, SMALL, state, [str(n) for n in numbers if n is not None]) == [True] * 4
    assert found(lab, SMALL, state, ["1", "-2", "9223372036854775806", "+0", "00", ""]) == [False] * 6


def test_null_is_the_zero_and_is_never_seen(lab: Lab) -> None:
    of_parts, sums = states(lab, SMALL, [[[None], []], [[None], ["ann"]]])
    assert of_parts == [[None, None], [None, GOLDEN["ann"]]]
    assert sums == [None, GOLDEN["ann"]]
    assert [merged(lab, parts) for parts in of_parts] == sums
    assert found(lab, SMALL, None, ["ann", None]) == [False, False]
    assert found(lab, SMALL, GOLDEN["ann"], ["ann", None]) == [True, False]


def test_law_the_state_is_the_same_for_any_grouping_and_order(lab: Lab) -> None:
    cases = drawn_cases()
    of_parts, sums = states(lab, SMALL, cases)
    expected = [naive(SMALL, seen_in(parts)) for parts in cases]
    assert sums == expected
    assert [merged(lab, parts) for parts in of_parts] == expected


class _NotCombined(Bloom):
    """Codes of the same word stay side by side, so the state depends on the grouping."""

    def settle(self, gathered: Column) -> Column:
        return F.when(F.size(gathered) > 0, gathered)


def test_the_law_catches_states_that_are_not_combined(lab: Lab) -> None:
    cases = drawn_cases()
    _, sums = states(lab, _NotCombined(capacity=20, error=0.02), cases)
    assert sums != [naive(SMALL, seen_in(parts)) for parts in cases]


def test_law_every_value_that_was_seen_is_found(lab: Lab) -> None:
    """Also beyond the capacity. A filter that has seen less misses some values, so the law can fail."""
    cases, missed = drawn_cases(), 0
    for parts, state in zip(cases, states(lab, SMALL, cases)[1], strict=True):
        values: list[str | None] = [*seen_in(parts)]
        assert all(found(lab, SMALL, state, values))
        missed += found(lab, SMALL, state and state[1:], values).count(False)
    assert missed > CASES


@pytest.mark.parametrize(
    ("measure", "asked"), [(Bloom(capacity=2_000), 40_000), (Bloom(capacity=300, error=0.2), 10_000)], ids=str
)
def test_at_its_capacity_a_filter_finds_the_stated_share_of_other_values(lab: Lab, measure: Bloom, asked: int) -> None:
    """The bounds are four standard deviations wide. Beyond the capacity, the share is larger."""
    others = [f"other {n}" for n in range(asked)]
    at_capacity, beyond = (
        found(lab, measure, naive(measure, (f"v{n}" for n in range(seen))), list(others)).count(True)
        for seen in (measure.capacity, 2 * measure.capacity)
    )
    expected = measure.error * asked
    deviation = (expected * (1 - measure.error)) ** 0.5
    assert expected - 4 * deviation < at_capacity < expected + 4 * deviation
    assert beyond > 2 * expected


@pytest.mark.parametrize(
    ("capacity", "error"), [(0, 0.01), (10, 0.0), (10, 1.0), (10**8, 0.01)], ids=["empty", "exact", "all", "large"]
)
def test_a_filter_that_cannot_work_is_refused(capacity: int, error: float) -> None:
    with pytest.raises(BadDeclaration, match=f"capacity={capacity}"):
        Bloom(capacity=capacity, error=error)
