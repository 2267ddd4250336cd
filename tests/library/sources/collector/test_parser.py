"""Splitting a body into its events, also if a sender is hostile."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.library.posted import (
    EVENT,
    MOST,
    POSTED,
    REPEATABLE,
    posted,
)
from truelog.sources.collector import parser as event_parser
from truelog.sources.collector.parser import parse_event, split_document, split_lines
from truelog.support.errors import RequestRefused


@settings(REPEATABLE, max_examples=300)
@given(st.lists(posted, max_size=4))
@example([EVENT, b"", EVENT])
@example([EVENT, b"]", EVENT])
def test_no_byte_of_an_array_is_lost(several: list[bytes]) -> None:
    """The body contains the event bytes in order, with only punctuation between them."""
    body = b"[" + b",".join(several) + b"]"
    at = 0
    for event in split_document(body, MOST):
        begin = body.index(event.raw, at)
        assert set(body[at:begin]) <= set(b"[], \t\r\n")
        at = begin + len(event.raw)
    assert set(body[at:]) <= set(b"[], \t\r\n")


@settings(REPEATABLE, max_examples=200)
@given(st.lists(posted.filter(lambda raw: b"\n" not in raw and raw.strip(b" \t\r")), max_size=5))
def test_splitting_lines_equals_splitting_each_line_alone(several: list[bytes]) -> None:
    alone = [event for raw in several for event in split_lines(raw, MOST)]
    assert list(split_lines(b"\r\n".join(several), MOST)) == alone
    assert len(alone) == len(several)


COMPLETE = [raw for raw in POSTED if raw.startswith(b'{"type"') and parse_event(raw).defect is None]


@settings(REPEATABLE, max_examples=200)
@given(st.lists(st.sampled_from(COMPLETE), max_size=5))
def test_splitting_an_array_of_complete_events_equals_splitting_each_alone(several: list[bytes]) -> None:
    body = b" [ " + b" , ".join(several) + b" ] "
    assert list(split_document(body, MOST)) == [event for raw in several for event in split_document(raw.strip(), MOST)]


@pytest.mark.parametrize(
    ("body", "raw"),
    [
        (b"[]", []),
        (b" [ ] ", []),
        (b"[] x", [b"x"]),
        (b"[1, 2", [b"1", b"2", b""]),
        (b"[1 2]", [b"1", b"2]"]),
        (b"[1, 2,]", [b"1", b"2", b"]"]),
        (b"[1, {\xff}, 3]", [b"1", b"{\xff}, 3]"]),
        (b'["\xff", "\x00"]', [b'"\xff"', b'"\x00"']),
        (b"[1], [2]", [b"1", b", [2]"]),
        (b"[", [b""]),
        (b"[" * 5000, [b"[" * 4999]),
    ],
)
def test_the_rest_of_a_body_that_cannot_be_split_further_is_one_event(body: bytes, raw: list[bytes]) -> None:
    assert [event.raw for event in split_document(body, MOST)] == raw


def test_lines_are_counted_before_any_line_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_parser._Parser, "parse", lambda *_: pytest.fail("a line was parsed"))
    with pytest.raises(RequestRefused, match="more than 1000 events", check=lambda error: error.status == 413):
        list(split_lines(b"x\n" * 1001, 1000))


@pytest.mark.parametrize("blank", [b"\n", b" \t\r\n", b" " * 1000 + b"\n"])
def test_blank_lines_are_not_events(blank: bytes) -> None:
    body = blank * 2000 + b" 1 \r\n" + blank * 2000 + b"\t2"
    assert [event.raw for event in split_lines(body, 2)] == [b" 1 ", b"\t2"]


def test_a_duplicate_among_many_names_is_found_without_comparing_all_pairs() -> None:
    """Comparing all pairs of 40,000 names took 11 s."""
    names = b",".join(b'"a%d":1' % number for number in range(40_000))
    began = time.thread_time()
    [event] = split_document(b"{" + names + b',"a1":2}', 1)
    assert event.defect == ("a1", "a duplicate field")
    assert time.thread_time() - began < 2
