"""An event that was sent again changes no row of a view that counts each event once.

`test_stream_equals_batch.py` proves that the stream counts as the rebuild does. `test_copies.py` proves where a horizon
ends.
"""

from dataclasses import replace

import pytest

from tests.beds.lab import PARTITIONS, Lab, cases
from tests.laws.events import Record
from tests.nightly_cases import nightly_except
from tests.views.examples import Relations
from tests.views.ways import Reader
from truelog import Group, View
from truelog.views import catalogue
from truelog.views.judged import Judged

LOGS = 30
ALL_COUNT = frozenset(
    {
        "hourly_views",
        "matches",
        "page_audience",
        "page_views",
        "referrers",
        "request_rates",
        "search_hits",
        "stragglers",
        "visitor_sketches",
    }
)


def counts_once(view: View) -> bool:
    return view.dedupe is not None or (isinstance(view, Group) and not isinstance(view, Judged))


ONCE = [name for name in catalogue.view_names() if counts_once(catalogue.load_view(name))]


def test_the_views_that_count_each_event_once() -> None:
    """Cubes of many events, rules and searches count copies. Other views keep what an event says under its own name."""
    assert {"cart", "document", "sensor_alerts", "sessions", "trends"} <= set(ONCE)
    assert ALL_COUNT.isdisjoint(ONCE)


def sent_again(log: list[Record]) -> list[Record]:
    """The log, and at its end a copy of every second record in the partition of the record."""
    last = {(each.topic, each.partition): each for each in log}
    ends = ((each, last[each.topic, each.partition]) for each in log[::2])
    return log + [replace(each, cut=end.cut, second=end.second) for each, end in ends]


@pytest.mark.parametrize("name", nightly_except(["also_bought", "cart"], ONCE))
def test_law_an_event_that_was_sent_again_changes_nothing(lab: Lab, name: str) -> None:
    view = replace(catalogue.load_view(name), batch_only=False)
    logs = cases(lab.types, view.reads, number=LOGS, shortest=12, longest=30, bad=True)
    lab.rebuild_all(name, view, logs + [sent_again(log) for log in logs])
    read = Reader(lab, name, view)
    for case in range(LOGS):
        assert of_one_log(read(case)) == of_one_log(read(LOGS + case))


def of_one_log(found: Relations) -> Relations:
    """The rows with the partitions that the log of a case has."""
    return {
        relation: [row | {"partition": row["partition"] % PARTITIONS} if "partition" in row else row for row in rows]
        for relation, rows in found.items()
    }
