"""The rows whose last change is invalid are known, however the log is cut into looks and whatever is sent again."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.changes import change, ended
from tests.deadline import deadline
from truelog.alerts.sources.captured_rows import invalid_findings
from truelog.capture import epochs, invalid_changes
from truelog.capture.invalid_changes import InvalidChange, Judged, Summary, folded, judged
from truelog.log import topics
from truelog.log.range_reader import RAW
from truelog.schema.event import EventType
from truelog.schema.loading.events import load_event, load_events
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

CUSTOMERS = load_events()["customers"]
KEYS = st.integers(1, 3)
STEPS = st.tuples(st.sampled_from(["good", "bad", "deleted", "truncated", "ended"]), KEYS)


def record(kind: str, key: int, lsn: int) -> bytes:
    if kind == "ended":
        return ended(epoch=1)  # below all changes of its epoch, so it closes none
    if kind == "truncated":
        return change(kind, lsn=lsn)
    row = {"id": key, "since": None if kind == "good" else "infinity"}  # a deletion has the values before it
    return change("deleted" if kind == "deleted" else "updated", row, lsn=lsn)


def judgements(log: Sequence[bytes | None], event_type: EventType = CUSTOMERS) -> list[Judged]:
    size = len(log)
    name, at = event_type.name, datetime(2026, 3, 1, tzinfo=UTC)
    columns: list[Any] = [[name] * size, [0] * size, range(size), [at] * size, log]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, RAW, strict=True)]
    return judged(event_type, pa.RecordBatch.from_arrays(arrays, schema=RAW))


def look(log: Sequence[bytes | None], before: dict[str, InvalidChange]) -> dict[str, InvalidChange]:
    return folded(judgements(log), before)


def expected(steps: list[tuple[str, int]]) -> set[str]:
    """The naive rule: the rows whose last change since the last truncation is bad."""
    last: dict[str, str] = {}
    for kind, key in steps:
        if kind == "truncated":
            last.clear()
        elif kind != "ended":
            last[str(key)] = kind
    return {key for key, kind in last.items() if kind == "bad"}


@settings(deadline=None)
@given(st.lists(STEPS, max_size=12), st.data())
def test_the_rows_are_those_of_a_naive_loop_in_any_looks_and_when_records_are_sent_again(
    steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    log = [record(kind, key, 10 + number) for number, (kind, key) in enumerate(steps)]
    reached = data.draw(st.integers(0, len(log)))
    again = [*log[:reached], *log[data.draw(st.integers(0, reached)) :]]  # Connect was killed, and sends a part again
    cut = data.draw(st.integers(0, len(again)))
    assert look(again[cut:], look(again[:cut], {})).keys() == expected(steps)


def test_an_invalid_change_has_its_row_and_its_reason() -> None:
    found = look([change("updated", {"id": 7, "since": "infinity"}, lsn=5), None, change("heartbeat", lsn=6)], {})
    assert [(each.key, each.reason.split(":")[0]) for each in found.values()] == [("7", "since")]


def test_the_end_of_a_later_snapshot_removes_a_row_that_it_does_not_contain() -> None:
    bad = [change("updated", {"id": key, "since": "infinity"}, lsn=5) for key in (7, 8)]
    again = change("read", {"id": 8, "since": "infinity"}, lsn=9, epoch=2)
    assert look([*bad, again, ended(epoch=2, began=8)], {}).keys() == {"8"}


def test_a_record_that_is_no_change_has_no_key() -> None:
    assert look([b"{"], {}).keys() == {""}


AS_KEY = "2026-03-01T00:00:00Z"
BY_DAY = """
from datetime import datetime
from truelog import Change, Topic
TOPIC = Topic(key="since", subject=(), partitions=1, retention="7 days", compacted=True, source="public.days")
class Day(Change):
    since: datetime | None = None
    id: int | None = None
