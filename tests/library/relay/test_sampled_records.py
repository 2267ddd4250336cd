"""Arrow finds the same sampled records of a batch as a look at each header in Python."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.library.listener import listening
from tests.library.relay.received import received
from truelog.log.range_reader import WHOLE
from truelog.relay import sampled_records as module
from truelog.relay import trace
from truelog.relay.sampled_records import SampledRecord, end_archived, sampled_records
from truelog.relay.spans import nanoseconds, opened_spans
from truelog.support.settings import Settings

Headers = list[tuple[str, bytes | None]]

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FORMS = [TRACE, TRACE[:-1] + "0", TRACE[:-2] + "03", TRACE.upper(), "ff" + TRACE[2:], "cc" + TRACE[2:] + "-later"]
FORMS += [TRACE + "-more", TRACE + "0", f" {TRACE}", f"00-{'0' * 32}{TRACE[35:]}"]
MORNING = datetime(2026, 11, 28, 6, tzinfo=UTC)

values = st.sampled_from([form.encode() for form in FORMS]) | st.none() | st.binary(max_size=60)
header_lists = st.none() | st.lists(st.tuples(st.sampled_from(["traceparent", "other", ""]), values), max_size=3)


def batch(headers: list[Headers | None]) -> pa.Table:
    """Records with these headers, at offsets from 10 on, one second apart."""
    columns = {
        "topic": ["page_view"] * len(headers),
        "partition": [2] * len(headers),
        "offset": range(10, 10 + len(headers)),
        "broker_time": [MORNING + timedelta(seconds=each) for each in range(len(headers))],
        "value": [b"{}"] * len(headers),
        "key": [None] * len(headers),
        "headers": [None if each is None else [{"key": k, "value": v} for k, v in each] for each in headers],
    }
    return pa.table(columns, WHOLE)


@given(st.lists(header_lists, max_size=6), st.integers(0, 2))
def test_they_are_the_records_that_a_look_at_each_finds(headers: list[Headers | None], first: int) -> None:
    """Also in a part of a table, whose arrays begin behind the first record."""
    found = sampled_records(batch(headers).slice(first))
    expected = []
    for number, each in list(enumerate(headers))[first:]:
        parent = trace.of_record(each or [])
        if parent is not None and trace.is_sampled(parent):
            expected.append(SampledRecord(10 + number, parent, MORNING + timedelta(seconds=number)))
    assert list(found) == expected


def test_a_file_has_so_many_spans_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    found = sampled_records(batch([[("traceparent", TRACE.encode())]] * 5))
    assert [each.offset for each in found] == [10, 11]


def test_each_has_a_span_until_the_archive_has_it() -> None:
    found = sampled_records(batch([None, [("traceparent", TRACE.encode())]]))
    with listening() as receiver:
        settings = Settings().model_copy(update={"spans_endpoint": receiver.url})
        with opened_spans(settings, "archive") as spans:
            end_archived(spans, "page_view", 2, found)
        [span] = received(receiver)
    assert (span.service, span.name, span.parent) == ("truelog-archive", "archive page_view", TRACE[36:52])
    assert span.begin == nanoseconds(MORNING + timedelta(seconds=1)) < span.end
    assert span.attributes == {
        "messaging.system": "kafka",
        "messaging.destination.name": "page_view",
        "messaging.destination.partition.id": "2",
        "messaging.kafka.offset": 11,
    }
