"""Matching: batches of Arrow that cut groups anywhere have the matches of each group alone."""

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.library.patterns.rules import SECOND
from tests.library.patterns.together.drawn import Drawn, draw
from truelog.patterns.outcomes import outcomes
from truelog.patterns.span import Spans
from truelog.patterns.together import search
from truelog.tables.patterns.matching import ARRIVED, ROWS, _row, _Search, whole_groups

SPANS = {"thing": Spans(10 * SECOND)}


def inputs_of(drawn: Drawn) -> pa.Table:
    """The inputs of the groups one after another: two spans of each entity have the same events."""
    parts = []
    for number, events in enumerate(drawn.events):
        of_group = drawn.inputs.filter(pa.array([each == number for each in drawn.group]))
        for span_end in (40 * SECOND, 80 * SECOND):
            group = {"entity_id": f"t{number}", "entity": "thing", "span_end": span_end, "_size": len(events)}
            for name, value in group.items():
                column = pa.array([value] * len(events))
                of_group = of_group.drop_columns(name) if name in of_group.column_names else of_group
                of_group = of_group.append_column(name, column)
            parts.append(of_group)
    table = pa.concat_tables(parts)
    return table.set_column(
        table.column_names.index("span_end"), "span_end", table.column("span_end").cast(pa.timestamp("us", "UTC"))
    )


def cut(table: pa.Table, chosen: Random) -> list[pa.RecordBatch]:
    found, at = list[pa.RecordBatch](), 0
    while at < table.num_rows:
        size = chosen.choice((0, 1, 2, 5, 40))
        found += table.slice(at, size).combine_chunks().to_batches()
        at += size
    return found


def expected(drawn: Drawn, most: int) -> list[dict[str, Any]]:
    found = []
    for number, events in enumerate(drawn.events):
        in_order = sorted(events, key=lambda each: (each.logged_at, each.topic, each.partition, each.offset))
        searched, further = in_order[:most], in_order[most:]
        for outcome in outcomes(drawn.versions, "thing", searched):
            span_end = 40 * SECOND if outcome.first_time is None else SPANS["thing"].end(outcome.first_time)
            settled = outcome.settled_after
            is_settled = not further or settled is None or settled < further[0].logged_at
            ends = {40 * SECOND, 80 * SECOND} if outcome.first_time is None else {span_end}
            for end in ends & {40 * SECOND, 80 * SECOND} if is_settled else ():
                found.append({"entity_id": f"t{number}", "entity": "thing", "span_end": end} | _row(outcome))
    return found


def rows(found: list[pa.RecordBatch]) -> list[str]:
    return sorted(map(repr, pa.Table.from_batches(found, ROWS).to_pylist()))


@pytest.mark.parametrize("few", [0, 64])
@given(st.integers(0, 2**32))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_batches_have_the_matches_of_each_group(few: int, seed: int) -> None:
    drawn, chosen = draw(seed), Random(seed)
    most = chosen.choice((4, 100))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search.outcomes_of_groups, "__defaults__", (few,))
        found = list(_Search(drawn.versions, most, SPANS).batches(cut(inputs_of(drawn), chosen)))
    assert rows(found) == rows([pa.RecordBatch.from_pylist(expected(drawn, most), ROWS)])


def test_groups_are_whole_however_batches_cut_them() -> None:
    sizes = [each for each in (1, 3, 2, 5) for _ in range(each)]
    table = pa.table({"_size": pa.array(sizes, pa.int64()), "n": np.arange(len(sizes))})
    whole = [([row["n"] for row in found.to_pylist()], bounds) for found, bounds in whole_groups(cut(table, Random(2)))]
    assert [n for numbers, _ in whole for n in numbers] == list(range(11))
    groups = [end - begin for _, bounds in whole for begin, end in pairwise(bounds)]
    assert groups == [1, 3, 2, 5]
    with pytest.raises(AssertionError):
        list(whole_groups(table.slice(0, 10).to_batches()))


def test_the_order_of_arrival_is_that_of_the_log() -> None:
    assert ARRIVED == ("logged_at", "topic", "partition", "offset")
