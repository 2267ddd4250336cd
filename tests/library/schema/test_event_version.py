"""A declaration is data, and each record is judged by the version in force at its offset."""

import pickle
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, create_model

from tests.library.hostile import THING
from truelog.schema import event_version
from truelog.schema.decode import decode
from truelog.schema.derived import Derived
from truelog.schema.event import FUTURE_LIMIT, Event, EventType, Topic
from truelog.schema.event_version import Cut, EventHistory, UsedVersions
from truelog.schema.loading.events import load_events
from truelog.support.errors import BadDeclaration

BROKER = datetime(2026, 11, 1, tzinfo=UTC)
TOPIC = Topic(key=None, subject=(), partitions=2, retention="1 day")


def said(**fields: Any) -> EventType:
    return EventType("said", create_model("Said", __base__=Event, **fields), TOPIC)


SHORT = said(text=(str, Field(max_length=3)))
LONG = said(text=(str, Field(max_length=6)), country=(str | None, None))
LONELY = said(country=(str | None, None))
FIRST, LAST = (
    replace(said(text=(str, Field())), derived=(Derived("text", pattern),))
    for pattern in (r"^(?P<word>\w+)", r"(?P<word>\w+)$")
)


def record(text: str, **more: str) -> bytes:
    plain = {"event_id": "1", "occurred_at": "2026-11-01T00:00:00Z", "text": text, **more}
    return str(plain).replace("'", '"').encode()


def judged(
    event_type: EventType, rows: list[tuple[int, int, bytes]], columns: Collection[str] | None = None
) -> list[dict[str, Any]]:
    partitions, offsets, values = zip(*rows, strict=True)
    records = {
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "value": pa.array(values, pa.binary()),
        "broker_time": pa.array([BROKER] * len(rows), pa.timestamp("us", "UTC")),
    }
    found: list[dict[str, Any]] = event_version.judge(event_type, pa.record_batch(records), columns).to_pylist()
    return found


def history(*versions: tuple[EventType, Mapping[int, int]], topic_id: str = "a") -> EventHistory:
    declarations = {number: event_version.declaration_of(each) for number, (each, _) in enumerate(versions, 1)}
    cuts = tuple(Cut(topic_id, 0, number, cut) for number, (_, cut) in enumerate(versions, 1))
    return EventHistory("said", event_version.settings_of(SHORT), declarations, cuts)


@pytest.mark.parametrize("event_type", [*load_events().values(), THING, LONG, FIRST], ids=lambda each: each.name)
def test_a_declaration_is_data(event_type: EventType) -> None:
    declaration = event_version.declaration_of(event_type)
    made = event_version.from_declaration(event_type.name, declaration, event_type.topic, event_type.quality)
    assert event_version.declaration_of(made) == declaration
    assert made.arrow_schema == event_type.arrow_schema
    assert [replace(each, description="") for each in event_type.fields] == list(made.fields)


def test_a_declaration_of_a_newer_decoder_is_refused() -> None:
    newer = event_version.declaration_of(SHORT) | {"decoder": 99}
    with pytest.raises(BadDeclaration, match="newer release"):
        event_version.from_declaration("said", newer, TOPIC, SHORT.quality)


def test_an_event_type_travels_to_another_process_with_its_past() -> None:
    sent = history((SHORT, {}), (LONG, {0: 5})).event_type()
    arrived = pickle.loads(pickle.dumps(sent))
    assert (arrived.version, arrived.topic_id, arrived.stored_schema) == (2, "a", sent.stored_schema)
    rows = [(0, 4, record("four")), (0, 5, record("four"))]
    assert judged(arrived, rows) == judged(sent, rows)


def test_a_history_survives_json() -> None:
    made = history((SHORT, {}), (LONG, {0: 5, 1: 2}))
    assert EventHistory.from_dict(made.as_dict()) == made


def test_each_record_is_judged_by_the_version_in_force() -> None:
    both = history((SHORT, {}), (LONG, {0: 5, 1: 0})).event_type()
    rows = [
        (0, 4, record("four", country="DE")),
        (1, 0, record("four", country="DE")),
        (0, 5, record("four", country="DE")),
        (0, 3, record("one", country="DE")),
        (2, 0, record("four", country="DE")),  # a partition that was added after the cut
    ]
    found = judged(both, rows)
    assert [row["text"] for row in found] == [None, "four", "four", "one", "four"]
    assert [row["country"] for row in found] == [None, "DE", "DE", None, "DE"]
    assert [row["invalid"] is None for row in found] == [False, True, True, True, True]


