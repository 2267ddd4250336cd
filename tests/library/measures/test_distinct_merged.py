"""PostgreSQL merges a sketch alike whether few of its codes arrive or many. Some errors are refused."""

import operator
from collections.abc import Callable, Sequence
from typing import LiteralString

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truelog.measures.distinct import Distinct
from truelog.storage.database import Connection, connect, read_value
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings

FEW = 64  # more codes than that are merged by sorting
WORDS = 400  # so that the states have many in common

PLUS: dict[str, LiteralString] = {
    "distinct": "SELECT truelog.distinct_plus(%s::integer[], %s)",
    "bloom": "SELECT truelog.bloom_plus(%s::bigint[], %s)",
}

State = list[int] | None

registers = st.dictionaries(st.integers(0, WORDS), st.integers(0, 53))
words = st.dictionaries(st.integers(0, WORDS), st.integers(1, 2**32 - 1))


def ranked(found: dict[int, int]) -> State:
    """The codes of a `Distinct`."""
    return [register * 64 + rank for register, rank in sorted(found.items())] or None


def filled(found: dict[int, int]) -> State:
    """The codes of a `Bloom`."""
    return [(word << 32) + bits for word, bits in sorted(found.items())] or None


KINDS: tuple[tuple[str, Callable[[dict[int, int]], State], Callable[[int, int], int]], ...] = (
    ("distinct", ranked, max),
    ("bloom", filled, operator.or_),
)


@pytest.fixture(scope="module")
def connection(postgresql: Settings) -> Connection:
    return connect(postgresql, autocommit=True)


def merged(connection: Connection, function: str, states: Sequence[State]) -> State:
    state: State = read_value(connection, PLUS[function], states)
    return state


@settings(max_examples=150, deadline=None)
@given(registers, registers)
def test_law_the_higher_rank_of_a_register_wins(connection: Connection, a: dict[int, int], b: dict[int, int]) -> None:
    expected = {each: max(a.get(each, 0), b.get(each, 0)) for each in a.keys() | b.keys()}
    assert merged(connection, "distinct", (ranked(a), ranked(b))) == ranked(expected)


@settings(max_examples=150, deadline=None)
@given(words, words)
def test_law_a_word_has_the_bits_of_both(connection: Connection, a: dict[int, int], b: dict[int, int]) -> None:
    expected = {each: a.get(each, 0) | b.get(each, 0) for each in a.keys() | b.keys()}
    assert merged(connection, "bloom", (filled(a), filled(b))) == filled(expected)


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, WORDS])
def test_codes_at_the_ends_and_between_the_others(connection: Connection, count: int) -> None:
    """Every second word of the state; the batch has others and some of the same."""
    state, batch = dict.fromkeys(range(1, WORDS, 2), 5), dict.fromkeys(range(count), 2)
    for function, codes, both in KINDS:
        expected = state | batch | {each: both(5, 2) for each in state.keys() & batch.keys()}
        assert merged(connection, function, (codes(state), codes(batch))) == codes(expected)


@pytest.mark.parametrize("error", [0, 0.004, 1])
def test_an_error_that_no_sketch_has_is_refused(error: float) -> None:
    with pytest.raises(BadDeclaration, match="the error must be between"):
        Distinct(error)
