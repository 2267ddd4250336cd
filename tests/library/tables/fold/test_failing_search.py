"""The search for the groups on which a fold fails, without Spark: it finds exactly these, with few tries."""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, log2
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from truelog.support.errors import TooManyExcluded
from truelog.tables.fold import failing
from truelog.tables.fold.failing import MOST, Search, require_few

LEAST, GREATEST = -(2**63), 2**63 - 1
seeded = hypothesis(derandomize=True, database=None, deadline=None, max_examples=300)
hashes = st.one_of(st.integers(LEAST, GREATEST), st.integers(-3, 3), st.sampled_from([LEAST, GREATEST]))


@dataclass(frozen=True)
class Groups(Search):
    """Groups by their hashes, and those on which the fold fails. Records what the fold is tried on."""

    places: Mapping[str, int]
    failing: Set[str]
    tries: list[Sequence[str]]

    @staticmethod
    def of(places: Mapping[str, int], wrong: Set[str]) -> "Groups":
        return Groups(mock.Mock(), mock.Mock(), places, wrong, [])

    def groups(self, first: int, last: int) -> list[str]:
        return self._between(first, last)[: failing._FEW + 1]

    def error_between(self, first: int, last: int) -> str | None:
        assert LEAST <= first <= last <= GREATEST, "Spark has no such hash"
        return self.error_in(self._between(first, last))

    def error_in(self, groups: Sequence[str]) -> str | None:
        self.tries.append(groups)
        assert len(self.tries) < 10_000, "the search does not end"
        wrong = sorted({*groups} & self.failing)
        return f"fails on {wrong[0]}" if wrong else None

    def _between(self, first: int, last: int) -> list[str]:
        return sorted(name for name, place in self.places.items() if first <= place <= last)


@contextmanager
def few(groups: int) -> Iterator[None]:
    with mock.patch.object(failing, "_FEW", groups):
        yield


@seeded
@given(st.dictionaries(st.text("abc", min_size=1, max_size=4), hashes, max_size=30), st.data(), st.integers(1, 8))
def test_exactly_the_failing_groups_are_found(places: Mapping[str, int], data: st.DataObject, most: int) -> None:
    """Also groups with one hash, and groups with the least and the greatest hash."""
    wrong = data.draw(st.sets(st.sampled_from(sorted(places)))) if places else set()
    with few(most):
        found = [(each.values, each.error) for each in Groups.of(places, wrong).failed()]
    if len(set(places.values())) == len(places) or len(places) <= most:
        assert sorted(found) == [(name, f"fails on {name}") for name in sorted(wrong)]
    else:  # of too many groups with one hash, one too many are listed
        assert {*found} <= {(name, f"fails on {name}") for name in wrong}
        assert len({*found}) == len(found)


@pytest.mark.parametrize("number", [1, 2, 8, 64])
def test_one_failing_group_takes_as_many_tries_as_halves(number: int) -> None:
    names = [f"{n:02}" for n in range(number)]
    places = {name: n for n, name in enumerate(names)}
    last, first = Groups.of(places, {names[-1]}), Groups.of(places, {names[0]})
    assert [each.values for each in last.failed()] == [names[-1]]
    assert len(last.tries) == 2 + ceil(log2(number))
    assert [each.values for each in first.failed()] == [names[0]]
    assert len(first.tries) == 2 + 2 * ceil(log2(number))


def test_nothing_is_listed_if_the_fold_fails_on_no_group() -> None:
    groups = Groups.of({"a": 0, "b": 1}, set())
    assert (list(groups.failed()), len(groups.tries)) == ([], 1)


def test_few_groups_are_listed_without_more_halves() -> None:
    """A list of exactly as many groups as the driver collects is not halved by hashes."""
    places = {name: n for n, name in enumerate("abcd")}
    with few(4):
        groups = Groups.of(places, {"a", "b", "c", "d"})
        assert len(list(groups.failed())) == 4
    assert len(groups.tries) == 1 + 2 * (4 - 1) + 4  # one of all, two for each halved list, one for each group


def test_one_group_more_than_a_list_may_have_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "F", mock.Mock())
    inputs = mock.Mock()
    limit = inputs.where.return_value.select.return_value.distinct.return_value.limit
    limit.return_value.collect.return_value = [("b",), ("a",)]
    assert Search(mock.Mock(), inputs).groups(LEAST, GREATEST) == ["a", "b"]
    limit.assert_called_once_with(failing._FEW + 1)


def test_a_hundred_failing_groups_are_left_out_and_one_more_stops_the_view() -> None:
    compiled = mock.Mock()
    compiled.name = "spent"
    require_few(compiled, 100, "")
    with pytest.raises(
        TooManyExcluded, match=r"fold of spent fails on more than 100 groups.* The last error: overflow"
    ):
        require_few(compiled, 101, "overflow")
    assert MOST == 100
