"""Each public example that rules cannot express, by the kind of what it needs.

`public_examples.INEXPRESSIBLE` has the reasons.

Trino's names are those of the methods of its test, and what the method calls the query or its pattern. An example that
differs from one of ours only in the rows that it returns is here, too.
"""

from collections.abc import Mapping, Sequence

ANCHORS = "anchors ^ and $"
EMPTY = "empty patterns and empty matches"
ROWS = "ALL ROWS PER MATCH, unmatched rows, exclusion {- -}"
LABELS = "CLASSIFIER and MATCH_NUMBER in conditions"
OFFSETS = "NEXT, and FIRST or LAST with an offset"
TOTALS = "aggregates in conditions, AVG"
SUBSET = "SUBSET"
SKIP_TO = "AFTER MATCH SKIP TO a step"
ORDER = "ORDER BY other columns"
QUERIES = "subqueries, casts, user-defined functions, the current time"
PARTS = "PARTITION BY several columns"
JOINED = "a query around several MATCH_RECOGNIZE"

LEFT_OUT: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Trino": {
        ANCHORS: [
            *(f"testRowPattern, {each}" for each in ("^A", "A^", "^A^", "A$", "$A", "$A$")),
            *(f"testEmptyCycle, {each}" for each in ("^* | B", "^+ | B", "^* A B", "$* | B", "$+ | B", "B A $+")),
        ],
        EMPTY: [
            "testRowPattern, () | A",
            *(f"testEmptyCycle, {each}" for each in ("()* | B", "()+ | B", "(){5,} | B", "B | ()*")),
            *(f"testEmptyCycle, {each}" for each in ("(B ()*)*", "(B ()*)*?")),
            "testOutputModes, no output mode",
            "testOutputModes, ALL ROWS PER MATCH with empty matches",
            "testOutputModes, SHOW EMPTY MATCHES",
        ],
        ROWS: [
            *(f"testExclusionSyntax, {each}" for each in ("B+ excluded", "A and B+ excluded", "nested exclusion")),
            *(f"testExclusionSyntax, {each}" for each in ("all rows excluded", "()* excluded", "B and C excluded")),
            "testOutputModes, ALL ROWS PER MATCH without unmatched rows",
            "testOutputModes, OMIT EMPTY MATCHES, B*",
            "testOutputModes, OMIT EMPTY MATCHES, B+",
            "testOutputModes, WITH UNMATCHED ROWS",
            *(f"testNavigationFunctions, RUNNING {each}" for each in ("LAST(value)", "FIRST(value)")),
            "testRunningAndFinal, RUNNING values",
            "testOutputLayout, ALL ROWS PER MATCH",
            "testOutputLayout, ONE ROW PER MATCH",
        ],
        LABELS: [
            "testBackReference, labels of A and B",
            "testClassifierFunctionPastCurrentRow, in MEASURES",
            "testClassifierFunctionPastCurrentRow, in DEFINE",
            "testInPredicateWithoutSubquery, CLASSIFIER",
            "testInPredicateWithoutSubquery, MATCH_NUMBER",
            "testExponentialMatch",
        ],
        OFFSETS: [
            *(f"testNavigationFunctions, {each}" for each in ("FINAL LAST(value, 2)", "FIRST(value, 2)")),
            *(f"testNavigationFunctions, {each}" for each in ("LAST(value, 10)", "FIRST(value, 10)")),
            *(f"testNavigationFunctions, {each}" for each in ("NEXT(value)", "NEXT(FIRST(value), 2)")),
            *(f"testNavigationFunctions, {each}" for each in ("NEXT(FIRST(value), 10)", "PREV(FIRST(value), 10)")),
            "testNavigationFunctions, PREV(FIRST(value, 10), 2)",
            "testNavigationFunctions, PREV(LAST(value, 10), 2)",
            *(f"testNavigationFunctions, {each}" for each in ("NEXT(B.value, 1)", "NEXT(B.value, 2)")),
        ],
        SKIP_TO: [
            f"testAfterMatchSkip, {each}"
            for each in ("TO FIRST C", "TO LAST B", "TO B", "TO A, an error", "TO D, an error")
        ],
        SUBSET: ["testAfterMatchSkip, TO U"],
        ORDER: ["testOutputLayout, ORDER BY the same column twice"],
        QUERIES: [
            "testSubqueries, alone",
            "testSubqueries, in FIRST and LAST",
            "testSubqueries, IN without columns",
            "testSubqueries, IN with a column",
            "testSubqueries, EXISTS",
        ],
        JOINED: ["testMultipleMatchRecognize, the product of three"],
    },
    "Flink": {
        PARTS: ["testCodeSplitsAreProperlyGenerated"],
        ORDER: ["testEventsAreProperlyOrdered"],
        JOINED: ["testWindowedGroupingAppliedToMatchRecognizeOnLtzRowtime"],
        OFFSETS: [
            "testLogicalOffsets",
            "testLogicalOffsetsWithStarVariable",
            "testLogicalOffsetOutsideOfRangeInMeasures",
        ],
        TOTALS: ["testAggregates", "testAggregatesWithNullInputs"],
        QUERIES: ["testAccessingCurrentTime", "testUserDefinedFunctions"],
    },
}
