"""`First` keeps a bounded number of values of a key before Spark collects them, however many values the key has.

`FirstSeen` also keeps each value once, with the least of the fields that say when it was seen.
"""

from datetime import timedelta

from pyspark.sql import functions as F

from tests.beds.lab import Lab
from tests.laws.events import START
from tests.laws.views import EVERY_MEASURE
from truelog.log import records

VALUES = 5_000


def test_a_key_with_many_values_is_cut_before_its_values_are_collected(lab: Lab) -> None:
    compiled, shape = lab.compiled("many_values", EVERY_MEASURE), records.schema(lab.types["page_view"])
    events = [
        {"topic": "page_view", "partition": 0, "offset": n, "event_time": START + timedelta(milliseconds=n % VALUES)}
        for n in range(2 * VALUES)
    ]
    rows = EVERY_MEASURE.transform(lab.spark.createDataFrame(events, shape))

    prepared = compiled.own._without_later_values(compiled.own.prepared(rows))
    [collected] = prepared.agg(F.count_distinct("came")).collect()
    [state] = compiled.own.totals(rows).select("views", "came").collect()

    assert collected[0] == 3  # one more than the measure keeps, because NULL would have a rank of its own
    assert state.views == 2 * VALUES
    assert [each["from"].microsecond for each in state.came] == [0, 1_000]


def test_a_value_that_is_seen_many_times_is_kept_once_with_its_first_time(lab: Lab) -> None:
    compiled, shape = lab.compiled("seen_often", EVERY_MEASURE), records.schema(lab.types["page_view"])
    seen = [((None, "de", "en", "fr")[n % 4], 200 + (n * 7) % VALUES) for n in range(VALUES)]
    same = {"topic": "page_view", "partition": 0, "event_time": START}
    events = [same | {"offset": n, "language": language, "status": at} for n, (language, at) in enumerate(seen)]
    rows = EVERY_MEASURE.transform(lab.spark.createDataFrame(events, shape))

    prepared = compiled.own._without_later_values(compiled.own.prepared(rows))
    [counted] = prepared.agg(F.count("seen")).collect()
    [state] = compiled.own.totals(rows).select("seen").collect()

    assert counted[0] == 4
    expected = [(language, min(at for other, at in seen if other == language)) for language in (None, "de", "en")]
    assert [(each["spoken"], each["check"]) for each in state.seen] == expected
