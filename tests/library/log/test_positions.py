"""Positions compared with plain dictionaries, for any vectors."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelog.log.positions import Positions, Range
from truelog.support.errors import TopicRecreated

Plain = dict[tuple[str, int], int]

vectors = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2)), st.sampled_from([0, 1, 2, 5, 6, 7]), max_size=6
)


def positions(plain: Plain, ids: dict[str, str] | None = None) -> Positions:
    offsets: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in plain.items():
        offsets.setdefault(topic, {})[partition] = offset
    return Positions(offsets, ids or {})


def plain(found: Positions) -> Plain:
    return {(topic, partition): found.at(topic, partition) for topic, partition in found.partitions()}


@given(vectors)
def test_positions_keep_their_offsets_in_order_and_cannot_be_changed(one: Plain) -> None:
    found = positions(one)
    assert plain(found) == one
    assert found.partitions() == sorted(one)
    assert found.plain() == {t: {p: o for (u, p), o in one.items() if u == t} for t in {t for t, _ in one}}
    assert (found.at("a", 9), found.at("z", 0)) == (0, 0)
    with pytest.raises(TypeError):
        found.offsets["z"] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        found.ids["z"] = ""  # type: ignore[index]


@given(vectors, vectors)
def test_comparison_and_combination(one: Plain, other: Plain) -> None:
    first, second = positions(one), positions(other)
    both = one.keys() | other.keys()
    assert first.covers(second) == all(one.get(key, 0) >= offset for key, offset in other.items())
    assert plain(first.earliest(second)) == {key: min(one.get(key, 0), other.get(key, 0)) for key in both}
    assert plain(first.latest(second)) == {key: max(one.get(key, 0), other.get(key, 0)) for key in both}
    assert first.ranges_to(second) == [
        Range(t, p, one.get((t, p), 0), end) for (t, p), end in sorted(other.items()) if end > one.get((t, p), 0)
    ]


@given(vectors, vectors, st.integers(0, 30))
def test_portions_advance_to_the_end_and_never_beyond(one: Plain, other: Plain, records: int) -> None:
    here, end = positions(one), positions(other, {"a": "id"})
    found = here.portion_to(end, records)
    assert (found.partitions(), found.ids) == (end.partitions(), end.ids)
    assert [key for key, offset in plain(found).items() if offset < one.get(key, 0)] == []
    behind = here.ranges_to(end)
    taken = {each: found.at(each.topic, each.partition) - each.start for each in behind}
    assert sum(taken.values()) == here.records_to(found) == min(here.records_to(end), max(records, len(behind)))
    assert all(0 < count <= each.end - each.start for each, count in taken.items())
    cut = [count for each, count in taken.items() if each.start + count < each.end]
    assert not cut or (max(cut) - min(cut) <= 1 and max(taken.values()) <= max(cut))
    steps = 0
    while not here.covers(end):
        here, steps = here.portion_to(end, records), steps + 1
    assert steps <= 7


@given(vectors)
def test_text_forms(one: Plain) -> None:
    ids = {"a": "first", "b": "second"}
    found = positions(one, ids)
    assert json.loads(found.as_json()) == {t: {str(p): o for p, o in by.items()} for t, by in found.plain().items()}
    assert found.as_json() == positions(dict(reversed(one.items()))).as_json()
    assert " " not in found.as_json() + found.with_ids()
    assert Positions.from_json(found.as_json(), ids) == Positions.from_text(found.with_ids()) == found
    assert Positions.from_json(found.as_json()).ids == {}
    rows = [(t, p, o, ids[t]) for (t, p), o in one.items()]
    assert Positions.of_rows(rows) == found.only({t for t, _ in one})
    assert positions(one, {"b": "x", "a": "y"}).with_ids() == positions(one, {"a": "y", "b": "x"}).with_ids()


def test_text_is_sorted() -> None:
    found = Positions({"b": {1: 1, 0: 2}, "a": {0: 3}}, {"b": "second", "a": "first"})
    assert found.as_json() == '{"a":{"0":3},"b":{"0":2,"1":1}}'
    assert Positions({"a": {2: 1, 10: 2}}).as_json() == '{"a":{"10":2,"2":1}}'  # the order of earlier releases
    assert found.with_ids() == f'[{found.as_json()},{{"a":"first","b":"second"}}]'


@given(vectors)
def test_only_keeps_the_wanted_topics(one: Plain) -> None:
    found = positions(one, {"a": "first", "b": "second"}).only(["a"])
    assert plain(found) == {key: offset for key, offset in one.items() if key[0] == "a"}
    assert found.ids == {"a": "first"}


def test_ids_are_combined_and_the_first_wins() -> None:
    first, second = Positions({}, {"a": "1", "b": "1"}), Positions({}, {"b": "2", "c": "2"})
    assert first.latest(second).ids == {"a": "1", "b": "1", "c": "2"}


def test_a_recreated_topic_is_refused_and_an_unknown_id_is_not() -> None:
    known = Positions({}, {"a": "1", "b": "1"})
    known.require_same_topics(Positions({}, {"a": "1", "c": "2"}))
    with pytest.raises(TopicRecreated, match="its id is 2, but the positions have the id 1"):
        known.require_same_topics(Positions({}, {"b": "2"}))


def test_a_portion_is_spread_over_the_partitions() -> None:
    one, three = Positions({"a": {0: 10}}), Positions({"a": {0: 10, 1: 10, 2: 10}})
    assert Positions().portion_to(one, 4).plain() == {"a": {0: 4}}
    assert Positions().portion_to(three, 7).plain() == {"a": {0: 2, 1: 2, 2: 3}}
    assert Positions().portion_to(three, 1).plain() == {"a": {0: 1, 1: 1, 2: 1}}
    assert Positions({"a": {0: 8, 1: 10}}).portion_to(three, 7).plain() == {"a": {0: 10, 1: 10, 2: 5}}
    assert Positions().portion_to(Positions(), 4) == Positions()
