"""The rows whose last change is invalid are known, however the log is cut into looks and whatever is sent again."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.changes import change, ended
from truelog.capture.invalid_changes import InvalidChange, folded
from truelog.log.range_reader import RAW
from truelog.schema.event import load_events

CUSTOMERS = load_events()["customers"]
KEYS = st.integers(1, 3)
STEPS = st.tuples(st.sampled_from(["good", "bad", "deleted", "truncated", "ended"]), KEYS)


def record(kind: str, key: int, lsn: int) -> bytes:
    if kind == "ended":
        return ended(epoch=1)  # below all changes of its epoch, so it closes none
    if kind == "truncated":
        return change(kind, lsn=lsn)
    row = {"id": key, "since": "infinity" if kind == "bad" else None}
    return change("deleted" if kind == "deleted" else "updated", row, lsn=lsn)


def look(log: Sequence[bytes | None], before: dict[str, InvalidChange]) -> dict[str, InvalidChange]:
    size = len(log)
    columns: list[Any] = [["customers"] * size, [0] * size, range(size), [datetime(2026, 3, 1, tzinfo=UTC)] * size, log]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, RAW, strict=True)]
    return folded(CUSTOMERS, pa.RecordBatch.from_arrays(arrays, schema=RAW), before)


def expected(steps: list[tuple[str, int]]) -> set[str]:
    """The naive rule: the rows whose last change since the last truncation is bad."""
    last: dict[str, str] = {}
    for kind, key in steps:
        if kind == "truncated":
            last.clear()
        elif kind != "ended":
            last[str(key)] = kind
    return {key for key, kind in last.items() if kind == "bad"}


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
