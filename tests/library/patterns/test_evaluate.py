"""The law of totality: whatever events contain, a search ends with rows that a table can hold, and never with an error.

One error in one entity would otherwise stop the matches of all.
"""

import json
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from tests.library.patterns.rules import SOURCES, an_event
from truelog.patterns import rule as rules
from truelog.patterns.outcomes import outcomes
from truelog.patterns.versions import Change, Version
from truelog.tables.patterns.matching import ROWS, _row

# A declared number may be a text: Spark writes NaN into JSON as a text.
LARGE = st.floats() | st.integers(-(2**63), 2**63 - 1)
VALUES = LARGE | st.none() | st.booleans() | st.text(max_size=3) | st.just("NaN")
ROWS_OF_ENTITY = {"entity_id": "t", "entity": "thing"}
CONSTANTS = ["9223372036854775807", "1.5", "0"]
NUMBERS = [*CONSTANTS, "value", "prev(value)", "first(a.value)", "a.value", "length(kind)"]
SHOWN_NUMBERS = [*CONSTANTS, "a.value", "first(a.value)", "b.value", "length(b.kind)", "sum(a.value)"]
OPERATORS = ["{} + {}", "{} * {}", "{} / {}", "{} % {}", "greatest({}, {})", "least({}, 0, {})", "coalesce({}, {})"]
COMPARED = ["{} < {}", "{} = {}", "{} <> {}", "{} IN ({}, 0)", "NOT ({} >= {})"]
SHOWN = ["sum(a.value)", "min(a.value)", "max(a.value)", "count(b.value)", "lower(a.kind) || upper(b.kind)"]


def combined(names: list[str]) -> st.SearchStrategy[str]:
    connected = st.sampled_from(OPERATORS).map(lambda each: f"({each})")
    return st.recursive(
        st.sampled_from(names), lambda inner: st.builds(str.format, connected, inner, inner), max_leaves=4
    )


numbers, shown_numbers = combined(NUMBERS), combined(SHOWN_NUMBERS)
conditions = st.builds(str.format, st.sampled_from(COMPARED), numbers, numbers)


def search(condition: str, shown: str, values: list[Any]) -> pa.Table:
    """The rows of one entity, as a table."""
    steps = {"a": {"on": "event"}, "b": {"on": "event", "where": condition}}
    document = {"rule": "r", "by": "thing", "pattern": "a{1,3} .. b", "within": "1 day", "steps": steps}
    checked = rules.check(rules.read(document | {"show": {"shown": shown}}), SOURCES)
    events = [an_event(n, value, kind=value, is_on=value) for n, value in enumerate(values)]
    record = Change("rule", 0, 0, 0, "r", "set", None, "{}")
    found = outcomes([Version(1, record, checked, {}, None, None)], "thing", events)
    return pa.Table.from_pylist([ROWS_OF_ENTITY | _row(each) for each in found], ROWS)


@given(conditions, st.sampled_from(SHOWN) | shown_numbers, st.lists(VALUES, min_size=1, max_size=6))
@example("a.value < value", "max(a.value)", [1.5, "NaN", 2])
@example("value IS NULL OR true", "greatest(a.value, b.value)", ["NaN", 1])
def test_no_event_makes_a_search_fail(condition: str, shown: str, values: list[Any]) -> None:
    assert search(condition, shown, values).num_rows <= len(values)


def test_the_longest_number_can_be_written() -> None:
    """Python refuses to write numbers of more than 4,300 digits."""
    found = search("true", " * ".join(["b.value"] * 40), [2**63 - 1] * 2)
    assert json.loads(found.column("shown")[0].as_py()) == {"shown": (2**63 - 1) ** 40}


def test_a_text_times_a_large_number_is_null() -> None:
    """Python would repeat the text: this one would have three gigabytes."""
    assert search("value * 1000000000 <> 1", "count(b.value)", ["NaN", "NaN"]).num_rows == 0
    assert search("value * 2 <> 1", "count(b.value)", ["NaN", "NaN"]).num_rows == 1


def test_a_list_times_a_number_is_null() -> None:
    """Python would repeat the list."""
    for product in ("value * 2", "2 * value"):
        assert search(f"{product} <> 1", "count(b.value)", [["a"], ["a"]]).num_rows == 0
