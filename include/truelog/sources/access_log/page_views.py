"""Access logs: page views from lines in the combined log format of Apache and Nginx.

A line contains the client's address and user agent, the time, the request, and the response's status and size, but
neither the visitor nor the host. The visitor id is a keyed hash of the address and the user agent, so that only holders
of the key can identify the visitor. The host is the site that wrote the log. A page view depends only on its site, its
line and the line number, so a second import of the same file produces the same events with the same ids.
"""

import gzip
import hashlib
import hmac
import re
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote

from ua_parser import parse_user_agent

from events.page_view import PageView
from truelog.support import timestamps
from truelog.support.errors import BadInput

_LINE = re.compile(
    rb"""
    (?P<ip>\S+) \ \S+ \ .+? \                               # address; identity and user are ignored
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

# The characters that RFC 3986 allows unescaped in a URL, except brackets, which only a host may contain.
_LEGAL = ":/?#@!$&'()*+,;=%"
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")

_HEAD = 64 * 2**10  # bytes that show in which form a file is
_COMPRESSED = {  # by the first bytes, the command that unpacks such a file
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"\xfd7zXZ": "xz -dk",
    b"BZh": "bzip2 -dk",
    b"\x04\x22\x4d\x18": "lz4 -d",
    b"PK\x03\x04": "unzip",
    b"\x1f\x9d": "uncompress",
}


@dataclass(frozen=True)
class AccessLog:
    """The log of one site. `origin` is a URL such as `https://shop.example`. `salt` is the key for the hashes."""

    origin: str
    salt: bytes

    def page_view(self, number: int, line: bytes) -> PageView | None:
        """The event for a line. None if the line is malformed or its request is not for a page."""
        line = line.removeprefix(BOM_UTF8)  # an editor may add it, and the event remains the same
        entry = _LINE.fullmatch(line)
        request = entry and _REQUEST.fullmatch(_text(entry["request"]))
        if not entry or not request:
            return None
        try:
            return PageView(
                event_id=hashlib.sha256(b"%d %s %s" % (number, self.origin.encode(), line)).hexdigest()[:32],
                occurred_at=_time(entry),
                ip=_text(entry["ip"]),
                visitor_id=self._visitor(entry["ip"], entry["agent"]),
                url=self._url(request["target"]),
                referrer=_text(entry["referrer"]) if entry["referrer"] not in (b"", b"-") else None,
                browser=_browser(entry["agent"]),
                status=int(entry["status"]),
                bytes=0 if entry["size"] == b"-" else int(entry["size"]),  # this format writes 0 as `-`
            )
        except ValueError:  # an impossible date, or a value outside the event's bounds
            return None

    def _visitor(self, ip: bytes, agent: bytes) -> str:
        return hmac.digest(self.salt, ip + b"\0" + agent, "sha256").hex()[:32]

    def _url(self, target: str) -> str:
        """An absolute, valid URL. Clients send targets with illegal characters, which URL parsers would reject."""
        legal = quote(_LONE_PERCENT.sub("%25", target), safe=_LEGAL)
        return self.origin + legal if target.startswith("/") else legal


def origin(host: str) -> str:
    """`shop.example` becomes `http://shop.example`. A host with a scheme is returned unchanged."""
    return (host if "://" in host else f"http://{host}").rstrip("/")


@contextmanager
def open_log(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a plain or gzipped file. Yields its lines and the underlying file, whose position shows the progress.

    Raises:
        BadInput: the file is in a form that is not read.
    """
    with path.open("rb") as file:
        with suppress(EOFError, OSError, zlib.error):  # reading the lines raises it again
            _require_lines(path, _lines(file).read(_HEAD))
        yield _lines(file), file


def _lines(file: BinaryIO) -> BinaryIO:
    """The lines of an open file from its beginning."""
    file.seek(0)
    is_gzip = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_gzip else file


def _require_lines(path: Path, head: bytes) -> None:
    """Refuse a file whose lines would all be malformed."""
    for magic, command in _COMPRESSED.items():
        if head.startswith(magic):
            raise BadInput(f"{path} is compressed, and only gzip is read. Unpack it with `{command}`.")
    start = head[:64]
    is_wide = b"\0" in start and any(start) and not (any(start[::2]) and any(start[1::2]))
    if is_wide or start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise BadInput(f"{path} is in UTF-16. Convert it with `iconv -f UTF-16 -t UTF-8`.")
    if b"\r" in head and b"\n" not in head:
        raise BadInput(f"The lines of {path} end with CR alone. Convert them with `tr '\\r' '\\n'`.")


def _time(entry: re.Match[bytes]) -> datetime:
    """The time in UTC. Raises ValueError for an impossible date. Avoids `%b`, which depends on the locale."""
    month, zone = _MONTHS.get(entry["month"], 0), entry["zone"].decode()
    day = f"{entry['year'].decode()}-{month:02}-{entry['day'].decode()}"
    return timestamps.to_utc(datetime.fromisoformat(f"{day}T{entry['clock'].decode()}{zone}"))


def _text(logged: bytes) -> str:
    r"""The original text, without the log's escapes (`\"`, `\\`, `\x22`). Bytes that are not UTF-8 become U+FFFD."""
    if b"\\" in logged:
        logged = _ESCAPE.sub(_unescaped, logged)
    return logged.decode("utf-8", "replace")


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code, char = escape.groups()
    return bytes.fromhex(code.decode()) if code else _CONTROLS.get(char, char)


@lru_cache(maxsize=10_000)
def _browser(agent: bytes) -> str | None:
    """The browser family, such as "Firefox". None if it is unknown."""
    parsed = parse_user_agent(_text(agent))
    return parsed.family if parsed else None
