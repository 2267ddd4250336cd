"""A larger share has all readers of a smaller one, and as many readers as it says."""

from hypothesis import given
from hypothesis import strategies as st

from truelog.serving.reader_slot import SLOTS, reader_slot

NAMES = st.text(max_size=70)
READERS = [f"reader-{number}" for number in range(5_000)]


@given(NAMES, st.lists(NAMES, max_size=50), st.integers(0, SLOTS), st.integers(0, SLOTS))
def test_a_larger_share_has_all_readers_of_a_smaller_one(view: str, readers: list[str], one: int, other: int) -> None:
    def shared(percent: int) -> set[str]:
        return {each for each in readers if reader_slot(view, each) < percent}

    assert shared(min(one, other)) <= shared(max(one, other))
    assert (shared(0), shared(SLOTS)) == (set(), set(readers))


def test_a_share_has_about_as_many_readers_as_it_says() -> None:
    """Of 5,000 readers, one standard deviation is at most 0.7 %."""
    for view in ("page_views", "cart", "home_timeline"):
        slots = [reader_slot(view, each) for each in READERS]
        for percent in (1, 5, 10, 25, 50, 90):
            assert abs(100 * sum(slot < percent for slot in slots) / len(READERS) - percent) < 3.5


def test_a_reader_is_not_among_the_first_of_every_view() -> None:
    first = [{each for each in READERS if reader_slot(view, each) < 10} for view in ("page_views", "cart")]
    assert len(first[0] & first[1]) < 0.3 * len(first[0])


def test_the_slots_stay_what_they_are() -> None:
    """Another function would move readers to other versions in the middle of a share."""
    slots = [reader_slot("page_views", each) for each in ("reader", "shop-reads", "ü")]
    assert slots == [47, 48, 18]
