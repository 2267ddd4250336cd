"""The generated logs of the laws as a plain Python test sees them: the good events of each, ready to be added up."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pyarrow as pa

from tests.laws.events import START, Record
from tests.laws.lab import Lab, cases
from tests.views.ways import Row, rows
from truelog import View
from truelog.decode import decode

# Where each URL of the generated events points to, as read by a person.
PLACES: dict[str, tuple[str | None, str | None]] = {
    "http://h/p": ("h", "/p"),
    "http://h/q?x=1": ("h", "/q"),
    "https://user@h2:8080/p#f": ("h2", "/p"),
    **{path: (None, path) for path in ("a", "b", "", "é", "e\u0301", "\U0001f600", "\u2400", "a\u2400b")},
    **dict.fromkeys(("http://[bad", "http://h/%00%zz", " ", "'; DROP TABLE views; --", "\\N"), (None, None)),
}


def minute_of(event: Row) -> datetime:
    minute: datetime = event["event_time"].replace(second=0, microsecond=0)
    return minute


def logs_and_rows(lab: Lab, name: str, view: View) -> Iterator[tuple[list[Row], list[Row]]]:
    """For each of 200 logs of the view's one event type: its good events, and the rows that the view makes of them."""
    [topic] = view.reads
    logs = cases(lab.types, view.reads)
    lab.compare_all(name, view, logs)
    for case, log in enumerate(logs):
        yield _good(lab, topic, log), rows(lab, name, view, case)


def _good(lab: Lab, topic: str, log: list[Record]) -> list[Row]:
    values = pa.array([record.value for record in log], pa.binary())
    times = pa.array([START] * len(log), pa.timestamp("us", "UTC"))
    decoded = decode(lab.types[topic], values, times, timedelta(days=5_000_000)).to_pylist()
    return [event for event in decoded if event["invalid"] is None]
