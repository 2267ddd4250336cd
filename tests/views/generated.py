"""The law tests' generated logs, with each log's valid events as plain Python rows."""

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pyarrow as pa

from tests.beds.lab import Lab, cases, clock_after, last_cut
from tests.laws import naive_copies
from tests.laws.events import LONG, START, Record
from tests.laws.naive_copies import Appended
from tests.views.examples import Relations, Row
from tests.views.ways import Reader
from truelog import Group, View
from truelog.schema.event_version import DECODERS


def bounded(text: str, keys: int) -> str:
    """The form of a long text in a key of `keys` text columns: the start of the text, and a hash of the whole text."""
    size = 2_000 // keys
    return text if len(text) <= size else f"{text[: (size - 36) // 4]} …{hashlib.md5(text.encode()).hexdigest()}"


_FIRST_TIME = datetime.min.replace(tzinfo=UTC)

# The handwritten host and path of each URL in the generated events.
PLACES: dict[str, tuple[str | None, str | None]] = {
    "http://h/p": ("h", "/p"),
    "http://h/q?x=1": ("h", "/q"),
    "https://user@h2:8080/p#f": ("h2", "/p"),
    "http://h/%00%zz": ("h", "/%00%zz"),
    **dict.fromkeys(("a", "b", "", "é", "e\u0301", "\U0001f600", "\u2400", "a\u2400b", *LONG), (None, None)),
    **dict.fromkeys(("http://[bad", " ", "'; DROP TABLE views; --", "\\N"), (None, None)),
}


def minute_of(event: Row) -> datetime:
    minute: datetime = event["event_time"].replace(second=0, microsecond=0)
    return minute


def logs_and_rows(lab: Lab, name: str, view: View) -> Iterator[tuple[list[Row], list[Row]]]:
    """Yield the valid events of each of 200 logs, and the rows of the view."""
    for events, found in logs_and_relations(lab, name, view):
        yield events, found[None]


def logs_and_relations(lab: Lab, name: str, view: View) -> Iterator[tuple[list[Row], Relations]]:
    """Yield the valid events of each log, and the rows of the view and of every relation that the view presents."""
    for events, _, found in timed_logs_and_relations(lab, name, view, lambda _, log: (log, None)):
        yield events, found


Timed = Callable[[int, list[Record]], tuple[list[Record], datetime | None]]


def timed_logs_and_relations(
    lab: Lab, name: str, view: View, timed: Timed
) -> Iterator[tuple[list[Row], datetime | None, Relations]]:
    """Like `logs_and_relations`, also with the clock. `timed` gives each log its broker times and its clock.

    The logs are only rebuilt. Law 1 streams each view and compares it with its rebuild, and `tests/laws/test_copies.py`
    does so for copies while the brokers' clocks go back.
    """
    drawn = [timed(case, log) for case, log in enumerate(_logs(lab, view))]
    lab.rebuild_all(name, view, [log for log, _ in drawn])
    for case, (log, clock) in enumerate(drawn):
        events = [event for topic in view.reads for event in good_events(lab, topic, log)]
        yield events, clock, Reader(lab, name, view, clock)(case)


def without_copies(view: View, events: list[Row]) -> Iterator[Row]:
    """The events that a view with `dedupe` counts."""
    assert view.horizon is not None
    for place in {(event["topic"], event["partition"]) for event in events}:
        partition = [event for event in events if (event["topic"], event["partition"]) == place]
        appended = [Appended(event["event_id"], event["broker_time"].timestamp()) for event in partition]
        yield from (partition[number] for number in naive_copies.without_copies(appended, view.horizon))


def once(events: list[Row], group: Callable[[Row], Any]) -> list[Row]:
    """The events without copies: in each group, the first event in the log with an id counts."""
    backwards = sorted(events, key=lambda each: (each["partition"], each["offset"]), reverse=True)
    return list({(group(each), each["event_id"]): each for each in backwards}.values())


def groups_of_windows(events: list[Row], key: str, window: timedelta, start: Callable[[datetime], datetime]) -> Any:
    """The events in each group of a key and a period, once. An event is also in the group of the time a window before.

    `start` gives the start of the period of a time.
    """
    groups: dict[tuple[Any, datetime], list[Row]] = {}
    for event in events:
        time = event["event_time"]
        for period in {start(time), start(max(time, _FIRST_TIME + window) - window)}:
            groups.setdefault((event[key], period), []).append(event)
    return {name: once(group, lambda _: None) for name, group in groups.items()}


def _logs(lab: Lab, view: View) -> list[list[Record]]:
    """The logs of a Group are longer, because its events must change what earlier events of the same group did."""
    sizes = {"shortest": 12, "longest": 40} if isinstance(view, Group) else {}
    return cases(lab.types, view.reads, steps=_steps(view), **sizes)


def _steps(view: View) -> tuple[int, ...]:
    """The seconds between records: for a view with `dedupe`, such that events and copies are about its horizon apart.

    The brokers' clocks also go back.
    """
    horizon = view.horizon
    return (0,) if horizon is None else (0, 1, horizon // 2, horizon, horizon + 1, -horizon // 2, -horizon)


def _appended(record: Record) -> datetime:
    return START + timedelta(seconds=record.second)


def clock_at_the_end(lab: Lab, view: View) -> datetime:
    """The log clock's time at the end of all these logs."""
    return clock_after(view, last_cut(_logs(lab, view)))


def good_events(lab: Lab, topic: str, log: list[Record]) -> list[Row]:
    """The valid events of a topic, with their topic, partition and offset."""
    records = [record for record in log if record.topic == topic]
    values = pa.array([record.value for record in records], pa.binary())
    times = pa.array([_appended(record) for record in records], pa.timestamp("us", "UTC"))
    decode = DECODERS[lab.types[topic].decoder]
    decoded = decode(lab.types[topic], values, times, timedelta(days=5_000_000), None).to_pylist()
    offsets = {partition: count() for partition in {record.partition for record in records}}
    placed = [
        event
        | {"topic": topic, "partition": record.partition, "offset": next(offsets[record.partition])}
        | {"broker_time": _appended(record)}
        for event, record in zip(decoded, records, strict=True)
    ]
    return [event for event in placed if event["invalid"] is None]


def last(events: list[Row], topic: str, *key: str) -> dict[Any, Row]:
    """The last event of each key, by event time and then by the order of the log."""
    ordered = sorted(events, key=lambda each: (each["event_time"], each["partition"], each["offset"]))
    return {tuple(each[k] for k in key): each for each in ordered if each["topic"] == topic}


def of_owners(events: list[Row], topic: str, thing: str, person: str, made: str) -> list[Row]:
    """The events, without the events of a topic about a thing of another person, or of a thing without an owner.

    The thing belongs to the person of the event with the smallest offset that makes it.
    """
    making = [each for each in events if each["topic"] == topic and each["verb"] == made]
    first = sorted(making, key=lambda each: (-each["offset"], each["partition"]))
    owners = {each[thing]: each[person] for each in first}
    return [each for each in events if each["topic"] != topic or owners.get(each[thing]) == each[person]]
