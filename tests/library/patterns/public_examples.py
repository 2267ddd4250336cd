"""What public examples of MATCH_RECOGNIZE find, as facts about our own data.

Sources: Trino's test of row pattern matching, and the documentation and the tests of Flink, Oracle and Beam. An example
is a sequence of values, a pattern with conditions, and the matches that the source expects: `2a 3b | 6a 7b` are two
matches, the first of the events 2 and 3 with the steps a and b. Empty matches are left out, because a rule has none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FALL, RISE, FLAT = "value < prev(value)", "value > prev(value)", "value = prev(value)"
NOT_RISE = "value <= prev(value)"
VS = (9, 8, 7, 8, 9, 5, 4, 6)
DOWN = (9, 8, 7, 7)
TICKER = (12, 17, 19, 21, 25, 12, 15, 20, 24, 25, 19, 15, 25, 25, 14, 12, 14, 24, 23, 22)


@dataclass(frozen=True)
class PublicExample:
    """`every` is the time between two values in seconds. `shown` and `shows`: columns, and their values by match."""

    name: str
    values: Sequence[int | None]
    pattern: str
    where: Mapping[str, str]
    expected: str
    after: str = "past_last"
    within: str = "1 day"
    every: int = 1
    shown: Mapping[str, str] = field(default_factory=dict)
    shows: Sequence[Mapping[str, Any]] = ()


def _quantified() -> list[PublicExample]:
    """One step with each quantity, on three events that do not rise."""
    all_three, each, two, none = "2b 3b 4b", "2b | 3b | 4b", "2b 3b", ""
    expected = {
        "*": (all_three, none),
        "+": (all_three, each),
        "?": (each, none),
        "{0,}": (all_three, none),
        "{1,}": (all_three, each),
        "{2,}": (all_three, two),
        "{5,}": (none, none),
        "{,1}": (each, none),
        "{,2}": ("2b 3b | 4b", none),
        "{,5}": (all_three, none),
        "{1,1}": (each, each),
        "{1,5}": (all_three, each),
        "{5,7}": (none, none),
        "{1}": (each, each),
        "{2}": (two, two),
        "{5}": (none, none),
    }
    return [
        PublicExample(f"Trino, quantifier {quantity}", DOWN, f"b{quantity}", {"b": NOT_RISE}, found)
        for of_both, both in expected.items()
        for quantity, found in zip((of_both, f"{of_both}?"), both, strict=True)
    ]


def _shown(name: str, expression: str, value: Any) -> PublicExample:
    """A column of a match of the third and the fourth value."""
    shown = {"shown": expression}
    values, where = (1, 2, 3, 3, 4), {"a": "true", "b": FLAT}
    return PublicExample(name, values, "a b", where, "3a 4b", shown=shown, shows=[{"shown": value}])


_V = {"a": "true", "b": FALL, "c": RISE}
_SKIP = {**_V, "d": "false"}
_NAMES = {"a": "value = 1", "b": "value = 2", "c": "value = 3"}
_GREEDY = {"a": "value > 10", "b": "value < 15", "c": "value > 12"}
_XYZ = (10, 11, 12, 13, 14, 16)
_TREND = {"start": "true", "down": FALL, "up": RISE}

EXAMPLES = [
    PublicExample("Trino, simple query", VS, "a b+ c+", _V, "1a 2b 3b 4c 5c | 6a 7b 8c"),
    PublicExample("Trino, concatenation", DOWN, "a b c", {**_V, "c": FLAT}, "2a 3b 4c"),
    PublicExample("Trino, alternation", DOWN, "b | c | a", {**_V, "c": NOT_RISE}, "1a | 2b | 3b | 4c"),
    PublicExample("Trino, permutation written out", DOWN, "b c | c b", {"b": FALL, "c": FALL}, "2b 3c"),
    PublicExample("Trino, grouping", DOWN, "((a) (b (c)))", {**_V, "c": FLAT}, "2a 3b 4c"),
    *_quantified(),
    PublicExample("Trino, exclusion of any repeats", VS, "a b* c*", _V, "1a 2b 3b 4c 5c | 6a 7b 8c"),
    PublicExample("Trino, exclusion of one or two", VS, "a b{1,2} c{1,2}", _V, "1a 2b 3b 4c 5c | 6a 7b 8c"),
    PublicExample("Trino, exclusion of two or three", VS, "a c{2,3} b{2,3}", _V, "3a 4c 5c 6b 7b"),
    PublicExample(
        "Trino, reference to a", (1, 1), "(a | b)* x", {"a": "true", "b": "true", "x": "value = a.value"}, "1a 2x"
    ),
    PublicExample(
        "Trino, reference to b", (1, 1), "(a | b)* x", {"a": "true", "b": "true", "x": "value = b.value"}, "1b 2x"
    ),
    PublicExample(
        "Trino, references to both",
        (1, 2, 3, 4, 5, 6),
        "(a | b)* x",
        {"a": "true", "b": "true", "x": "value = prev(a.value, 3) + first(a.value) + prev(b.value, 2)"},
        "1b 2a 3a 4a 5b 6x",
    ),
    PublicExample("Trino, one row with empty matches", DOWN, "b*", {"b": FALL}, "2b 3b"),
    PublicExample("Trino, one row without empty matches", DOWN, "b+", {"b": FALL}, "2b 3b"),
    PublicExample("Trino, past the last row", (9, 8, 7, 8, 7, 8), "a b+ c+ d?", _SKIP, "1a 2b 3b 4c"),
    PublicExample(
        "Trino, to the next row", (9, 8, 7, 8, 7, 8), "a b+ c+ d?", _SKIP, "1a 2b 3b 4c | 2a 3b 4c | 4a 5b 6c", "next"
    ),
    PublicExample(
        "Trino, unmatched rows",
        (10, 10, 9, 8, 7, 10),
        "a b{2}",
        {"a": "true", "b": FALL},
        "2a 3b 4b | 3a 4b 5b",
        "next",
    ),
    PublicExample(
        "Trino, union variable",
        (9, 8, 7, 8),
        "(l | h) a",
        {"a": "value = 8", "l": "value < 8", "h": "value > 8"},
        "1h 2a | 3l 4a",
    ),
    PublicExample(
        "Trino, last value", (1, 2, 3), "a+", {"a": "true"}, "1a 2a 3a", shown={"v": "a.value"}, shows=[{"v": 3}]
    ),
    PublicExample(
        "Trino, first value",
        (1, 2, 3),
        "a+",
        {"a": "true"},
        "1a 2a 3a",
        shown={"v": "first(a.value)"},
        shows=[{"v": 1}],
    ),
    PublicExample(
        "Trino, value before",
        (1, 2, 3),
        "a+",
        {"a": "true"},
        "1a 2a 3a",
        shown={"v": "prev(a.value)"},
        shows=[{"v": 2}],
    ),
    _shown("Trino, value before the partition", "prev(b.value, 4)", None),
    _shown("Trino, first value before the match", "prev(b.value, 3)", 1),
    _shown("Trino, second value before the match", "prev(b.value, 2)", 2),
    PublicExample("Trino, labels", (9, 8, 7, 8), "a b+ c+", _V, "1a 2b 3b 4c"),
    PublicExample(
        "Trino, scalar functions", (9, 8, 6), "a b+", {"a": "true", "b": "value + 1 < abs(prev(value))"}, "2a 3b"
    ),
    PublicExample(
        "Trino, final values",
        (9, 8, 7, 10, 20),
        "a b+ c+",
        _V,
        "1a 2b 3b 4c 5c",
        shown={"a": "a.value", "b": "b.value", "c": "c.value"},
        shows=[{"a": 9, "b": 7, "c": 20}],
    ),
    PublicExample("Trino, first partition", (9, 8, 7, 8, 9, 8), "b+", {"b": FALL}, "2b 3b | 6b"),
    PublicExample("Trino, second partition", (2, 2, 1), "b+", {"b": FALL}, "3b"),
    PublicExample("Trino, third partition", (5, 6, 7), "b+", {"b": FALL}, ""),
    PublicExample("Trino, empty input", (), "b+", {"b": FALL}, ""),
    PublicExample("Trino, unordered input", (8, 9, 3, 2, 1), "b+", {"b": FALL}, "3b 4b 5b"),
    PublicExample("Trino, no measures, first partition", (8, 9, 3), "b+", {"b": FALL}, "3b"),
    PublicExample("Trino, no measures, second partition", (2, 1), "b+", {"b": FALL}, "2b"),
    PublicExample("Trino, several patterns", (1, 2, 3), "a", {"a": "true"}, "1a | 2a | 3a"),
    PublicExample(
        "Trino, IN without a subquery",
        (1, 2, 3, 4),
        "a+",
        {"a": "true"},
        "1a 2a 3a 4a | 2a 3a 4a | 3a 4a | 4a",
        "next",
        shown={"v": "first(a.value) IN (3, a.value)"},
        shows=[{"v": False}, {"v": False}, {"v": True}, {"v": True}],
    ),
    PublicExample("Trino, many attempts", (1,) * 20, "(a+)+ b", {"a": "value = 1", "b": "value = 2"}, ""),
    PublicExample("Flink, simple pattern", (1, 26, 2, 3, 4, 1, 2, 3, 8), "a b c", _NAMES, "6a 7b 8c"),
    PublicExample(
        "Flink, pattern with nulls", (1, 2, 3, 4, None, 1, 2, 3, None), "a b c", _NAMES, "1a 2b 3c | 6a 7b 8c"
    ),
    PublicExample("Flink, partitions", (1, 2, 3), "a b c", {**_NAMES, "c": "value = 3 and a.value = 1"}, "1a 2b 3c"),
    PublicExample(
        "Flink, parallel source", (19, 17, 13, 20), "down up", {"down": "value = 13", "up": "value = 20"}, "3down 4up"
    ),
    PublicExample(
        "Flink, trend of a ticker",
        (12, 17, 19, 21, 25, 18, 15, 14, 24, 25, 19),
        "start down+ up",
        {"start": "true", "down": FALL, "up": "value > down.value"},
        "5start 6down 7down 8down 9up",
    ),
    PublicExample("Flink, greedy", _XYZ, "a b* c", _GREEDY, "2a 3b 4b 5b 6c"),
    PublicExample("Flink, reluctant", _XYZ, "a b*? c", _GREEDY, "2a 3b 4c | 5a 6c"),
    PublicExample(
        "Flink, time limit",
        (20, 17, 18, 11, 14, 9, 15, 14, 24, 1, 19),
        "a b* c",
        {"a": "true", "b": "value > a.value - 10", "c": "value < a.value - 10"},
        "7a 8b 9b 10c",
        within="1 hour",
        every=1_200,
        shown={"drop": "a.value - c.value"},
        shows=[{"drop": 14}],
    ),
    PublicExample(
        "Flink, output of one row",
        (10, 12, 13, 11),
        "a more* b",
        {"a": "true", "more": RISE, "b": FALL},
        "1a 2more 3more 4b",
    ),
    PublicExample(
        "Oracle, W-shape",
        TICKER,
        "start down+ up+ (down+ up+)",
        _TREND,
        "5start 6down 7up 8up 9up 10up 11down 12down 13up",
    ),
    PublicExample("Flink, totals of windows", (3, 2, 4), "a b", {"a": "true", "b": "value < a.value"}, "1a 2b"),
    PublicExample("Flink, every event", (1, 2, 1, 1), "a", {"a": "value > 0"}, "1a | 2a | 3a | 4a"),
    PublicExample("Beam, three names", (1, 2, 3), "a b c", _NAMES, "1a 2b 3c"),
]

# What rules cannot say, with the reason.
INEXPRESSIBLE = {
    "anchors ^ and $": "a stream has no end, and the first event of an entity may still come late",
    "empty patterns and empty matches": "a match has a row, whose id is a hash of its events",
    "ALL ROWS PER MATCH, unmatched rows, exclusion {- -}": "a match is one row, which lists its events",
    "CLASSIFIER and MATCH_NUMBER in conditions": "the row has each step; late events would change numbers",
    "NEXT, and FIRST or LAST with an offset": "conditions see events before, and the first and last of a step",
    "aggregates in conditions, AVG": "conditions would need all events of a step; SHOW has count, sum, min and max",
    "SUBSET": "a condition names one step",
    "AFTER MATCH SKIP TO a step": "a rule goes on past the last event, or at the second event",
    "PERMUTE and {,}": "written out as alternatives, and as *",
    "ORDER BY other columns": "the order is event time, and then the place in the log",
    "subqueries, casts, user-defined functions, the current time": "a rule would not follow from the log alone",
    "PARTITION BY several columns": "an entity is one field, which events of several types have",
    "a query around several MATCH_RECOGNIZE": "matches are rows, which SQL and other views read",
}
