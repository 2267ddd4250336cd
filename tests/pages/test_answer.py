"""The data of pages as JSON: a stored text of a producer never makes a route fail."""

import json
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Any

from pages.answer import Answer, refusal

HALF = "half a character: \ud800"


@dataclass
class Letter:
    reason: str
    age: timedelta = timedelta(seconds=1.5)
    value: float = inf


def test_half_a_character_changes_nothing_else_in_an_answer() -> None:
    whole, half = (json.loads(bytes(Answer(letters=[Letter(text)]).body)) for text in ("a", HALF))
    assert half["letters"] == [{"reason": HALF, "age": 1.5, "value": None}]
    assert whole["letters"] == [half["letters"][0] | {"reason": "a"}]
    assert half.keys() == whole.keys() == {"as_of", "letters"}


def test_an_answer_carries_the_rest_beside_bytes_and_deep_nesting() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    found = json.loads(bytes(Answer(raw=b"\xff", deep=deep, named={HALF: Letter("b"), 1: 10**400}).body))
    assert found["raw"] == "\\xff"
    assert "nested in more than 100 levels" in json.dumps(found["deep"])
    assert found["named"] == {HALF: {"reason": "b", "age": 1.5, "value": None}, "1": 10**400}


def test_a_refusal_may_quote_half_a_character() -> None:
    response = refusal(HALF, 400)
    assert (response.status_code, json.loads(bytes(response.body))) == (400, {"detail": HALF})
    assert response.media_type == "application/json"
