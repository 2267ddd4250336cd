"""The values that a record names, in the ways in which JSON can write them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelog.erasure.subject import HASH_BYTES, Subject, is_clear, named_in_text, named_values

FIELDS = ("person_id", "ip")


def named(value: bytes | None, key: bytes | None = None) -> set[tuple[str, str]]:
    return named_values(FIELDS, value, key, "person_id")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b'{"person_id":"ann","verb":"liked"}', {("person_id", "ann")}),
        (b'{"ip" :\n "::1", "person_id":5}', {("ip", "::1"), ("person_id", "5")}),
        (b'{"person_id":"a\\"b\\\\"}', {("person_id", 'a"b\\')}),
        (b'{"person_id":"\\u0061nn"}', {("person_id", "ann")}),
        (b'{"\\u0070erson_id":"ann"}', {("person_id", "ann")}),
        (b'{"\\u0070erson_id":"ann","person_id":"bob"}', {("person_id", "ann"), ("person_id", "bob")}),
        (b'{"person_id":"ann","person_id":"bob"}', {("person_id", "ann"), ("person_id", "bob")}),
        (b'{"before":{"person_id":1},"after":{"person_id":2}}', {("person_id", "1"), ("person_id", "2")}),
        (b'{"person_id":["ann",["bob"]],"ip":"x"}', {("person_id", "ann"), ("person_id", "bob"), ("ip", "x")}),
        (b'{"person_id":null,"ip":true}', set()),
        (b'{"other":"ann"}', set()),
        (b'{"text":"\\"person_id\\":\\"ann\\""}', set()),
        (b'{"person_id":1e400}', {("person_id", "1e400")}),
        (b"{}", set()),
    ],
)
def test_a_json_object_names_the_values_of_its_fields(value: bytes, found: set[tuple[str, str]]) -> None:
    assert named(value) == found


@pytest.mark.parametrize(
    "value",
    [
        b"person_id=ann&x=1",
        b'"ann"',
        b'["ann"]',
        b'{"x":"ann"',
        b"\xff ann",
        b"[" * 100_000 + b" ann",
        b'{"person_id":"x"} ann',  # what names another person does not hide it
        b'{"person_id":"x","y":"ann"',
        b'[{"person_id":"x"},{"y":"ann"}]',
    ],
)
def test_each_word_of_other_content_may_be_any_field(value: bytes) -> None:
    assert {("person_id", "ann"), ("ip", "ann")} <= named(value)


def test_a_key_counts_only_without_a_value() -> None:
    assert named(None, b"ann") >= {("person_id", "ann")}
    assert named(None, b'{"person_id":7}') >= {("person_id", "7")}
    assert named(b"{}", b"ann") == named(None, None) - {("person_id", "")} == set()


@given(st.dictionaries(st.sampled_from([*FIELDS, "other"]), st.text() | st.integers()), st.booleans())
def test_every_way_to_write_an_event_names_the_same(event: dict[str, Any], plain: bool) -> None:
    expected = {(name, str(value)) for name, value in event.items() if name in FIELDS}
    written = json.dumps(event, ensure_ascii=not plain)
    if not plain or written.encode(errors="replace").decode() == written:
        assert named(written.encode()) == expected


@pytest.mark.parametrize(
    "text",
    [b'{"preson_id": "ann lee"}', b'["ann lee"]', b'x="ann lee"', b'{"person_id": 1, "who": {"is": "\\u0061nn lee"}}'],
)
def test_any_string_of_a_text_may_be_any_field(text: bytes) -> None:
    assert {("person_id", "ann lee"), ("ip", "ann lee")} <= named_in_text(FIELDS, text)


def test_any_word_of_a_text_may_be_any_field() -> None:
    found = named_in_text(FIELDS, b'{"reason": "the value ann is not 5"}')
    assert {("person_id", "ann"), ("ip", "is")} <= found


@pytest.mark.parametrize("text", [b'{"amount": 5}', b'{"reason": "not 5"}', b"a,5,b", b'["5"]', b'{"preson_id": "5"}'])
def test_a_number_in_a_text_names_nobody_except_as_a_value_of_a_field(text: bytes) -> None:
    assert not {("person_id", "5"), ("ip", "5")} & named_in_text(FIELDS, text)
    assert ("person_id", "5") in named_in_text(FIELDS, b'{"person_id": 5} ' + text)


@pytest.mark.parametrize(
    "text", [b"person_id=%b", b"csv: ip=x, person_id=%b, at most 10", b'{"about": "person_id = %b"}', b"person_id='%b'"]
)
@pytest.mark.parametrize("value", ["5", "ann lee", "ann"])
def test_a_text_names_a_value_beside_its_field(text: bytes, value: str) -> None:
    assert ("person_id", value) in named_in_text(FIELDS, text % value.encode())


def test_the_value_of_another_field_is_not_that_of_a_field_whose_name_ends_it() -> None:
    assert ("person_id", "5") not in named_in_text(FIELDS, b"my_person_id=5")


def test_quotes_of_any_kind_surround_a_value() -> None:
    assert ("ip", "ann lee") in named_in_text(FIELDS, b"cannot cast 'ann lee' to INT")
    assert ("ip", "5") not in named_in_text(FIELDS, b"cannot cast '5' to INT")


CLEAR = ("ann-1", "ann.lee", "203.0.113.7", "2001:db8::1", "::1", "1:2:3:4:5:6:7:8", "1.2.3", "1" * 100_000 + "x")
UNCLEAR = ("5", "-5.5", ".5e+7", "5.", "ann lee", "o'hara", "ann.", "/ann", "12:30:45", "2001:db8::", "...", "")


@pytest.mark.parametrize(("value", "clear"), [(each, True) for each in CLEAR] + [(each, False) for each in UNCLEAR])
def test_a_value_is_clear_if_it_is_one_word_and_no_number(value: str, clear: bool) -> None:
    assert is_clear(value) is clear


@pytest.mark.parametrize("address", ["203.0.113.7", "2001:db8::1", "::1", "2001:db8:0:0:1:2:3:4", "::ffff:203.0.113.7"])
@pytest.mark.parametrize(
    "text", [b"%b - -", b'{"client_ip":"%b"}', b"refused %b now", b"refused %b.", b"x=(%b), y", b"ip:[%b]:443"]
)
def test_an_address_is_a_word_of_any_text_and_no_number(address: str, text: bytes) -> None:
    written = text % address.encode()
    assert is_clear(address)
    assert ("ip", address) in named_in_text(FIELDS, written)
    assert (("ip", address) in named(written)) is not written.startswith(b"{")  # no field of an object has it


@pytest.mark.parametrize(
    "text", [b"no row is for ann.", b"ann!", b"'x' /ann/ \xe2\x80\xa6", b"who is ann\xe2\x80\xa6?"]
)
def test_punctuation_at_its_ends_does_not_hide_a_word(text: bytes) -> None:
    assert ("person_id", "ann") in named_in_text(FIELDS, text)


@pytest.mark.parametrize("text", [b"at most 5.", b"5!", b"/5/", b"'5'.", b"at 12:30:5", b"... 5 ..."])
def test_a_number_with_punctuation_names_nobody(text: bytes) -> None:
    assert not {("ip", "5"), ("ip", "5."), ("ip", "...")} & named_in_text(FIELDS, text)


def test_a_hash_depends_on_the_secret_the_field_and_the_value() -> None:
    made = {Subject.of(secret, field, value).hash for secret in (b"a", b"b") for field in FIELDS for value in "xy"}
    assert len(made) == 8
    assert {len(each) for each in made} == {HASH_BYTES}
    assert Subject.of(b"a", "ip", "x") == Subject.of(b"a", "ip", "x")
