"""Position tokens: which positions a token has, and which texts are refused."""

import asyncio
import base64
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelog.control.event_registry import KnownTypes
from truelog.log.positions import LONGEST_TOKEN, Positions
from truelog.schema.event import EventType
from truelog.sources.collector.classifier import ClassifiedRecord, Defect
from truelog.sources.collector.position_token import TokenMaker
from truelog.support.errors import BadInput
from truelog.support.settings import Settings

IDS = {"page_view": "id-p", "search": "id-s", "dead_letter": "id-d"}
PLACES = st.lists(st.tuples(st.sampled_from(sorted(IDS)), st.integers(0, 3), st.integers(0, 2**40)), max_size=8)


def maker(ids: dict[str, str] = IDS) -> TokenMaker:
    made = TokenMaker.__new__(TokenMaker)  # without a broker
    made._ids, made._learning = ids, None
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


def test_the_id_of_a_new_topic_is_read_for_its_first_token(platform: Settings) -> None:
    """The ids were read before there was the topic."""
    made, sent = TokenMaker(platform), ([record("page_view")], [(0, 1)])
    assert made.token(*sent) is None
    asyncio.run(made.learn(sent[0], KnownTypes(platform).load().values()))
    assert Positions.from_token(made.token(*sent) or "").offsets == {"page_view": {0: 2}}


def test_all_requests_that_wait_for_an_id_share_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    made, readings = maker(IDS), list[int]()

    def reload(types: Iterable[EventType]) -> None:
        readings.append(1)

    async def requests() -> None:
        await made.learn([record("page_view"), record("dead_letter")], ())
        assert not readings
        await asyncio.gather(*(made.learn([record("new")], ()) for _ in range(3)))

    monkeypatch.setattr(made, "reload", reload)
    asyncio.run(requests())
    assert len(readings) == 1


@pytest.mark.parametrize(("topics", "is_read"), [(6, True), (60, False)])
def test_every_token_that_is_made_can_be_read(topics: int, is_read: bool) -> None:
    """Six topics of 64 partitions once made a token that no question could name."""
    names = [f"topic_{number:02}" for number in range(topics)]
    places = [(partition, 10**9) for partition in range(64)] * topics
    records = [record(name) for name in names for _ in range(64)]
    token = maker(dict.fromkeys(names, "A7m3pX0kQjWq5v8tYc1bZg")).token(records, places)
    assert (token is not None) == is_read
    if token is not None:
        assert len(token) > 8_192
        assert len(Positions.from_token(token).partitions()) == 64 * topics


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "%%%",
        "\u00fc",
        "A" * 13_000,
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

    sizes = {len(with_name(length, offset)): (length, offset) for length in range(4_570, 4_620) for offset in (7, 77)}
    length, offset = sizes[LONGEST_TOKEN]
    assert Positions.from_token(with_name(length, offset)).offsets == {"t" * length: {0: offset}}
    length, offset = sizes[min(size for size in sizes if size > LONGEST_TOKEN)]
    with pytest.raises(BadInput, match="position token"):
        Positions.from_token(with_name(length, offset))
