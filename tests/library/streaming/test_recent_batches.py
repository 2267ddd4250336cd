"""Recent batches: which of them a late view gets, and how long their files stay."""

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deadline import deadline
from truelog.kernel.apply_batch import EventRange
from truelog.log.positions import Positions
from truelog.log.records import RECORDS_PER_TASK
from truelog.streaming import recent_batches
from truelog.streaming.recent_batches import RecentBatches, Tasks
from truelog.tables.staging import event_files
from truelog.tables.staging.event_files import EventFiles


def at(a: int, b: int = 0) -> Positions:
    return Positions({"a": {0: a}, "b": {0: b}})


def add(recent: RecentBatches, begin: Positions, end: Positions, tasks: Tasks = (), size: int = 0) -> Event:
    """Add a batch, and return the event that its files are deleted."""
    resources, deleted = ExitStack(), Event()
    resources.callback(deleted.set)
    files = EventFiles(Path(), {}, frozenset(), size)
    recent.add(EventRange({}, begin, end, files=files), resources, tasks)
    return deleted


def lacking(recent: RecentBatches, positions: Positions) -> Sequence[tuple[Positions, Positions]]:
    with recent.after(positions, positions.offsets) as batches:
        return [(each.begin, each.end) for each in batches]


@given(ends=st.lists(st.tuples(st.integers(0, 9_000), st.integers(0, 9_000)), max_size=80), view=st.data())
def test_a_late_view_gets_all_batches_from_its_positions_on(ends: list[tuple[int, int]], view: st.DataObject) -> None:
    """Or none of them: a batch that begins before the view's positions, or after them, is of no use."""
    recent, places, deleted = RecentBatches(), [at(0)], list[Event]()
    for a, b in ends:
        begin = places[-1]
        places.append(at(begin.at("a", 0) + a, begin.at("b", 0) + b))
        deleted.append(add(recent, begin, places[-1]))
    topics = view.draw(st.sampled_from([["a"], ["b"], ["a", "b"]]))
    positions = view.draw(st.sampled_from(places)).only(topics)
    found = lacking(recent, positions)
    kept = [not each.is_set() for each in deleted]
    begins = [n for n, is_kept in enumerate(kept) if is_kept and places[n].only(topics) == positions]
    assert found == (list(pairwise(places))[begins[0] :] if begins else [])
    assert kept == sorted(kept), "the oldest batches are deleted first"
    assert kept[-1:] in ([], [True]), "the newest batch is about to be used"
    records = [each for each, is_kept in zip(ends, kept, strict=True) if is_kept]
    assert len(records) <= 1 or all(sum(of_topic) <= RECORDS_PER_TASK for of_topic in zip(*records, strict=True))
    assert len(records) <= recent_batches._MOST_BATCHES


def test_a_view_between_two_ends_gets_none() -> None:
    recent = RecentBatches()
    add(recent, at(0), at(10))
    add(recent, at(10), at(20))
    assert lacking(recent, at(5)) == []
    assert lacking(recent, at(20)) == []
    assert len(lacking(recent, at(10))) == 1


def test_the_oldest_files_are_forgotten_if_all_have_too_many_bytes() -> None:
    recent = RecentBatches()
    first = add(recent, at(0), at(1), size=event_files.MOST_BYTES // 2)
    add(recent, at(1), at(2), size=event_files.MOST_BYTES // 2)
    assert not first.is_set()
    add(recent, at(2), at(3), size=1)
    assert first.is_set()
    assert lacking(recent, at(1)) == [(at(1), at(2)), (at(2), at(3))]


def test_a_gap_forgets_what_was_before() -> None:
    recent = RecentBatches()
    first = add(recent, at(0), at(10))
    add(recent, at(12), at(20))
    assert first.is_set()
    assert lacking(recent, at(0)) == []
    assert lacking(recent, at(12)) == [(at(12), at(20))]


@pytest.mark.parametrize("forget", [RecentBatches.forget, lambda recent: add(recent, at(50), at(60))])
def test_files_stay_until_the_views_that_read_them_have_ended(forget: object) -> None:
    recent, late = RecentBatches(), Future[None]()
    deleted = add(recent, at(0), at(10), [late])
    assert callable(forget)
    forget(recent)
    assert not deleted.is_set()
    late.set_result(None)
    assert deleted.wait(deadline(10))
