"""Debezium's records as events: their order, their values, and what cannot be represented."""

import json
import pickle
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.changes import change, ended
from truelog.schema.change import decode_changes, epoch_of
from truelog.schema.event import LENIENT_CHANGES, NESTED_CHANGES, EventType
from truelog.schema.event_version import DECODERS, declaration_of, from_declaration
from truelog.schema.loading.events import load_event, load_events
from truelog.schema.record_validation import TOMBSTONE
from truelog.support.errors import BadDeclaration

CUSTOMERS = load_events()["customers"]
ANN = {"id": 1, "name": "Ann", "credit": "12.50", "since": "2020-02-29T12:00:00.000001Z", "is_active": True}
UNCHANGED = "__debezium_unavailable_value"

HEAD = """
from datetime import datetime
from truelog import Change, Event, Topic
TOPIC = Topic(key="id", subject=(), partitions=1, retention="7 days", compacted=True, source="public.things")
class Thing(Change):
    id: int | None = None
"""


def decoded(*records: bytes | None, event_type: EventType = CUSTOMERS) -> list[dict[str, Any]]:
    times = pa.array([datetime(2026, 3, 1, tzinfo=UTC)] * len(records), pa.timestamp("us", "UTC"))
    values = pa.array(records, pa.binary())
    rows: list[dict[str, Any]] = decode_changes(event_type, values, times, event_type.future_limit).to_pylist()
    return rows


def place(operation: str = "updated", **of_change: Any) -> str:
    found: str = decoded(change(operation, ANN, **of_change))[0]["source_place"]
    return found


def test_a_change_has_the_columns_of_its_table() -> None:
    [row] = decoded(change("inserted", ANN | {"undeclared": {"a": 1}}, lsn=7, commit=5))
    assert {name: row[name] for name in ("id", "name", "credit", "is_active", "email")} == {
        "id": 1,
        "name": "Ann",
        "credit": "12.50",
        "is_active": True,
        "email": None,
    }
    assert row["since"] == datetime(2020, 2, 29, 12, 0, 0, 1, UTC)
    assert (row["source_operation"], row["source_lsn"], row["source_closes"], row["invalid"]) == (
        "inserted",
        7,
        False,
        None,
    )


def test_a_deletion_has_only_the_key_because_another_value_may_be_invalid() -> None:
    [row] = decoded(change("deleted", ANN | {"since": "infinity", "email": UNCHANGED}, lsn=7))
    assert (row["source_operation"], row["id"], row["name"], row["invalid"]) == ("deleted", 1, None, None)


def test_a_truncation_and_the_end_of_a_snapshot_close_rows_and_a_heartbeat_does_not() -> None:
    records = [
        change("truncated", lsn=1),
        change("read", ANN, lsn=1, snapshot="last"),
        change("read", ANN, lsn=1, snapshot="first"),
        change("heartbeat", lsn=2),
    ]
    assert [row["source_closes"] for row in decoded(*records)] == [True, True, False, False]


def test_the_end_of_a_snapshot_closes_the_rows_before_the_attempt_and_none_of_its_own() -> None:
    interrupted, [end], own = (
        place(epoch=2, lsn=4, operation="read"),
        decoded(ended(epoch=2, began=5)),
        place(epoch=2, lsn=5, operation="read"),
    )
    assert (end["source_operation"], end["source_closes"], end["invalid"], end["id"]) == ("ended", True, None, None)
    assert place(epoch=1, lsn=2**63 - 1) < interrupted < end["source_place"] <= own


def test_the_end_of_another_snapshot_is_a_heartbeat() -> None:
    """Each replication slot has the messages of all tables, and a slot may have that of the epoch before its own."""
    others = decoded(ended(table="orders"), ended(epoch=2, of_epoch=1))
    assert [(row["source_operation"], row["source_closes"]) for row in others] == [("heartbeat", False)] * 2


def test_the_end_of_a_snapshot_of_another_environment_is_a_heartbeat() -> None:
    """Two environments may capture one table, and each slot has the messages of both."""
    pairs = [("customers", "customers"), ("red.customers", "red.customers"), ("customers", "red.customers")]
    pairs += [("red.customers", "customers"), ("red.customers", "blue.customers")]
    rows = decoded(*(ended(source=source, table=table) for source, table in pairs))
    assert [row["source_operation"] for row in rows] == ["ended", "ended", "heartbeat", "heartbeat", "heartbeat"]


