"""Imports a site's access log. The views equal the counts that plain Python makes from the file.

The file contains four days of a real site, 10,000 lines. It is not part of the project. Where it is missing, the same
tests import 2,000 generated lines, because a skipped test would count as a passed test.
"""

import gzip
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import ua_parser

from tests.beds.world import World
from tests.chosen_views import copy_views
from tests.command import answer, truelog
from tests.scenes.applications import Application, start
from truelog.archive.table import archived_positions
from truelog.log import topics
from truelog.support.settings import PROJECT

FILE = PROJECT.parent / "shared" / "data" / "apache_combined_2015-05.log.gz"
HOST = "real.example"

COUNTED = ("page_views", "page_audience", "sessions", "bursts")
AGENTS = (
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/32.0 Safari/537.36",
    "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:28.0) Gecko/20100101 Firefox/28.0",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "-",
)

pytestmark = pytest.mark.nightly  # `tests/views/` compares each of these views with a plain loop


class Request(NamedTuple):
    """A line of the log, parsed independently of the importer."""

    time: datetime
    page: str
    browser: str | None
    status: int
    bytes: int
    visitor: tuple[str, str]

    @property
    def minute(self) -> str:
        return self.time.replace(second=0).isoformat()


@dataclass
class LogFile:
    """The content of a log file."""

    file: Path
    requests: list[Request]
    malformed: list[str]


def generated(file: Path) -> Path:
    """Write a log of 2,000 lines over two hours, the last one cut off within its user agent."""
    draw, lines = random.Random(11), []
    for second in range(0, 8_000, 4):
        time = datetime(2015, 5, 17, 10, tzinfo=UTC) + timedelta(seconds=second)
        page = draw.choice(("/", "/a", "/b/c.html", "/caf%C3%A9", "/q?x=1&y=%20"))
        size, status = draw.choice(("-", "0", "123", "4294967296")), draw.choice((200, 304, 404, 500))
        address = f"192.0.2.{draw.randrange(40)}"
        lines += [
            f'{address} - - [{time:%d/%b/%Y:%H:%M:%S} +0000] "GET {page} HTTP/1.1" {status} {size} '
            f'"-" "{draw.choice(AGENTS)}"'
        ]
    lines[-1] = lines[-1][:-1]
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    return file


def read(file: Path) -> LogFile:
    log = LogFile(file, [], [])
    for line in gzip.decompress(file.read_bytes()).decode().splitlines():
        try:
            log.requests.append(parse(line))
        except ValueError:
            log.malformed.append(line)
    return log


