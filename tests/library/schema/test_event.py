"""Declarations: each file declares one event type, and an unsupported declaration is rejected when it is loaded."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import ValidationError

from truelog.schema.event import Event
from truelog.schema.loading.events import EVENTS, load_event, load_events, load_proposals
from truelog.support.errors import BadDeclaration

HEAD = """
import datetime, decimal
from datetime import datetime
from typing import Annotated, Optional
from pydantic import BaseModel, Field, field_validator, model_validator
from truelog import Event, Topic
TOPIC = Topic(key="user", subject=("user",), partitions=1, retention="1 day")
class Thing(Event):
    user: str
"""


def declare(folder: Path, body: str, name: str = "thing", head: str = HEAD) -> Path:
    path = folder / f"{name}.py"
    path.write_text(head + body)
    return path


def test_the_platforms_own_events_load() -> None:
    events = load_events()
    assert {"page_view", "ticks"} <= events.keys()
    internal = [name for name, event in events.items() if event.topic.internal]
    assert internal == [
        *("block", "claim", "customers", "dead_letter", "erasure", "notification_rule", "rate_policy", "rule"),
        "stored_search",
        "ticks",
    ]
    assert all(name == event.name for name, event in events.items())


def test_a_page_view_has_envelope_event_time_and_payload() -> None:
    time, text, number = pa.timestamp("us", "UTC"), pa.string(), pa.int64()
    assert load_events()["page_view"].arrow_schema == pa.schema(
        [
            *[("event_id", text), ("occurred_at", time), ("sent_at", time), ("received_at", time)],
            ("event_time", time),
            *[("ip", text), ("session_id", text), ("visitor_id", text), ("url", text), ("referrer", text)],
            *[("browser", text), ("language", text)],
            *[("status", number), ("bytes", number), ("response_ms", number), ("host", text), ("page", text)],
        ]
    )


def test_the_spark_schema_has_the_same_columns() -> None:
    event = load_events()["page_view"]
    spark_types = {"string": "string", "int64": "bigint", "timestamp[us, tz=UTC]": "timestamp"}
    spark = {field.name: field.dataType.simpleString() for field in event.spark_schema}
    assert spark == {column.name: spark_types[str(column.type)] for column in event.arrow_schema}


def test_every_supported_type_can_be_declared(tmp_path: Path) -> None:
    body = """
    a: int | None = None
    b: Optional[bool] = None
    c: Annotated[float | None, Field(ge=0, le=1)] = None
    d: datetime | None = Field(None, description="When.")
    e: list[str] | None = Field(None, max_length=9)
