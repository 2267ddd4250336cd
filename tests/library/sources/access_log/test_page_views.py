"""Access logs: lines that become page views, and lines that do not."""

import bz2
import gzip
import lzma
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelog.sources.access_log.page_views import AccessLog, open_log, origin
from truelog.support.errors import BadInput

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:38.0) Gecko/20100101 Firefox/38.0"
LOG = AccessLog("https://shop.example", b"a key")


def line(  # noqa: PLR0917 — the fields of a line
    request: str = "GET /p/1 HTTP/1.1",
    ip: str = "192.0.2.1",
    time: str = "17/May/2015:10:05:03 +0000",
    answer: str = "200 512",
    referrer: str = "-",
    agent: str = FIREFOX,
) -> bytes:
    return f'{ip} - - [{time}] "{request}" {answer} "{referrer}" "{agent}"'.encode()


def test_a_line_becomes_a_page_view() -> None:
    event = LOG.page_view(1, line(referrer="https://search.example/?q=a"))
    assert event is not None
    assert event.model_dump(exclude={"event_id", "visitor_id"}, exclude_none=True) == {
        "occurred_at": datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC),
        "ip": "192.0.2.1",
        "url": "https://shop.example/p/1",
        "referrer": "https://search.example/?q=a",
        "browser": "Firefox",
        "status": 200,
        "bytes": 512,
    }


def test_missing_values_are_null_and_a_missing_size_is_0() -> None:
    event = LOG.page_view(1, line(answer="304 -", agent="-"))
    assert event is not None
    assert (event.bytes, event.referrer, event.browser, event.sent_at, event.session_id) == (0, None, None, None, None)


@pytest.mark.parametrize(
    ("logged", "utc"),
    [
        ("17/May/2015:10:05:03 +0200", "2015-05-17T08:05:03"),
        ("31/Dec/2015:20:05:03 -0430", "2016-01-01T00:35:03"),
        ("29/Feb/2016:00:00:00 +0000", "2016-02-29T00:00:00"),
    ],
)
def test_times_are_converted_to_utc(logged: str, utc: str) -> None:
    event = LOG.page_view(1, line(time=logged))
    assert event is not None
    assert event.occurred_at == datetime.fromisoformat(utc).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("/", "https://shop.example/"),
        ("//favicon.ico", "https://shop.example//favicon.ico"),
        ("/a?b=c%20d&e=100%", "https://shop.example/a?b=c%20d&e=100%25"),
        ("/a b|c[d]", "https://shop.example/a%20b%7Cc%5Bd%5D"),
        (r"/\"\x22\\", "https://shop.example/%22%22%5C"),
        ("/ü", "https://shop.example/%C3%BC"),
        (r"/\xff", "https://shop.example/%EF%BF%BD"),
        ("http://other.example/x", "http://other.example/x"),
    ],
)
def test_urls_are_absolute_and_valid(target: str, url: str) -> None:
    event = LOG.page_view(1, line(f"GET {target} HTTP/1.1"))
    assert event is not None
    assert event.url == url


@pytest.mark.parametrize(
    "malformed",
    [
        b"",
        b"not a line of a log",
        line()[:-1],  # cut off
        line() + b' "more"',
        line("-"),  # the client sent nothing
        line("OPTIONS * HTTP/1.1"),
        line(r"\x16\x03\x01"),  # TLS, sent to a server without TLS
        line(time="31/Feb/2015:10:05:03 +0000"),
        line(time="17/Mai/2015:10:05:03 +0000"),
        line(time="17/May/2015:10:05:03"),
        line(answer="999 0"),
        line("GET /" + 9_000 * "x" + " HTTP/1.1"),
        line(ip=50 * "1"),
    ],
)
def test_a_malformed_line_has_no_page_view(malformed: bytes) -> None:
    assert LOG.page_view(1, malformed) is None


