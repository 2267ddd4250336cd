"""Access logs: the combined format of Apache and Nginx, line by line, as page views.

A line says who asked (address and user agent), when, for what, and what the answer was. It knows neither visitor nor
host: the visitor is a keyed hash of address and user agent, so that nobody without the key can tell whose it is, and
the host is the one that the log was written for. A page view is a function of its line and the line's number alone:
importing a file again gives the same events under the same ids.
"""

import gzip
import hashlib
import hmac
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote

from ua_parser import parse_user_agent

from events.page_view import PageView
from truelog.support import timestamps

_LINE = re.compile(
    rb"""
    (?P<ip>\S+) \ \S+ \ .+? \                               # address; identity and user are not looked at
    \[ (?P<day>\d\d) / (?P<month>[A-Z][a-z]{2}) / (?P<year>\d{4}) : (?P<clock>[\d:]{8}) \ (?P<zone>[+-]\d{4}) \] \ #
    " (?P<request> (?: [^"\\] | \\. )* ) " \ (?P<status>\d{3}) \ (?P<size>\d+|-) \ #
    " (?P<referrer> (?: [^"\\] | \\. )* ) " \ " (?P<agent> (?: [^"\\] | \\. )* ) "
    """,
    re.VERBOSE,
)
_REQUEST = re.compile(r"[A-Z]+ (?P<target>(?:/|https?://).*?)(?: HTTP/[0-9.]+)?")
_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_CONTROLS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_MONTHS = dict(zip(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), range(1, 13), strict=True))

# RFC 3986: what may stand in a URL unescaped, but for brackets, which only a host may hold.
_LEGAL = ":/?#@!$&'()*+,;=%"
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class AccessLog:
    """Reads the lines of one site: `origin` as in `https://shop.example`, `salt` the key of its visitors' hashes."""

    origin: str
    salt: bytes

    def page_view(self, number: int, line: bytes) -> PageView | None:
        """The event that a line tells, None where it is malformed or asks for no page."""
        found = _LINE.fullmatch(line)
        asked = found and _REQUEST.fullmatch(_text(found["request"]))
        if not found or not asked:
            return None
        try:
            return PageView(
                event_id=hashlib.sha256(b"%d %s" % (number, line)).hexdigest()[:32],
                occurred_at=_at(found),
                ip=_text(found["ip"]),
                visitor_id=self._visitor(found["ip"], found["agent"]),
                url=self._url(asked["target"]),
                referrer=_text(found["referrer"]) if found["referrer"] not in (b"", b"-") else None,
                browser=_browser(found["agent"]),
                status=int(found["status"]),
                bytes=0 if found["size"] == b"-" else int(found["size"]),  # `-` is how this format writes 0
            )
        except ValueError:  # no such day, or beyond the bounds of the event
            return None

    def _visitor(self, ip: bytes, agent: bytes) -> str:
        return hmac.digest(self.salt, ip + b"\0" + agent, "sha256").hex()[:32]

    def _url(self, target: str) -> str:
        """Absolute, and legal: clients ask for what no URL may hold, and readers of URLs would refuse it."""
        legal = quote(_LONE_PERCENT.sub("%25", target), safe=_LEGAL)
        return self.origin + legal if target.startswith("/") else legal


def origin(host: str) -> str:
    """`shop.example` → `http://shop.example`; one that names its scheme stays."""
    return (host if "://" in host else f"http://{host}").rstrip("/")


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The lines of a file, plain or gzip, and the file beneath them, which knows how far it has been read."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield (cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file), file


def _at(found: re.Match[bytes]) -> datetime:
    """The time in UTC; ValueError where the calendar has none such. No `%b`, which follows the locale."""
    month, zone = _MONTHS.get(found["month"], 0), found["zone"].decode()
    day = f"{found['year'].decode()}-{month:02}-{found['day'].decode()}"
    return timestamps.to_utc(datetime.fromisoformat(f"{day}T{found['clock'].decode()}{zone}"))


def _text(logged: bytes) -> str:
    r"""What was sent, out of the log's escapes (`\"`, `\\`, `\x22`); bytes that are no text become U+FFFD."""
    if b"\\" in logged:
        logged = _ESCAPE.sub(_unescaped, logged)
    return logged.decode("utf-8", "replace")


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code, char = escape.groups()
    return bytes.fromhex(code.decode()) if code else _CONTROLS.get(char, char)


@lru_cache(maxsize=10_000)
def _browser(agent: bytes) -> str | None:
    """The family, as "Firefox"; None where it is unknown."""
    found = parse_user_agent(_text(agent))
    return found.family if found else None