"""
    event = load_event(declare(tmp_path, body))
    assert [str(column.type) for column in event.arrow_schema][5:] == [
        *["string", "int64", "bool", "double", "timestamp[us, tz=UTC]", "list<item: string>"]
    ]
    assert event.spark_schema["e"].dataType.simpleString() == "array<string>"


@pytest.mark.parametrize(
    ("body", "field", "cure"),
    [
        ("    price: decimal.Decimal | None = None", "Thing.price", "use str, int, bool, float, datetime"),
        ("    tags: list[int] | None = None", "Thing.tags", "use str, int, bool, float, datetime"),
        ("    more: dict[str, str] | None = None", "Thing.more", "use str, int, bool, float, datetime"),
        ("    any_of: int | str | None = None", "Thing.any_of", "use str, int, bool, float, datetime"),
        ("    odd: object = None", "Thing.odd", "use str, int, bool, float, datetime"),
        ("    n: int = 0", "Thing.n", "use `| None = None`"),
        ("    n: int | None", "Thing.n", "use `| None = None`"),
        ("    n: int | None = Field(None, gt=0)", "Thing.n", "numbers take `ge` and `le`"),
        ("    n: int | None = Field(None, le=2**63)", "Thing.n", "64-bit integer"),
        ("    s: str | None = Field(None, pattern='a')", "Thing.s", "`min_length` and `max_length`"),
        ("    userName: str | None = None", "Thing.userName", "lower case"),
        ("    event_time: datetime | None = None", "Thing.event_time", "choose another"),
        ("    s: str | None = Field(None, alias='t')", "Thing.s", "rename the field"),
        (
            "    @field_validator('user')\n    @classmethod\n    def even(cls, v): return v",
            "Thing.even",
            "declare bounds with Field",
        ),
        (
            "    @model_validator(mode='after')\n    def fine(self): return self",
            "Thing.fine",
            "declare bounds with Field",
        ),
    ],
)
def test_the_error_for_an_unsupported_field_names_it_and_the_cure(
    tmp_path: Path, body: str, field: str, cure: str
) -> None:
    with pytest.raises(BadDeclaration) as raised:
        load_event(declare(tmp_path, body))
    assert field in str(raised.value)
    assert cure in str(raised.value)
    assert "thing.py" in str(raised.value)


@pytest.mark.parametrize(
    ("topic", "cure"),
    [
        ('key="unknown", subject=(), partitions=1, retention="1 day"', "'unknown'"),
        ('key="occurred_at", subject=(), partitions=1, retention="1 day"', "'occurred_at'"),
        ('key="user", subject=("whose",), partitions=1, retention="1 day"', "'whose'"),
        ('key="user", subject=(), partitions=0, retention="1 day"', "at least one partition"),
        ('key="user", subject=(), partitions=1, retention="for ever"', "'for ever'"),
        ('key="user", subject=(), partitions=1, retention="0 days"', "keeps no records"),
        ('key=None, subject=(), partitions=1, retention="1 day", compacted=True', "declare a key"),
    ],
)
def test_an_invalid_topic_is_rejected(tmp_path: Path, topic: str, cure: str) -> None:
    with pytest.raises(BadDeclaration, match=cure):
        load_event(declare(tmp_path, f"TOPIC = Topic({topic})\n"))


def test_only_the_platforms_own_events_may_have_another_future_limit(tmp_path: Path) -> None:
    """The collector judges the events of producers by the usual limit."""
    head = "from datetime import timedelta\n" + HEAD + "    at: str\nFUTURE_LIMIT = timedelta(days=9)\n"
    with pytest.raises(BadDeclaration, match="FUTURE_LIMIT is only for an internal topic"):
        load_event(declare(tmp_path, "", head=head))
    internal = declare(tmp_path, "", "own", head.replace("partitions", "internal=True, partitions"))
    assert load_event(internal).future_limit == timedelta(days=9)


def test_a_broken_file_raises(tmp_path: Path) -> None:
    declare(tmp_path, "", name="fine")
    declare(tmp_path, "", name="broken", head="import nothing_of_this_name")
    with pytest.raises(BadDeclaration, match=r"broken\.py cannot be loaded: ModuleNotFoundError"):
        load_events(tmp_path)


@pytest.mark.parametrize("content", ["class", "raise SystemExit(3)", "import no_such_module", "TOPIC = 1", "\0"])
def test_a_broken_file_does_not_hide_the_others(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.py").write_text(content)
    (tmp_path / "good.py").write_text((EVENTS / "search.py").read_text())
    types, broken = load_proposals(tmp_path)
    assert [*types, *broken] == ["good", "bad"]
    assert str(tmp_path / "bad.py") in broken["bad"]


def test_a_file_that_changes_within_a_second_is_loaded_again(tmp_path: Path) -> None:
    """The new content has the length of the old content, so Python's cache of compiled files would not notice it."""
    file, content = tmp_path / "changing.py", (EVENTS / "search.py").read_text()
    for limit in ("1024", "2048", "1024"):
        file.write_text(content.replace("1024", limit))
        [query] = [each for each in load_event(file).fields if each.name == "query"]
        assert query.longest == int(limit)
    assert load_event(file).model is load_event(file).model


@pytest.mark.parametrize("head", ["", HEAD.replace("TOPIC", "OTHER"), HEAD + "\nclass Two(Event):\n    b: str\n"])
def test_a_file_declares_one_topic_and_one_event(tmp_path: Path, head: str) -> None:
    with pytest.raises(BadDeclaration, match="exactly one class"):
        load_event(declare(tmp_path, "", head=head))


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("event_id", "str"),
        ("occurred_at", "datetime | None = None"),
        ("sent_at", "datetime"),
        ("received_at", "str"),
        ("type", "str | None = None"),
    ],
)
def test_the_fields_of_the_envelope_are_reserved(tmp_path: Path, name: str, declared: str) -> None:
    with pytest.raises(BadDeclaration, match=rf"Thing\.{name}: each event already has a field of this name"):
        load_event(declare(tmp_path, f"    {name}: {declared}"))


def test_a_file_name_that_is_not_a_table_name_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadDeclaration, match="in its file name"):
        load_event(declare(tmp_path, "", name="Page-View"))


def test_loading_events_does_not_load_spark() -> None:
    load = "from truelog.schema.loading.events import load_events; load_events()"
    code = f"import sys; {load}; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_documentation_names_every_field() -> None:
    for event in load_events().values():
        names = [field.name for field in event.fields]
        assert set(names) == event.json_schema["properties"].keys()
        names += event.derived_names
        assert [line.split("|")[1].strip() for line in event.markdown.splitlines() if "|" in line][2:] == names


def test_bounds_are_documented() -> None:
    markdown = load_events()["page_view"].markdown
    assert "| status | int |  | ≥ 100, ≤ 599 | HTTP status of the response. |" in markdown
    assert "| visitor_id | str | yes | length ≥ 1, length ≤ 128 |" in markdown


def test_the_model_converts_nothing() -> None:
    valid = {"event_id": "e", "occurred_at": "2026-11-21T10:00:00+02:00"}
    assert Event.model_validate(valid).occurred_at == datetime(2026, 11, 21, 8, tzinfo=UTC)
    for invalid in (datetime(2026, 11, 21), "2026-11-21", "1700000000", 1700000000, None):
        with pytest.raises(ValidationError):
            Event.model_validate(valid | {"occurred_at": invalid})