def test_a_removed_field_keeps_its_column_in_the_archive() -> None:
    both = history((SHORT, {}), (LONELY, {0: 1})).event_type()
    assert "text" not in both.arrow_schema.names
    assert [row["text"] for row in judged(both, [(0, 0, record("one")), (0, 1, record("one"))])] == ["one", None]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=4),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.sampled_from(["one", "four", "eleven!"])), min_size=1),
)
def test_law_a_batch_is_judged_like_its_records_alone(
    cuts: list[tuple[int, int]], records: list[tuple[int, int, str]]
) -> None:
    versions = [SHORT, LONG, LONELY, SHORT, LONG]
    ends = [{0: a, 1: b} for a, b in zip(*map(sorted, zip(*cuts, strict=True)), strict=True)] if cuts else []
    newest = history(*zip(versions, [{}, *ends], strict=False)).event_type()
    rows = [(p, o, record(text, country="DE")) for p, o, text in records]
    for row, (p, o, value) in zip(judged(newest, rows), rows, strict=True):
        in_force = versions[sum(end.get(p, 0) <= o for end in ends)]
        times = pa.array([BROKER], pa.timestamp("us", "UTC"))
        [alone] = decode(in_force, pa.array([value]), times, FUTURE_LIMIT).to_pylist()
        assert row == dict.fromkeys(row) | alone
    names = [*({"text", "event_time"} & set(newest.stored_schema.names)), "invalid"]
    assert judged(newest, rows, names) == [{name: row[name] for name in names} for row in judged(newest, rows)]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=4),
    st.dictionaries(st.integers(0, 2), st.integers(0, 7)),
)
def test_law_the_versions_below_positions_are_those_that_judge_an_offset_there(
    cuts: list[tuple[int, int]], below: dict[int, int]
) -> None:
    ends = [{0: a, 1: b} for a, b in zip(*map(sorted, zip(*cuts, strict=True)), strict=True)] if cuts else []
    newest = history(*zip([SHORT, LONG, LONELY, SHORT, LONG], [{}, *ends], strict=False)).event_type()
    judging = {1 + sum(each.get(p, 0) <= o for each in ends) for p, end in below.items() for o in range(end)}
    assert event_version.versions_below(newest, below) == UsedVersions(0, tuple(sorted(judging)))


def test_derived_columns_belong_to_a_version() -> None:
    words = history((SHORT, {}), (FIRST, {0: 1}), (LAST, {0: 2}), (LONELY, {0: 3})).event_type()
    texts = ["one", "two words", "more words", "four"]
    rows = [(0, offset, record(text)) for offset, text in enumerate(texts)]
    assert [row["word"] for row in judged(words, rows)] == [None, "two", "words", None]
    assert judged(words, rows, ["word"])[2] == {"word": "words", "invalid": None}


def test_a_derived_column_of_an_invalid_record_is_null() -> None:
    assert [row["word"] for row in judged(FIRST, [(0, 0, b"no event"), (0, 1, record("one"))])] == [None, "one"]


def test_a_derived_column_and_a_field_of_another_type_never_share_a_name() -> None:
    number = said(word=(int, Field()))
    with pytest.raises(BadDeclaration, match=r"said\.word: version 1 declared it as str, .* as int"):
        event_version.require_compatible(number, history((FIRST, {})).declarations)
    with pytest.raises(BadDeclaration, match=r"said\.word: version 1 declared it as int, .* as str"):
        event_version.require_compatible(FIRST, history((number, {})).declarations)
    event_version.require_compatible(LAST, history((said(word=(str, Field())), {})).declarations)


def test_a_field_never_changes_its_type_even_after_it_was_removed() -> None:
    number = said(text=(int, Field()))
    earlier = history((SHORT, {}), (LONELY, {})).declarations
    with pytest.raises(BadDeclaration, match=r"said\.text: version 1 declared it as str, .* as int"):
        event_version.require_compatible(number, earlier)
    event_version.require_compatible(LONG, earlier)


def test_an_event_type_with_one_version_has_no_past() -> None:
    assert history((SHORT, {})).event_type().past == ()
