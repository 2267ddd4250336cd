"""The values that a dead letter may name: in the posted bytes, which are in base64, and in its reason."""

import base64
import json

import pytest

from truelog.erasure.dead_letter import named_in_letter

FIELDS = ("person_id",)


def letter(posted: bytes, reason: str = "unknown") -> bytes:
    return json.dumps({"field": "record", "reason": reason, "raw": base64.b64encode(posted).decode()}).encode()


@pytest.mark.parametrize(
    "value",
    [
        letter(b'{"preson_id": "ann"}'),
        letter(b'{"type": "like", "person_id": "ann"'),
        letter(b"person=ann;verb=liked"),
        letter(b"{}", reason="'ann' is not a number"),
        b"ann, who sent this past the collector",
    ],
)
def test_a_dead_letter_may_name_a_person_anywhere(value: bytes) -> None:
    assert ("person_id", "ann") in named_in_letter(FIELDS, value)


@pytest.mark.parametrize("value", [letter(b'{"person_id": "bob"}'), letter(b"\xff\x00"), b'{"raw": 5}', b"[]", b""])
def test_a_dead_letter_of_another_person_is_no_trace(value: bytes) -> None:
    assert ("person_id", "ann") not in named_in_letter(FIELDS, value)
