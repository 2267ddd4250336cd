"""Records that have misled, stopped or crashed JSON parsers, and the event type that they imitate."""

from datetime import datetime

from hypothesis import strategies as st
from pydantic import Field

from truelog.schema.event import Event, EventType, Topic


class Thing(Event):
    """Fields of every type, with and without bounds."""

    text: str
    short: str | None = Field(default=None, min_length=1, max_length=3)
    number: int | None = None
    small: int | None = Field(default=None, ge=-5, le=5)
    flag: bool | None = None
    amount: float | None = Field(default=None, le=1e300)
    at: datetime | None = None
    words: list[str] | None = Field(default=None, max_length=3)


THING = EventType("thing", Thing, Topic(key="text", subject=(), partitions=1, retention="1 day"))
ENVELOPE = '"event_id":"e","occurred_at":"2026-11-21T09:59:00Z"'


def thing(payload: str) -> bytes:
    """A record with a valid envelope and the given payload."""
    return f'{{{ENVELOPE},"text":"t",{payload}}}'.encode()


GOOD = thing('"number":1')

HOSTILE = [
    b"",
    b" \n\t\r ",
    b"null",
    b" null ",
    b"true",
    b"5",
    b'"text"',
    b"[]",
    b"[" + GOOD + b"]",
    b"{}",
    b"{",
    b"}",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf" + GOOD,
    GOOD.decode().encode("utf-16"),
    GOOD + GOOD,
    GOOD + b"null",
    GOOD + b"\n null \n" + GOOD,
    GOOD + b"," + GOOD,
    GOOD + b",",
    GOOD + b"\x00",
    GOOD + b"\x00" + GOOD,
    GOOD + b"//",
    b"/**/" + GOOD,
    GOOD[:-1],
    GOOD + b"}",
    GOOD[:-1] + b',"unknown":',
    GOOD[:-1] + b',"unknown":[',
    b"]}",
    b',"more":1}',
    b'"}',
    GOOD[:-1] + b',"unknown":"',
    b'{"sentinel-0":0}',
    GOOD + b'\n{"sentinel-0123456789abcdef":0}',
    thing('"sentinel-0":0'),
    thing('"invalid":"no","event_time":"x","sentinel":{"a":[{}]}'),
    thing('"unknown":' + "[" * 900 + "]" * 900),
    thing('"unknown":' + "[" * 50_000 + "]" * 50_000),
    thing('"unknown":' + '{"a":' * 20_000 + "1" + "}" * 20_000),
    thing('"unknown":"a } null b"'),
    thing('"unknown":"\\"} null \\\\"'),
    thing('"unknown":{} null'),
    thing('"unknown":1,"unknown":2'),
    thing('"unknown":"\\ud800"'),
    thing('"unknown":' + "9" * 5_000),
    thing('"unknown":-1e400'),
    thing('"unknown":[NaN,Infinity]'),
    thing('"number":1,"number":2'),
    thing('"number":1,"\\u006eumber":2'),
    thing('"number":null,"number":2'),
    thing('"number":9223372036854775807'),
    thing('"number":9223372036854775808'),
    thing('"number":-9223372036854775808'),
    thing('"number":-9223372036854775809'),
    thing('"number":-0'),
    thing('"number":1.0'),
    thing('"number":1e2'),
    thing('"number":01'),
    thing('"number":"1"'),
    thing('"number":true'),
    thing('"number":{}'),
    thing('"number":[]'),
    thing('"number":NaN'),
    thing('"amount":-0.0'),
    thing('"amount":-0'),
    thing('"amount":1e400'),
    thing('"amount":-1e400'),
    thing('"amount":1e-400'),
    thing('"amount":NaN'),
    thing('"amount":Infinity'),
    thing('"amount":123456789012345678901234567890'),
    thing('"amount":0.1'),
    thing('"amount":"1"'),
    thing('"flag":1'),
    thing('"flag":"true"'),
    thing('"flag":false'),
    thing('"short":""'),
    thing('"short":"abcd"'),
    thing('"short":"\\u0000\\ud83d\\ude00é"'),
    thing('"short":"\\ud800"'),
    thing('"short":"\\udc00"'),
    thing('"short":"\x00"'),
    thing('"short":"\n"'),
    thing('"short":null'),
    thing('"short":5'),
    thing('"short":{"a":1}'),
    thing('"short":"\\x"'),
    thing('"short":"a').replace(b"}", b""),
    thing('"short":"')[:-1] + b'\xc3\x28"}',
    thing('"unknown":"')[:-1] + b'\xff"}',
    thing('"small":6'),
    thing('"small":-6'),
    thing('"words":[]'),
    thing('"words":["a","\\u0000"]'),
    thing('"words":["a",null]'),
    thing('"words":[null]'),
    thing('"words":[null,"a"]'),
    thing('"words":[1]'),
    thing('"words":["a","b","c","d"]'),
    thing('"words":"a"'),
    *(
        thing(f'"at":{time}')
        for time in (
            '"0001-01-01T00:00:00Z"',
            '"9999-12-31T23:59:59.999999Z"',
            '"0000-12-31T23:59:59Z"',
            '"0001-01-01T00:00:00+00:01"',
            '"9999-12-31T23:59:59-00:01"',
            '"2024-02-29T12:00:00.5+05:30"',
            '"2023-02-29T00:00:00Z"',
            '"2023-04-31T00:00:00Z"',
            '"1900-02-29T00:00:00Z"',
            '"2023-01-01T24:00:00Z"',
            '"2023-01-01T23:59:60Z"',
            '"2023-01-01T00:00:00"',
            '"2023-01-01T00:00Z"',
            '"2023-01-01"',
            '"2023-01-01 00:00:00Z"',
            '"2023-01-01T00:00:00z"',
            '"2023-01-01T00:00:00.1234567Z"',
            '"2023-01-01T00:00:00.Z"',
            '"2023-01-01T00:00:00+0000"',
            '"2023-01-01T00:00:00Z\\n"',
            '"\\u0662023-01-01T00:00:00Z"',
            '"1700000000"',
            "1700000000",
            '""',
            "null",
        )
    ),
    b"{" + ENVELOPE.encode() + b"}",
    b"{" + ENVELOPE.encode() + b',"text":null}',
    b'\r\n\t {\n"event_id" :\t"e" ,"occurred_at":"2026-11-21T09:59:00Z",\n\n"text":"\\u2028"}\r\n ',
    GOOD.replace(b"2026-11", b"9999-12"),
]


noise = st.one_of(
    st.sampled_from([b"", b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"\n", b"\x00", b"\\", b"\xff", b"1"]),
    st.binary(max_size=4),
)


@st.composite
def mutilated(draw: st.DrawFn) -> bytes:
    """A record in which noise replaces a random part."""
    objects = [GOOD, *(raw for raw in HOSTILE if raw.startswith(b"{"))]
    record = draw(st.sampled_from(objects))[:2_000]
    start = draw(st.integers(0, len(record)))
    end = draw(st.integers(start, min(len(record), start + 12)))
    return record[:start] + draw(noise) + record[end:]