def parse(line: str) -> Request:
    """Split the line at quotation marks. No line of this file contains an escaped quotation mark."""
    start, request, answered, _, _, agent, end = line.split('"')
    _, target, _ = request.split()
    status, size = answered.split()
    [logged] = re.findall(r"\[(.+)\]", start)
    if end:
        raise ValueError(line)
    return Request(
        datetime.strptime(logged, "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC),
        urlsplit(f"http://{HOST}{target}").path,
        family(agent),
        int(status),
        0 if size == "-" else int(size),
        (start.split()[0], agent),
    )


def family(agent: str) -> str | None:
    found = ua_parser.parse(agent).user_agent
    return found.family if found else None


def rows(view: str) -> Iterator[dict[str, Any]]:
    """The view's rows, as `truelog query` prints them."""
    ended = truelog("query", view)
    assert ended.returncode == 0, ended.stderr
    return (json.loads(line) for line in ended.stdout.splitlines())


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogFile:
    return read(FILE if FILE.exists() else generated(tmp_path_factory.mktemp("log") / "access.log.gz"))


@pytest.fixture(scope="module")
def imported(world: World, log: LogFile, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the import, returned after the stream of the four views has counted every record."""
    folder = copy_views(tmp_path_factory.mktemp("views"), *COUNTED)
    result: dict[str, Any] = answer("import", "access-log", str(log.file), "--host", HOST)
    stream = start(world.settings, "stream.py", TRUELOG_VIEWS_FOLDER=str(folder))
    for view in COUNTED:
        stream.wait(lambda view=view: world.caught_up(view), 120, f"{view} at the end of the log")  # type: ignore[misc]
    assert stream.end() == 0
    return result


def test_every_line_is_sent_or_stored_as_malformed(imported: dict[str, Any], log: LogFile) -> None:
    assert (len(log.requests), len(log.malformed)) == ((9_999, 1) if log.file == FILE else (1_999, 1))
    assert imported["sent"] == len(log.requests)
    assert imported["malformed"] == len(log.malformed)
    assert imported["lines"] == len(log.requests) + 1
    assert Path(imported["kept_aside"]).read_text().splitlines() == log.malformed


def test_page_views_row_for_row(imported: dict[str, Any], log: LogFile) -> None:
    views, sent = Counter[Any](), Counter[Any]()
    for request in log.requests:
        key = (request.minute, HOST, request.page, request.browser)
        views[key] += 1
        sent[key] += request.bytes

    found = {(r["minute"], r["host"], r["page"], r["browser"]): (r["views"], r["bytes"]) for r in rows("page_views")}

    assert found == {key: (views[key], sent[key]) for key in views}


def test_page_audience_row_for_row(imported: dict[str, Any], log: LogFile) -> None:
    views, visitors = Counter[tuple[str, str]](), defaultdict[tuple[str, str], set[tuple[str, str]]](set)
    for request in log.requests:
        views[request.minute, HOST] += 1
        visitors[request.minute, HOST].add(request.visitor)

    found = {(row["minute"], row["host"]): row for row in rows("page_audience")}

    assert {key: row["views"] for key, row in found.items()} == views
    for key, row in found.items():
        assert row["visitors"] == pytest.approx(len(visitors[key]), rel=0.1, abs=1)
        assert row["response_ms_p50"] is None  # this format contains no response time


def test_sessions_row_for_row(imported: dict[str, Any], log: LogFile) -> None:
    expected: Counter[tuple[str, str, int, str, str]] = Counter()
    for requests in by(log, lambda request: (request.visitor, request.time.date())).values():
        gaps = [after.time - before.time > timedelta(minutes=30) for before, after in pairwise(requests)]
        begins = [0, *(n for n, is_gap in enumerate(gaps, 1) if is_gap), len(requests)]
        for begin, end in pairwise(begins):
            first, last = requests[begin], requests[end - 1]
            expected[first.time.isoformat(), last.time.isoformat(), end - begin, first.page, last.page] += 1

    found = Counter(
        (row["started_at"], row["ended_at"], row["pages"], row["entry"], row["exit"]) for row in rows("sessions")
    )
    assert found == expected


def test_bursts_row_for_row(imported: dict[str, Any], log: LogFile) -> None:
    expected: dict[tuple[str, str], int] = {}
    for address, requests in by(log, lambda request: request.visitor[0]).items():
        for first in requests:
            key = address, first.time.replace(hour=0, minute=0, second=0).isoformat()
            window = sum(timedelta() <= each.time - first.time < timedelta(minutes=5) for each in requests)
            expected[key] = max(expected.get(key, 0), window)

    found = {(row["ip"], row["day"]): row["requests"] for row in rows("bursts")}
    assert found == expected


def by(log: LogFile, key: Callable[[Request], Any]) -> dict[Any, list[Request]]:
    """The requests of each visitor or address, by time."""
    found = defaultdict(list)
    for request in sorted(log.requests, key=lambda each: each.time):
        found[key(request)].append(request)
    return found


def test_positions_are_at_the_end_of_the_log(world: World, imported: dict[str, Any]) -> None:
    ends = topics.end_offsets(world.settings, ["page_view"])
    positions = answer("positions")["page_views"]["page_view"]
    assert {int(partition): offset for partition, offset in positions.items()} == ends.offsets["page_view"]


def test_the_archive_returns_the_same_counts(
    world: World, archive: Application, imported: dict[str, Any], log: LogFile
) -> None:
    ends = topics.end_offsets(world.settings, ["page_view"])
    archive.wait(lambda: archived_positions(world.settings, ["page_view"]).covers(ends), 90, "the end of the log")

    query = "SELECT status, count(*) AS n, sum(bytes) AS bytes FROM page_view GROUP BY 1"
    found = {row["status"]: (row["n"], row["bytes"]) for row in answer("sql", query)["rows"]}

    expected = {}
    for status in {request.status for request in log.requests}:
        sizes = [request.bytes for request in log.requests if request.status == status]
        expected[status] = (len(sizes), sum(sizes))
    assert found == expected

    table = truelog("sql", "SELECT count(*) AS views FROM page_view")
    assert str(len(log.requests)) in table.stdout
    report = answer("archive", "audit", "--deep")
    assert (report["verdict"], report["faults"]) == ("SOUND", [])
    assert truelog("archive", "audit").stdout.startswith("SOUND")
