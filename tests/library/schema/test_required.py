"""Closed fields: a field has only its allowed values, and a value may require another field. All judges agree."""

import json
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from truelog.schema import event_version
from truelog.schema.decode import decode, decode_others
from truelog.schema.event import EventType
from truelog.schema.event_version import Cut, EventHistory
from truelog.schema.loading.events import load_event, load_events
from truelog.schema.required import first_missing
from truelog.support.errors import BadDeclaration

HEAD = """
from typing import Literal
from truelog import Event, Required, Topic
TOPIC = Topic(key="cart", subject=(), partitions=1, retention="1 day")
class Change(Event):
    cart: str
"""
CLOSED = """
    verb: Literal["added", "removed"]
    way: Literal["web", "shop"] | None = None
    quantity: int | None = None
REQUIRED = [Required("quantity", when="verb", is_in=("added",))]
"""
OPEN = """
    verb: str
    quantity: int | None = None
"""
BROKER = datetime(2026, 11, 21, 10, tzinfo=UTC)
ABSENT = object()


def declared(folder: Path, body: str) -> EventType:
    path = folder / "change.py"
    path.write_text(HEAD + body)
    return load_event(path)


def record(**fields: Any) -> bytes:
    plain = {"event_id": "e", "occurred_at": "2026-11-21T09:59:00Z", "cart": "c", **fields}
    return json.dumps({name: value for name, value in plain.items() if value is not ABSENT}).encode()


def reasons(event_type: EventType, *values: bytes) -> list[str | None]:
    times = pa.array([BROKER] * len(values), pa.timestamp("us", "UTC"))
    found: list[str | None] = decode(event_type, pa.array(values), times, event_type.future_limit)[
        "invalid"
    ].to_pylist()
    slowly = decode_others(event_type, pa.array(values, pa.binary()), times, event_type.future_limit)["invalid"]
    assert found == slowly.to_pylist()
    return found


def test_a_reason_names_the_allowed_values_and_the_missing_field(tmp_path: Path) -> None:
    change = declared(tmp_path, CLOSED)
    assert reasons(
        change,
        record(verb="added", quantity=0),
        record(verb="removed"),
        record(verb="Added", quantity=1),
        record(verb="added"),
        record(verb="added", quantity=None),
        record(verb="removed", way="mail"),
    ) == [
        None,
        None,
        "verb: not one of added, removed",
        "quantity: missing, which an event needs if verb is added",
        "quantity: missing, which an event needs if verb is added",
        "way: not one of web, shop",
    ]


def test_law_the_decoder_the_model_and_the_json_schema_accept_the_same_events(tmp_path: Path) -> None:
    change = declared(tmp_path, CLOSED)
    schema = Draft202012Validator(change.json_schema)
    verbs = ("added", "removed", "Added", " added", "added ", "", "ADD", "added\x00", None, 1, ["added"], ABSENT)
    records = [
        record(verb=verb, way=way, quantity=quantity)
        for verb, way, quantity in product(verbs, ("web", "Web", "", None, ABSENT), (1, 0, None, ABSENT))
    ]
    accepted = 0
    for raw, reason in zip(records, reasons(change, *records), strict=True):
        assert (reason is None) == is_accepted(change, raw) == schema.is_valid(json.loads(raw)), raw
        accepted += reason is None
    assert accepted == 3 * 2 + 3 * 4


def is_accepted(event_type: EventType, raw: bytes) -> bool:
    """As the collector judges."""
    try:
        return first_missing(event_type.required, event_type.model.model_validate_json(raw)) is None
    except ValidationError:
        return False


def test_a_required_field_is_checked_whatever_columns_are_read(tmp_path: Path) -> None:
    change = declared(tmp_path, CLOSED)
    times = pa.array([BROKER], pa.timestamp("us", "UTC"))
    for columns in ([], ["cart"], ["quantity"], None):
        [found] = decode(change, pa.array([record(verb="added")]), times, change.future_limit, columns).to_pylist()
        assert found["invalid"] == "quantity: missing, which an event needs if verb is added"


def test_the_version_in_force_decides_which_values_are_allowed(tmp_path: Path) -> None:
    versions = [event_version.declaration_of(declared(tmp_path, body)) for body in (OPEN, CLOSED)]
    settings = event_version.settings_of(declared(tmp_path, CLOSED))
    cuts = (Cut("id", 0, 1, {}), Cut("id", 0, 2, {0: 2}))
    change = EventHistory("change", settings, dict(enumerate(versions, 1)), cuts).event_type()
    values = [record(verb="ADD"), record(verb="added"), record(verb="ADD"), record(verb="added")]
    records = {
        "partition": pa.array([0] * 4, pa.int32()),
        "offset": pa.array(range(4), pa.int64()),
        "value": pa.array(values, pa.binary()),
        "broker_time": pa.array([BROKER] * 4, pa.timestamp("us", "UTC")),
    }
    assert event_version.judge(change, pa.record_batch(records))["invalid"].to_pylist() == [
        None,
        None,
        "verb: not one of added, removed",
        "quantity: missing, which an event needs if verb is added",
    ]


def test_the_documentation_names_the_allowed_values_and_the_condition(tmp_path: Path) -> None:
    markdown = declared(tmp_path, CLOSED).markdown
    assert "| verb | str | yes | one of added, removed |" in markdown
    assert "| quantity | int | if verb is added |" in markdown


def test_every_verb_of_the_shipped_event_types_is_closed() -> None:
    fields = {name: field for name, each in load_events().items() for field in each.fields if field.name == "verb"}
    assert len(fields) > 10
    assert [name for name, field in fields.items() if not field.values] == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('    verb: Literal["added", 1]', "allowed values are printable texts"),
        ('    verb: Literal["added", ""]', "allowed values are printable texts"),
        ('    verb: Literal["a\\x00"]', "allowed values are printable texts"),
        ('    verb: Literal["a\\u2400"]', "allowed values are printable texts"),
        ('    verb: Literal["a"] | str', "use str, int, bool, float, datetime"),
        (
            "    n: int\n    verb: str\nREQUIRED = [Required('n', when='verb', is_in=('a',))]",
            "n is not an optional field",
        ),
        ("    verb: Literal['a']\nREQUIRED = [Required('n', when='verb', is_in=('a',))]", "n is not an optional field"),
        (f"{OPEN}REQUIRED = [Required('quantity', when='verb', is_in=('a',))]", "verb does not declare its allowed"),
        (f"{OPEN}REQUIRED = [Required('quantity', when='word', is_in=('a',))]", "word does not declare its allowed"),
        (f"{CLOSED}REQUIRED = [Required('quantity', when='verb', is_in=('b',))]", "name some of added, removed, not b"),
        (f"{CLOSED}REQUIRED = [Required('quantity', when='verb', is_in=())]", "name some of added, removed"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(tmp_path: Path, body: str, reason: str) -> None:
    with pytest.raises(BadDeclaration, match=reason):
        declared(tmp_path, body)


def test_a_closed_field_has_no_bounds(tmp_path: Path) -> None:
    path = tmp_path / "change.py"
    path.write_text("from pydantic import Field\n" + HEAD + '    verb: Literal["a"] = Field(max_length=3)')
    with pytest.raises(BadDeclaration, match="leave the bounds out"):
        load_event(path)
