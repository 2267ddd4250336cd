"""Tests of the record page: one archived record, the views that read it, and who may look at it."""

import json
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlencode

import duckdb
import pyarrow as pa
import pytest

from runtime.airflow_client import Airflow
from tests.builders.log import forget_exclusions
from tests.builders.views import a_view, an_exclusion, forget, merged_to
from tests.chosen_views import copy_views
from tests.library.archive_files import TOPIC
from tests.pages.archived_records import VALID
from tests.pages.fetch import fetch
from truelog.archive.analyst import interrupted_after, open_dataset, open_engine
from truelog.log.positions import Positions
from truelog.reports import record as record_report
from truelog.reports.record import Counted, Place, Search
from truelog.reports.records import newest_records
from truelog.reports.records.archived_record import read_record
from truelog.reports.records.newest_records import ListRequest, Moment
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.errors import ArchiveBehind, BadInput, QueryTooSlow
from truelog.support.settings import Settings

log = logging.getLogger("truelog.jobs")


def test_a_record_is_decoded_from_its_raw_bytes(archived: Settings) -> None:
    found = read_record(archived, TOPIC, 0, 0)
    assert found
    assert (found.value, found.key, found.invalid, found.version) == (VALID, b"k", None, 1)
    assert found.fields["url"] == "http://h/<img src=x>"
    assert found.fields["referrer"] is None
    assert found.headers == [("trace", b"\x00\xff")]


@pytest.mark.parametrize(("offset", "reason"), [(1, "record: Invalid JSON"), (2, "event_id: ")])
def test_an_invalid_record_has_a_reason_and_no_fields(archived: Settings, offset: int, reason: str) -> None:
    found = read_record(archived, TOPIC, 0, offset)
    assert found
    assert found.fields == {}
    assert str(found.invalid).startswith(reason)