"""


@pytest.mark.parametrize("day", ["2026-03-01Z", "2026-03-01T00:00:00Z", "2026-03-01T00:00:00.000000Z"])
def test_a_time_as_a_key_is_one_text_in_valid_and_invalid_changes(day: str, tmp_path: Path) -> None:
    (tmp_path / "day.py").write_text(BY_DAY)
    log = [change("updated", {"since": day, "id": number}, lsn=5) for number in ("wide", 1)]
    bad, good = judgements(log, load_event(tmp_path / "day.py"))
    assert [(each.key, each.reason is None) for each in (bad, good)] == [(AS_KEY, False), (AS_KEY, True)]


def test_a_heartbeat_has_no_key() -> None:
    assert [each.key for each in judgements([change("heartbeat", lsn=6)])] == [None]


@pytest.fixture
def captured(connection: Connection) -> Iterator[Connection]:
    epochs.begin(connection, "customers")
    yield connection
    invalid_changes.record(connection, "customers", [Judged(None, "9", closes=True)])


def test_a_look_keeps_the_rows_of_other_keys_unless_it_closes_them(captured: Connection) -> None:
    def seen(*changes: Judged) -> list[str]:
        invalid_changes.record(captured, "customers", changes)
        return [each.key for each in invalid_changes.load(captured, "customers")]

    assert seen(*(Judged(str(key), f"{key}", "since: bad") for key in range(1, 6))) == ["1", "2", "3", "4", "5"]
    assert seen(Judged("2", "6"), Judged("6", "6", "name: bad")) == ["1", "3", "4", "5", "6"]
    assert seen(Judged("4", "3"), Judged(None, "4", closes=True)) == ["4", "5", "6"]


DATES_AS_TEXT = """
from truelog import Change, Topic
TOPIC = Topic(key="id", subject=(), partitions=1, retention="7 days", compacted=True, source="public.customers")
class Customers(Change):
    id: int | None = None
    since: str | None = None
"""


def test_another_reading_judges_all_changes_again(
    platform: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new version has a text instead of a time, so the invalid change is valid. A late look changes nothing."""
    (tmp_path / "customers.py").write_text(DATES_AS_TEXT)
    again = replace(load_event(tmp_path / "customers.py"), reading=1)
    topics.sync_topics(platform, {"customers": CUSTOMERS})
    producer = Producer({**platform.kafka(), "acks": "all"})
    producer.produce("customers", change("updated", {"id": 7, "since": "infinity"}, lsn=5), b"7")
    assert producer.flush(deadline(10)) == 0
    with connect(platform, autocommit=True) as connection, connect(platform, autocommit=True) as other:

        def found(event_type: EventType, by: Connection = connection) -> list[str]:
            invalid_changes.follow(platform, by, event_type, 5)
            return [each.key for each in invalid_changes.load(by, "customers")]

        def judged_late(*judging: Any) -> list[Judged]:
            monkeypatch.undo()
            patched.setattr(invalid_changes, "judged", judged)
            assert found(again, other) == []
            return judged(*judging)

        epochs.begin(connection, "customers")
        with monkeypatch.context() as patched:
            patched.setattr(invalid_changes, "judged", judged_late)
            assert found(CUSTOMERS) == []
        for event_type, keys in ((CUSTOMERS, ["7"]), (again, []), (again, [])):
            assert found(event_type) == keys


def test_an_alert_counts_rows_and_names_reasons_but_no_key(captured: Connection) -> None:
    changes = [Judged(f"ann{key}", "1", "since: bad") for key in range(5)]
    invalid_changes.record(captured, "customers", changes)
    [found] = invalid_findings(invalid_changes.summaries(captured, ["customers"]))
    assert found.cause == "5 rows. since: bad"


def test_an_alert_says_how_far_behind_the_watch_is() -> None:
    [found] = invalid_findings({"customers": Summary(1, ("since: bad",), 30_000), "orders": Summary()})
    assert found.cause == "1 rows. since: bad; 30,000 records are not judged yet"
