"""A client that comes back gets the steps behind its place, and costs no look at the steps before it."""

from collections.abc import Sequence
from datetime import UTC, datetime

from truelog.services.api.changes.filter import Filter
from truelog.services.api.changes.outbox import PORTION, Prepared
from truelog.services.api.changes.place import Place
from truelog.services.api.changes.step import Step
from truelog.services.api.changes.tail import Tail
from truelog.services.api.rows.catalogue import Relation

ALL = Prepared(Filter(Relation("sales", ("product",), {}, {}), ()), 1, (), ())
BEGIN = Place(1, 5, "the beginning")


class Counted(int):
    """A number that counts with how many others it is compared."""

    seen = 0

    def __eq__(self, other: object) -> bool:
        Counted.seen += 1
        return int(self) == other

    def __ge__(self, other: int) -> bool:
        Counted.seen += 1
        return int(self) >= other

    __hash__ = int.__hash__


def step(number: int) -> Step:
    return Step(Place(1, number, f"of {number}"), "{}", datetime(2026, 1, 1, tzinfo=UTC), (('{"product":"p"}', None),))


def tail_of(numbers: Sequence[int]) -> Tail:
    made = Tail(BEGIN, range(1))
    for number in numbers:
        made.tell(step(number))
    return made


def after(tail: Tail, number: int, identity: str = "") -> list[int] | None:
    """The numbers of the steps behind a place."""
    found = tail.messages_after(Place(1, number, identity or f"of {number}"), ALL)
    return None if found is None else [place.number for place, _ in found]


def test_a_client_gets_the_steps_behind_its_place() -> None:
    tail = tail_of([7, 8, 12])
    assert [after(tail, number) for number in (7, 8, 12)] == [[8, 12], [12], []]
    assert after(tail, BEGIN.number, BEGIN.identity) == [7, 8, 12]
    assert tail_of([]).messages_after(BEGIN, ALL) == []


def test_a_place_that_is_not_in_this_history_has_no_steps() -> None:
    """It is before the tail, of another beginning, in the middle of a step, of the future or of another version."""
    tail = tail_of([7, 8, 12])
    places = [(4, ""), (5, ""), (7, "the beginning"), (8, "of 7"), (12, "of another database"), (10, ""), (13, "")]
    assert [after(tail, *each) for each in places] == [None] * len(places)
    assert tail.messages_after(Place(2, 8, "of 8"), ALL) is None


def test_a_client_with_the_newest_step_costs_two_comparisons() -> None:
    """One finds its place, and one proves it. A full tail has 20,000 steps."""
    tail = tail_of(range(6, PORTION + 6))
    newest = tail.place
    Counted.seen = 0
    assert tail.messages_after(Place(1, Counted(newest.number), newest.identity), ALL) == []
    assert Counted.seen == 2
