"""Readers that poll a view of counts by URL while it moves to another version and back."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
from psycopg import sql

from tests.deadline import deadline
from truelog.storage.database import connect
from truelog.support.settings import Settings

_MOST = 1_000  # rows in an answer of the API
Counts = Sequence[tuple[str, int]]  # the URL and the views of each row
Poll = Callable[[Settings, str, threading.Event], int]


@contextmanager
def polling(settings: Settings, view: str, *polls: Poll) -> Iterator[list[int]]:
    """Poll during the block. The list then has how often each reader has read."""
    done, numbers = threading.Event(), list[int]()
    with ThreadPoolExecutor(len(polls)) as pool:
        working = [pool.submit(poll, settings, view, done) for poll in polls]
        try:
            yield numbers
        finally:
            done.set()
    numbers.extend(each.result() for each in working)


def by_sql(settings: Settings, view: str, done: threading.Event) -> int:
    query = sql.SQL("SELECT url, views::bigint FROM {}").format(sql.Identifier("views", view))
    with connect(settings, autocommit=True) as connection:
        return _watch(lambda: connection.execute(query).fetchall(), done)


def by_api(settings: Settings, view: str, done: threading.Event) -> int:
    address, key = settings.address("api"), settings.reader_key.get_secret_value()
    url, headers = f"http://{address.host}:{address.port}/views/{view}/rows", {"Authorization": f"Bearer {key}"}
    with httpx.Client(headers=headers, timeout=deadline(30)) as client:

        def read() -> Counts:
            answer = client.get(url, params={"limit": _MOST, "columns": "url,views"})
            assert answer.status_code == 200, answer.text
            assert not answer.json()["more"], "the answer has not all rows"
            return [(row["url"], int(row["views"])) for row in answer.json()["rows"]]

        return _watch(read, done)


def _watch(read: Callable[[], Counts], done: threading.Event) -> int:
    """Read again and again, and return how often. Each row is there once, stays, and never becomes older."""
    seen, polls = dict[str, int](), 0
    while not done.is_set():
        rows = read()
        found = dict(rows)
        assert len(found) == len(rows), "a row is there twice"
        lost = {url: count for url, count in seen.items() if found.get(url, 0) < count}
        assert not lost, f"rows are missing or older: {lost}"
        seen.update(found)
        polls += 1
    return polls
