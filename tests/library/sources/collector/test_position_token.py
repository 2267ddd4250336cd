"""Position tokens: which positions a token has, and which texts are refused."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelog.log.positions import Positions
from truelog.sources.collector.classifier import ClassifiedRecord, Defect
from truelog.sources.collector.position_token import TokenMaker
from truelog.support.errors import BadInput

IDS = {"page_view": "id-p", "search": "id-s", "dead_letter": "id-d"}
PLACES = st.lists(st.tuples(st.sampled_from(sorted(IDS)), st.integers(0, 3), st.integers(0, 2**40)), max_size=8)


def maker(ids: dict[str, str] = IDS) -> TokenMaker:
    made = TokenMaker.__new__(TokenMaker)  # without a broker
    made._ids = ids
    return made


def record(topic: str) -> ClassifiedRecord:
    return ClassifiedRecord(topic, None, b"", Defect("f", "why") if topic == "dead_letter" else None)


@given(PLACES)
def test_a_token_covers_exactly_the_good_events(places: list[tuple[str, int, int]]) -> None:
    token = maker().token([record(topic) for topic, _, _ in places], [(p, o) for _, p, o in places])
    good = [each for each in places if each[0] != "dead_letter"] or places
    if not good:
        assert token is None
        return
    found = Positions.from_token(token or "")
    wanted: dict[tuple[str, int], int] = {}
    for topic, partition, offset in good:
        wanted[topic, partition] = max(wanted.get((topic, partition), 0), offset + 1)
    assert {(t, p): found.at(t, p) for t, p in found.partitions()} == wanted
    assert found.ids == {topic: IDS[topic] for topic, _, _ in good}


def test_a_topic_whose_id_is_not_known_yet_gets_no_token() -> None:
    assert maker({"search": "id-s"}).token([record("page_view")], [(0, 1)]) is None


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "%%%",
        "\u00fc",
        "A" * 9_000,
        _encoded(5),
        _encoded([{}, {}, {}]),
        _encoded([{"a": {"0": 1}}, {}]),
        _encoded([{"a": {"0": 1}}, {"a": 5}]),
        _encoded([{"a": {"0": -1}}, {"a": "i"}]),
        _encoded([{"a": {"0": "1"}}, {"a": "i"}]),
        _encoded([{"a": {"x": 1}}, {"a": "i"}]),
        _encoded([{"a": {"0": True}}, {"a": "i"}]),
        _encoded([{"a": {"0": 2**63}}, {"a": "i"}]),
        _encoded([[], []]),
        "W" * 5_000,
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="position token"):
        Positions.from_token(text)


@pytest.mark.parametrize("foreign", [" ", "\n", "!"])
def test_a_token_with_a_character_that_no_token_has_is_refused(foreign: str) -> None:
    """A lenient decoder would skip these characters and find the positions: four of them need no other padding."""
    token = Positions({"page_view": {0: 7}}, IDS).only({"page_view"}).as_token()
    assert Positions.from_token(token).at("page_view", 0) == 7
    with pytest.raises(BadInput, match="position token"):
        Positions.from_token(f"{token[:8]}{4 * foreign}{token[8:]}")


def test_a_token_that_is_too_long_is_refused_before_it_is_decoded() -> None:
    def with_name(length: int, offset: int) -> str:
        return Positions({"t" * length: {0: offset}}, {"t" * length: "id"}).as_token()

    sizes = {len(with_name(length, offset)): (length, offset) for length in range(3_040, 3_080) for offset in (7, 77)}
    length, offset = sizes[8_192]
    assert Positions.from_token(with_name(length, offset)).offsets == {"t" * length: {0: offset}}
    length, offset = sizes[min(size for size in sizes if size > 8_192)]
    with pytest.raises(BadInput, match="position token"):
        Positions.from_token(with_name(length, offset))