def test_an_end_that_cannot_be_read_closes_nothing() -> None:
    record = json.loads(ended())
    record["message"]["content"] = "e30="  # {}
    [row] = decoded(json.dumps(record).encode())
    assert row["invalid"] == "record: not a change that Debezium has written"


def test_a_dropped_column_is_invalid_and_a_deletion_needs_only_the_key() -> None:
    bad, good = (decoded(change(each, ANN, lsn=7, dropped=("city",)))[0] for each in ("updated", "deleted"))
    assert bad.pop("invalid") == "city: public.customers has no such column; it was dropped or renamed"
    assert set(bad.values()) == {None}
    assert (good["invalid"], good["source_operation"], good["id"]) == (None, "deleted", 1)


def test_records_before_the_upgrade_keep_their_meaning() -> None:
    """The decoder of the earlier release judges them: an absent column is NULL, and a message is a heartbeat."""
    earlier = replace(CUSTOMERS, decoder=LENIENT_CHANGES)
    records = change("updated", ANN, lsn=7, dropped=("city",)), ended(), change("deleted", ANN, lsn=8)
    dropped, message, deleted = decoded(*records, event_type=earlier)
    assert (dropped["invalid"], dropped["city"]) == (None, None)
    assert (message["source_operation"], message["source_closes"]) == ("heartbeat", False)
    assert (deleted["source_operation"], deleted["name"]) == ("deleted", "Ann")


INNER = "[Ljava.lang.String;@6b82fde0"  # what Debezium writes for an array in an array


@pytest.mark.parametrize("inner", [INNER, f"[{INNER}"])
def test_an_array_with_several_dimensions_is_invalid_and_was_a_wrong_value_before_the_upgrade(
    inner: str, tmp_path: Path
) -> None:
    (tmp_path / "thing.py").write_text(f"{HEAD}    tags: list[str] | None = None\n")
    thing = load_event(tmp_path / "thing.py")
    nested, flat = {"id": 1, "tags": [inner, inner]}, {"id": 1, "tags": ["[x", "Ljava", ""]}
    unchanged = change("updated", {"id": 1, "tags": [UNCHANGED]}, lsn=7, before=nested)
    records = change("inserted", nested, lsn=7), unchanged, change("inserted", flat, lsn=7)
    *bad, good = decoded(*records, event_type=thing)
    assert [each["invalid"].partition(",")[0] for each in bad] == ["tags: an array with several dimensions"] * 2
    assert (good["invalid"], good["tags"]) == (None, flat["tags"])
    [earlier, *_] = decoded(*records, event_type=replace(thing, decoder=NESTED_CHANGES))
    assert (earlier["invalid"], earlier["tags"]) == (None, [inner, inner])


PLACES = st.tuples(st.integers(0, 1), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))


@given(PLACES, PLACES)
def test_places_sort_by_commit_and_then_by_the_place_in_the_log(one: Any, other: Any) -> None:
    first, second = (place(epoch=epoch, commit=commit, lsn=lsn) for epoch, commit, lsn in (one, other))
    assert (first < second) == (one < other)


def test_an_epoch_begins_with_its_snapshot() -> None:
    places = [
        place(epoch=1, lsn=2**63 - 1, commit=2**63 - 1),
        decoded(change("read", ANN, lsn=9, epoch=2))[0]["source_place"],
        place(epoch=2, lsn=1),
        place(epoch=10, lsn=0),
    ]
    assert places == sorted(places)


def test_each_record_of_connect_except_a_tombstone_says_its_epoch() -> None:
    records = (change("read", ANN, lsn=9, epoch=2), change("heartbeat", lsn=9, epoch=12), ended(epoch=3))
    assert [epoch_of(each) for each in (*records, None, b"{")] == [2, 12, 3, 0, 0]
    assert epoch_of(change("read", ANN, lsn=9, epoch=4, source="red.customers")) == 4