def test_the_visitor_depends_on_address_user_agent_and_key() -> None:
    def visitor(log: AccessLog, logged: bytes) -> str:
        event = log.page_view(1, logged)
        assert event is not None
        return event.visitor_id

    same = visitor(LOG, line())
    assert visitor(LOG, line("GET /other HTTP/1.1")) == same
    others = {
        visitor(LOG, line(ip="192.0.2.2")),
        visitor(LOG, line(agent="other")),
        visitor(AccessLog(LOG.origin, b"another key"), line()),
    }
    assert len(others | {same}) == 4
    assert "192.0.2.1" not in same


def test_the_event_id_depends_on_the_line_and_its_number() -> None:
    def event_id(number: int, logged: bytes) -> str:
        event = LOG.page_view(number, logged)
        assert event is not None
        return event.event_id

    assert event_id(1, line()) == event_id(1, line())
    assert len({event_id(1, line()), event_id(2, line()), event_id(1, line(answer="200 1"))}) == 3


def test_the_same_line_of_two_sites_is_two_events() -> None:
    sites = (LOG, AccessLog("https://other.example", LOG.salt))
    events = [site.page_view(1, line()) for site in sites]
    assert len({event.event_id for event in events if event}) == 2


def test_a_mark_of_the_encoding_does_not_belong_to_the_address() -> None:
    """An editor may add the mark between two imports of one file."""
    event = LOG.page_view(1, b"\xef\xbb\xbf" + line())
    assert event is not None
    assert event.ip == "192.0.2.1"
    assert event == LOG.page_view(1, line())


@given(st.binary(max_size=200), st.sampled_from(["request", "ip", "time", "answer", "referrer", "agent"]))
def test_no_line_raises_an_exception(odd: bytes, field: str) -> None:
    marked = line(**{field: "ODD"})
    LOG.page_view(1, marked.replace(b"ODD", odd))
    LOG.page_view(1, odd)


@pytest.mark.parametrize("is_gzip", [False, True])
def test_plain_and_gzipped_files_are_read_whatever_their_name(tmp_path: Path, is_gzip: bool) -> None:
    content = b"one\ntwo\r\nthree"
    path = tmp_path / "access.log"
    path.write_bytes(gzip.compress(content) if is_gzip else content)
    with open_log(path) as (lines, file):
        assert list(lines) == [b"one\n", b"two\r\n", b"three"]
        assert file.tell() == path.stat().st_size


TEXT = b"\r\n".join([line()] * 3)


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        (bz2.compress(TEXT), "bzip2 -dk"),
        (lzma.compress(TEXT), "xz -dk"),
        (b"\x28\xb5\x2f\xfd and the rest", "zstd -d"),
        (TEXT.decode().encode("utf-16"), "iconv"),
        (TEXT.decode().encode("utf-16-le"), "iconv"),
        (TEXT.decode().encode("utf-16-be"), "iconv"),
        (b"\xef\xbb\xbf" + TEXT.replace(b"\r\n", b"\r"), r"tr '\\r' '\\n'"),
    ],
)
@pytest.mark.parametrize("is_gzip", [False, True])
def test_another_form_is_refused_with_the_cure(tmp_path: Path, content: bytes, cure: str, is_gzip: bool) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(gzip.compress(content) if is_gzip else content)
    with pytest.raises(BadInput, match=f"^.*access.log .*{cure}"), open_log(path):
        pass


@pytest.mark.parametrize("content", [b"", b"\0", b"x", line(), b"\0" * 100, TEXT, b"a\rb\nc"])
def test_other_contents_are_read(tmp_path: Path, content: bytes) -> None:
    """After a crash, a log may begin with zeros. Its lines are malformed, and the rest of the file counts."""
    path = tmp_path / "access.log"
    path.write_bytes(content)
    with open_log(path) as (lines, _):
        assert b"".join(lines) == content


def test_a_host_may_include_its_scheme() -> None:
    assert origin("shop.example") == "http://shop.example"
    assert origin("https://shop.example/") == "https://shop.example"
