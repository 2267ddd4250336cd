"""Generated traffic: the same seed gives the same traffic, which has all the irregularities of real traffic."""

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from truelog.log.kafka_producer import OutgoingRecord
from truelog.schema.decode import decode
from truelog.schema.loading.events import load_events
from truelog.traffic import community
from truelog.traffic.generator import generate

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
RATE, SECONDS = 200, 100
TYPES = load_events()


@pytest.fixture(scope="module")
def records() -> list[OutgoingRecord]:
    return list(generate(seed=1, begin=BEGIN, rate=RATE, seconds=SECONDS))


@pytest.fixture(scope="module")
def rows(records: list[OutgoingRecord]) -> list[dict[str, Any]]:
    """Each record as the platform decodes it at its due time, with `due`, `topic` and `index`."""
    found: dict[int, dict[str, Any]] = {}
    due_times = [BEGIN + timedelta(seconds=index / RATE) for index in range(len(records))]
    for topic in {record.topic for record in records}:
        indices = [index for index, record in enumerate(records) if record.topic == topic]
        values = pa.array([records[index].value for index in indices], pa.binary())
        times = pa.array([due_times[index] for index in indices], pa.timestamp("us", "UTC"))
        decoded = decode(TYPES[topic], values, times, timedelta(minutes=5)).to_pylist()
        for index, row in zip(indices, decoded, strict=True):
            found[index] = row | {"due": due_times[index], "topic": topic, "index": index}
    return [found[index] for index in sorted(found)]


@pytest.fixture(scope="module")
def good(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["invalid"] is None]


def test_the_number_of_records_is_rate_times_seconds(records: list[OutgoingRecord]) -> None:
    assert len(records) == RATE * SECONDS
    assert list(generate(seed=1, begin=BEGIN, rate=RATE, seconds=0)) == []


def test_traffic_depends_only_on_the_seed_and_the_start(records: list[OutgoingRecord]) -> None:
    assert list(generate(seed=1, begin=BEGIN, rate=RATE, seconds=SECONDS)) == records
    assert list(generate(seed=1, begin=BEGIN, rate=RATE, seconds=1)) == records[:RATE]
    assert list(generate(seed=2, begin=BEGIN, rate=RATE, seconds=1)) != records[:RATE]


def test_traffic_has_every_topic_and_visitor_ids_as_keys(
    records: list[OutgoingRecord], rows: list[dict[str, Any]]
) -> None:
    topics = Counter(record.topic for record in records)
    assert set(topics) == {"page_view", "search", "click"}
    assert topics["page_view"] > topics["search"] > topics["click"] / 2 > 0
    for record, row in zip(records, rows, strict=True):
        assert row["visitor_id"] in (record.key, None)


def test_a_share_of_the_records_is_about_people(records: list[OutgoingRecord]) -> None:
    mixed = list(generate(seed=1, begin=BEGIN, rate=RATE, seconds=SECONDS, social=0.25))
    people = [record for record in mixed if record.topic in community.TOPICS]
    site = [record for record in mixed if record.topic not in community.TOPICS]
    assert 0.23 < len(people) / len(mixed) < 0.27
    assert {record.topic for record in people} == set(community.TOPICS)
    assert {record.topic for record in site} == {record.topic for record in records}
    for record in people:
        event = TYPES[record.topic].model.model_validate_json(record.value)
        assert getattr(event, str(TYPES[record.topic].topic.key)) == record.key
    verbs = Counter((record.topic, json.loads(record.value).get("verb")) for record in people)
    for topic in set(community.TOPICS) - {"price", "reading", "document_edit"}:
        (_, often), *_, (_, rarely) = Counter({v: n for (t, v), n in verbs.items() if t == topic}).most_common()
        assert often > rarely > 0, f"{topic} has one verb"
    edits = [json.loads(record.value) for record in people if record.topic == "document_edit"]
    assert 0 < sum(edit["removed"] > 0 for edit in edits) < len(edits) / 2
    measured = [json.loads(record.value)["measured"] for record in people if record.topic == "reading"]
    assert 0 < sum(not 0 <= value <= 80 for value in measured) < len(measured) / 4
    assert len(set(people)) < len(people), "some events are sent twice"


def test_some_records_are_malformed_in_several_ways(rows: list[dict[str, Any]]) -> None:
    bad = [row["invalid"] for row in rows if row["invalid"] is not None]
    assert 0.005 < len(bad) / len(rows) < 0.02
    assert len(set(bad)) >= 5
    assert any("after its receipt" in reason for reason in bad)


def test_each_event_has_its_own_id(good: list[dict[str, Any]]) -> None:
    assert len({row["event_id"] for row in good}) == len(good)


def test_the_popularity_of_pages_follows_zipfs_law(good: list[dict[str, Any]]) -> None:
    views = Counter(row["url"] for row in good if row["topic"] == "page_view")
    ranked = [n for _, n in views.most_common()]
    assert len(ranked) > 300
    assert 1.6 < ranked[0] / ranked[1] < 2.5
    assert 7 < ranked[0] / ranked[9] < 14


def test_visitors_come_in_sessions(good: list[dict[str, Any]]) -> None:
    visitors = defaultdict(set)
    for row in good:
        visitors[row["session_id"]].add(row["visitor_id"])
    assert all(len(each) == 1 for each in visitors.values())
    assert len(visitors) < len(good) / 10


def test_wrong_clocks_are_corrected(good: list[dict[str, Any]]) -> None:
    wrong = [row for row in good if row["sent_at"] and abs(row["sent_at"] - row["due"]) > timedelta(minutes=1)]
    assert wrong
    for row in good:
        assert timedelta() <= row["due"] - row["event_time"] < timedelta(hours=10)


def test_some_events_are_late_and_out_of_order(good: list[dict[str, Any]]) -> None:
    delays = [row["due"] - row["event_time"] for row in good]
    assert 0.01 < sum(delay > timedelta(minutes=1) for delay in delays) / len(delays) < 0.1
    backwards = sum(b["event_time"] < a["event_time"] for a, b in pairwise(good))
    assert backwards > len(good) / 20


def test_some_clicks_arrive_before_their_search_or_an_hour_late(good: list[dict[str, Any]]) -> None:
    searches = {row["event_id"]: row for row in good if row["topic"] == "search"}
    pairs = [(searches[row["search_id"]], row) for row in good if row.get("search_id") in searches]
    assert len(pairs) > 100
    assert all(click["url"] in search["results"] for search, click in pairs)
    assert all(search["event_time"] <= click["event_time"] for search, click in pairs)
    assert any(click["index"] < search["index"] for search, click in pairs)
    hour_late = [click for search, click in pairs if click["event_time"] - search["event_time"] > timedelta(hours=1)]
    assert 0 < len(hour_late) < len(pairs) / 4


def test_valid_records_are_json(records: list[OutgoingRecord], rows: list[dict[str, Any]]) -> None:
    for record, row in zip(records, rows, strict=True):
        if row["invalid"] is None:
            assert json.loads(record.value)["event_id"] == row["event_id"]