def test_a_change_that_is_sent_again_has_the_same_id() -> None:
    again = [decoded(change("updated", ANN, lsn=7, commit=5))[0]["event_id"] for _ in range(2)]
    assert again[0] == again[1]
    of_one_copy = decoded(*(change("inserted", {"id": number}, lsn=7, commit=5) for number in range(3)))
    assert len({row["event_id"] for row in of_one_copy}) == 3


def test_a_tombstone_is_not_an_event_and_says_so() -> None:
    [row] = decoded(None)
    assert row.pop("invalid") == TOMBSTONE
    assert set(row.values()) == {None}


NEVER: dict[str, tuple[dict[str, Any], str]] = {
    "text for a truth value": ({"is_active": "NaN"}, "is_active"),
    "a time without end": ({"since": "infinity"}, "since"),
    "a time before the year 1": ({"since": "-0043-03-15T00:00:00Z"}, "since"),
    "a date without end": ({"since": "+292278994-08-16Z"}, "since"),
    "text for a number": ({"id": "1"}, "id"),
    "a wide number": ({"id": 2**63}, "id"),
    "a long value that was not logged": ({"name": UNCHANGED}, "REPLICA IDENTITY FULL"),
}


@pytest.mark.parametrize("case", NEVER)
def test_a_value_that_cannot_be_represented_is_never_another_value(case: str) -> None:
    values, reason = NEVER[case]
    bad, good = decoded(change("updated", ANN | values, lsn=7), change("updated", ANN, lsn=8))
    assert reason in bad.pop("invalid")
    assert set(bad.values()) == {None}
    assert good["invalid"] is None


def test_an_unchanged_long_value_comes_from_the_row_before() -> None:
    [row] = decoded(change("updated", ANN | {"name": UNCHANGED}, lsn=7, before=ANN | {"name": "x" * 9_000}))
    assert row["name"] == "x" * 9_000


def test_a_date_is_its_first_moment() -> None:
    assert decoded(change("updated", ANN | {"since": "2020-02-29Z"}, lsn=7))[0]["since"] == datetime(
        2020, 2, 29, tzinfo=UTC
    )


@given(st.binary(max_size=40) | st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists).map(json.dumps))
def test_whatever_is_no_change_is_invalid_alone(junk: bytes | str) -> None:
    record = junk.encode() if isinstance(junk, str) else junk
    bad, good = decoded(record, change("updated", ANN, lsn=8))
    assert bad["invalid"]
    assert (good["id"], good["invalid"]) == (1, None)


def test_a_wrong_clock_of_the_database_makes_no_change_invalid() -> None:
    [row] = decoded(change("updated", ANN, lsn=7, at=datetime(9999, 12, 31, tzinfo=UTC)))
    assert (row["invalid"], row["event_time"].year) == (None, 9999)


def test_the_declaration_as_data_judges_alike() -> None:
    """The registry and other processes have only the data."""
    data = json.loads(json.dumps(declaration_of(CUSTOMERS)))
    revived = from_declaration("customers", data, CUSTOMERS.topic, CUSTOMERS.quality)
    assert DECODERS[revived.decoder] is decode_changes
    assert pickle.loads(pickle.dumps(CUSTOMERS)).decoder == CUSTOMERS.decoder
    record = change("inserted", ANN, lsn=7)
    assert decoded(record, event_type=revived) == decoded(record)


WRONG = {
    "another base class": (HEAD.replace("(Change)", "(Event)"), "derive from Change"),
    "a source without a schema": (HEAD.replace("public.things", "things"), "'public.customers'"),
    "several partitions": (HEAD.replace("partitions=1", "partitions=2"), "partitions=1"),
    "a topic that is not compacted": (HEAD.replace("compacted=True, ", ""), "compacted=True"),
    "a required column": (HEAD + "    name: str\n", "declare `| None = None`"),
    "a name of the platform": (HEAD + "    source_place: str | None = None\n", "source_place"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_declaration_that_fits_no_table_is_refused_with_the_cure(case: str, tmp_path: Path) -> None:
    text, reason = WRONG[case]
    (tmp_path / "thing.py").write_text(text)
    with pytest.raises(BadDeclaration, match=reason):
        load_event(tmp_path / "thing.py")


def test_only_the_platform_writes_changes() -> None:
    assert CUSTOMERS.topic.internal
