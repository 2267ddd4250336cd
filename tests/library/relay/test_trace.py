"""The trace of a request: a valid header goes into the records, and any other is left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelog.relay.trace import of_record, record_headers

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("valid", [TRACE, f" {TRACE} ", "cc" + TRACE[2:], "cc" + TRACE[2:] + "-what-the-future-is"])
def test_a_valid_trace_is_kept(valid: str) -> None:
    assert record_headers(valid) == {"traceparent": valid.strip().encode()}


WRONG = (
    "",
    "ff" + TRACE[2:],
    TRACE.upper(),
    TRACE + "-more",
    TRACE + "0",
    TRACE[:-1],
    f"00-{'0' * 32}-00f067aa0ba902b7-01",
    f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
    TRACE.replace("-", "_"),
    "cc" + TRACE[2:] + "-" + "x" * 65,
    "cc" + TRACE[2:] + "-\xfc",
)


@pytest.mark.parametrize("wrong", WRONG)
def test_any_other_is_left_out(wrong: str) -> None:
    assert record_headers(wrong) == {}


@given(st.lists(st.tuples(st.sampled_from(["traceparent", "other"]), st.none() | st.binary(max_size=60)), max_size=3))
def test_a_record_has_the_trace_of_its_only_valid_header(headers: list[tuple[str, bytes | None]]) -> None:
    assert of_record([*headers, ("traceparent", TRACE.encode())]) == (
        TRACE if "traceparent" not in dict(headers) else None
    )
    assert of_record(headers) is None


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    assert record_headers(text) in ({}, {"traceparent": text.strip().encode()})