@pytest.mark.parametrize(
    ("place", "error", "why"),
    [
        (("page_view", 0, 3), ArchiveBehind, "is 1 events behind"),
        (("page_view", 7, 0), BadInput, "no record of partition 7"),
        (("nothing", 0, 0), BadInput, "there is no topic 'nothing'"),
    ],
)
def test_a_record_that_is_not_archived_is_refused(
    archived: Settings, place: tuple[str, int, int], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        read_record(archived, *place)


def test_the_views_that_read_a_record_are_listed(archived: Settings) -> None:
    readers = {each.view: each for each in record_report.record_readers(archived, Place(TOPIC, 0, 2))}
    assert {name: each.state for name, each in readers.items()} == {
        "page_audience": Counted.SKIPPED,
        "page_views": Counted.COUNTED,
        "request_rates": Counted.WAITING,
    }
    assert readers["page_audience"].reason == "DivideByZero: by <zero>"
    assert readers["page_views"].search is Search.NOT_STORED


INPUTS = """
CREATE TABLE state.cart_v2_inputs (cart_id text, topic text, partition integer, "offset" bigint);
INSERT INTO state.cart_v2_inputs VALUES ('full', 'cart_event', 1, 7), ('other', 'cart_event', 0, 7);
CREATE TABLE state.people_search_v2 (person_id text, last_topic text, last_partition integer, last_offset bigint);
INSERT INTO state.people_search_v2 VALUES ('ann', 'profile', 0, 3);
"""
NO_INPUTS = "DROP TABLE state.cart_v2_inputs; DROP TABLE state.people_search_v2"


def test_rows_that_store_coordinates_name_their_keys(filled: Settings, tmp_path: Path) -> None:
    settings = filled.model_copy(update={"views_folder": copy_views(tmp_path, "cart", "people_search")})
    with connect(filled, autocommit=True) as connection:
        connection.execute(INPUTS.encode())
        for view, topic, partition in (("cart", "cart_event", 1), ("people_search", "profile", 0)):
            a_view(connection, view, 2, reads=(topic,))
            merged_to(connection, view, Positions({topic: {partition: 100}}, {topic: "id"}), 2)
        try:
            [cart] = record_report.record_readers(settings, Place("cart_event", 1, 7))
            [person] = record_report.record_readers(settings, Place("profile", 0, 3))
            [older] = record_report.record_readers(settings, Place("profile", 0, 2))
        finally:
            connection.execute(NO_INPUTS)
            forget(connection, "cart", "people_search")
    assert [(each.side, each.key) for each in cart.keys] == [("inputs", {"cart_id": "full"})]
    assert [(each.side, each.key) for each in person.keys] == [("", {"person_id": "ann"})]
    assert (older.state, older.search, older.keys) == (Counted.COUNTED, Search.DONE, [])


def test_a_look_at_a_record_needs_a_right_and_is_recorded(
    archived: Settings, pages: Settings, users: dict[str, Airflow]
) -> None:
    path = f"data/record?topic={TOPIC}&partition=0&offset=1"
    assert fetch(users["analyst"], "GET", path).status == 403
    began = time.monotonic()
    found = json.load(fetch(users["oncall"], "GET", path))
    log.info("the answer of a record page: %.2f s", time.monotonic() - began)
    assert found["record"]["value"] == '{"event_id": "\\xff\x07"'
    assert found["record"]["headers"] == [["trace", "\x00\\xff"]]
    with connect(pages) as connection:
        [newest] = audit_trail.latest_operations(connection, 1)
    assert (newest.kind, newest.subject, newest.doer, newest.about) == (
        "read",
        TOPIC,
        "oncall",
        "partition 0, offset 1",
    )
    for wrong, status in (("offset=9", 503), ("offset=-1", 422)):
        assert fetch(users["oncall"], "GET", f"data/record?topic={TOPIC}&partition=0&{wrong}").status == status
    assert fetch(users["oncall"], "GET", "data/record?topic=no&partition=0&offset=0").status == 400
    listed = json.load(fetch(users["analyst"], "GET", "data/skipped?view=page_audience"))
    assert [(each["topic"], each["offset"]) for each in listed["skipped"]] == [(TOPIC, 2)]
    assert listed["may_read"] is False


def test_a_version_that_readers_do_not_see_has_its_own_skipped_records(
    pages: Settings, users: dict[str, Airflow]
) -> None:
    def offsets(path: str) -> list[int]:
        return [each["offset"] for each in json.load(fetch(users["analyst"], "GET", path))["skipped"]]

    with connect(pages, autocommit=True) as connection:
        for version in (1, 2):
            an_exclusion(connection, "click_through", version, version=version)
        try:
            found = [offsets(f"data/skipped?view=click_through{each}") for each in ("", "&version=1", "&version=2")]
        finally:
            forget_exclusions(connection, "click_through")
    assert found == [[1], [1], [2]]
    assert fetch(users["analyst"], "GET", "data/skipped?view=click_through&version=no").status == 422


def test_newest_records_are_listed_by_moment_and_key(
    archived: Settings, pages: Settings, users: dict[str, Airflow]
) -> None:
    path = f"data/records?topic={TOPIC}"
    assert fetch(users["analyst"], "GET", path).status == 403
    found = json.load(fetch(users["oncall"], "GET", path))
    assert [(each["partition"], each["offset"]) for each in found["records"]] == [(0, 2), (0, 1), (0, 0)]
    newest, broken, first = found["records"]
    assert (newest["invalid"], newest["key"], newest["bytes"]) == ("event_id: Input should be a valid string", "k", 15)
    assert broken["value"] == '{"event_id": "\\xff\x07"'
    assert (first["invalid"], first["erased"], found["more"]) == (None, False, False)
    with connect(pages) as connection:
        [seen] = audit_trail.latest_operations(connection, 1)
    assert (seen.kind, seen.subject, seen.doer) == ("read", TOPIC, "oncall")

    def offsets(**more: object) -> list[int]:
        listed = json.load(fetch(users["oncall"], "GET", f"{path}&{urlencode(more)}"))
        return [each["offset"] for each in listed["records"]]

    time = newest["broker_time"]
    assert offsets(until=time, partition=0, offset=2) == [1, 0]
    assert offsets(until=time) == [each["offset"] for each in found["records"] if each["broker_time"] < time]
    assert offsets(until="2001-01-01T00:00:00Z") == []
    assert (offsets(key="k"), offsets(key="K")) == ([2, 1, 0], [])
    assert fetch(users["oncall"], "GET", "data/records?topic=no").status == 400
    assert fetch(users["oncall"], "GET", f"{path}&until=soon").status == 422


def test_one_time_limit_holds_for_the_whole_search(archived: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """No query takes as long as the limit, but all of them together take longer."""
    opened = open_dataset

    def slow(*given: Any) -> pa.RecordBatchReader:
        table = opened(*given).to_table()

        def batches() -> Iterator[pa.RecordBatch]:
            for _ in range(5):
                Event().wait(0.1)  # a slow disk
                yield from table.slice(0, 0).to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]

        return pa.RecordBatchReader.from_batches(table.schema, batches())

    monkeypatch.setattr(newest_records, "open_dataset", slow)
    monkeypatch.setattr(newest_records, "_SECONDS", 1.2)
    with pytest.raises(QueryTooSlow, match=r"longer than 1\.2 s"):
        newest_records.newest_records(archived, TOPIC, ListRequest(Moment(datetime.now(UTC)), 50))


def test_a_query_that_begins_after_the_time_limit_is_interrupted() -> None:
    with open_engine() as engine, pytest.raises(QueryTooSlow), interrupted_after(engine, 0.01):
        _count_slowly(engine, wait=0.2)


def _count_slowly(engine: duckdb.DuckDBPyConnection, wait: float) -> None:
    Event().wait(wait)
    engine.execute("SELECT count(*) FROM range(10_000_000) AS a, range(10_000_000) AS b WHERE a.range % 7 = b.range")
